"""FRR as a router of the lab: zebra, bgpd, bfdd and, where asked for, ospfd and ospf6d, without watchfrr.

The Debian daemons insist on running as user frr, a member of group frrvty, so their directory is that user's and
must be reachable by it.  All sockets are in that directory, away from an FRR of the machine's own.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flock.core.nodeconfig import Family
from flock.core.nodeconfig.shape import BFD
from flock.lab.errors import LabError
from flock.lab.speaker import MULTIPATH, Neighbour, OspfLink, Router, Routes, Session, Speaker

BIN = Path("/usr/lib/frr")
USER = "frr"


class FrrRouter(Router):
    def start(self) -> None:
        home = self.host.home
        home.mkdir(parents=True, exist_ok=True)
        shutil.chown(home, USER, USER)
        _check_reachable(home)
        for daemon, text in render(self.speaker).items():
            config = self._write(f"{daemon}.conf", text)
            shutil.chown(config, USER, USER)
            self.host.spawn(daemon, [str(BIN / daemon), *self._options(daemon), "-f", str(config)])
            self.host.wait(daemon, (home / f"{daemon}.vty").exists, what=f"FRR's {daemon}")

    def _options(self, daemon: str) -> list[str]:
        home = self.host.home
        paths = ["--vty_socket", str(home), "-z", str(home / "zserv.api"), "-i", str(home / f"{daemon}.pid")]
        own = {"bfdd": ["--bfdctl", str(home / "bfdd.sock")], "zebra": ["-e", str(MULTIPATH)]}
        return ["-u", USER, "-g", USER, "-P", "0", "--log", "stdout", *paths, *own.get(daemon, [])]

    def stop(self) -> None:
        for daemon in reversed(DAEMONS):  # zebra last: it removes the others' routes from the kernel
            self.host.stop(daemon)
            (self.host.home / f"{daemon}.vty").unlink(missing_ok=True)

    def routes(self) -> Routes:
        tables = [self._show(f"show bgp {family} unicast json").get("routes", {}) for family in ("ipv6", "ipv4")]
        found = {prefix: hops for table in tables for prefix, paths in table.items() if (hops := _next_hops(paths))}
        for command in ("show ip route ospf json", "show ipv6 route ospf6 json") if self.speaker.ospf else ():
            found |= _zebra_hops(self._show(command))
        return found

    def sessions(self) -> tuple[Session, ...]:
        rows = self._show("show bgp neighbors json")
        return tuple(_session(n, rows.get(n.address, {})) for n in self.speaker.neighbours)

    def _show(self, command: str) -> dict[str, Any]:
        said = self.host.run(["vtysh", "--vty_socket", str(self.host.home), "-c", command])
        answer: dict[str, Any] = json.loads(said)
        return answer


def _check_reachable(home: Path) -> None:
    closed = [p for p in home.parents if not p.stat().st_mode & 0o001]
    if closed:
        raise LabError(
            f"FRR runs as user {USER}, which may not enter {closed[-1]}",
            details="give --dir a directory that others may pass through, such as one under /run",
        )


# --- configuration ------------------------------------------------------------------------------------------

DAEMONS = ("zebra", "bfdd", "bgpd", "ospfd", "ospf6d")


def render(speaker: Speaker) -> dict[str, str]:
    """One file per daemon, in the order they start."""
    head = f"! {speaker.name}: written by flockctl lab\nfrr defaults datacenter\nhostname {speaker.name}\n"
    files = {
        "zebra": f"{head}ip router-id {speaker.router_id}\n",
        "bfdd": head + _bfd(_profiles(speaker)),
        "bgpd": head + _bgp(speaker),
    }
    for daemon, family in (("ospfd", "ipv4"), ("ospf6d", "ipv6")):
        links = [link for link in speaker.ospf if family in link.families]
        if links:
            files[daemon] = head + _ospf(links, family, router_id=speaker.router_id)
    return files


def _profiles(speaker: Speaker) -> dict[str, BFD]:
    bgp = {n.session: n.bfd for n in speaker.neighbours if n.bfd.enabled}
    return bgp | {link.interface: link.settings.bfd for link in speaker.ospf if link.settings.bfd.enabled}


def _bfd(profiles: dict[str, BFD]) -> str:
    lines = ["bfd"]
    for name, bfd in profiles.items():
        lines += [
            f" profile {name}",
            f"  detect-multiplier {bfd.multiplier}",
            f"  receive-interval {bfd.interval}",
            f"  transmit-interval {bfd.interval}",
            " !",
        ]
    return "\n".join([*lines, "!", ""])


def _bgp(speaker: Speaker) -> str:
    lines = [
        f"router bgp {speaker.asn}",
        f" bgp router-id {speaker.router_id}",
        " no bgp ebgp-requires-policy",
        " no bgp default ipv4-unicast",
        " no bgp network import-check",
        " bgp bestpath as-path multipath-relax",
        *(line for n in speaker.neighbours for line in _neighbour(n)),
        *(line for family in ("ipv6", "ipv4") for line in _address_family(speaker, family)),
        "!",
    ]
    return "\n".join(lines) + "\n"


def _neighbour(n: Neighbour) -> Iterable[str]:
    name = n.address
    yield f" neighbor {name} remote-as {n.asn}"
    yield f" neighbor {name} description {n.name}"
    yield f" neighbor {name} timers {max(n.hold_time // 3, 1)} {n.hold_time}"
    yield f" neighbor {name} timers connect 1"
    if n.interface:
        yield f" neighbor {name} interface {n.interface}"
    else:
        yield f" neighbor {name} update-source {n.local_address}"
    if ":" in n.address and "ipv4" in n.families:
        yield f" neighbor {name} capability extended-nexthop"
    if n.multihop is not None:
        yield f" neighbor {name} ebgp-multihop {n.multihop}"
    if n.ttl_security:
        yield f" neighbor {name} ttl-security hops 1"
    if n.password:
        yield f" neighbor {name} password {_word(n.password)}"
    if n.bfd.enabled:
        yield f" neighbor {name} bfd profile {n.session}"


def _address_family(speaker: Speaker, family: Family) -> Iterable[str]:
    yield f" address-family {family} unicast"
    if speaker.connected:
        yield "  redistribute connected"
    yield f"  maximum-paths {MULTIPATH}"
    for n in speaker.neighbours:
        if family in n.families:
            name = n.address
            yield f"  neighbor {name} activate"
            if n.asn == speaker.asn:
                yield f"  neighbor {name} route-reflector-client"
                yield f"  neighbor {name} next-hop-self"
            if n.default_route:
                yield f"  neighbor {name} default-originate"
    yield " exit-address-family"


def _ospf(links: Iterable[OspfLink], family: str, *, router_id: str) -> str:
    word, version = ("ip ospf", "ospf") if family == "ipv4" else ("ipv6 ospf6", "ospf6")
    lines: list[str] = []
    for link in links:
        lines += [f"interface {link.interface}", *(f" {word} {option}" for option in _ospf_options(link, family)), "!"]
    lines += [
        f"router {version}",
        f" {version} router-id {router_id}",
        " default-information originate always",
        " redistribute connected",
        " redistribute bgp",
        "!",
    ]
    return "\n".join(lines) + "\n"


def _ospf_options(link: OspfLink, family: str) -> Iterable[str]:
    s = link.settings
    yield f"area {link.area}"
    yield f"cost {s.cost}"
    yield f"hello-interval {s.hello_interval}"
    yield f"dead-interval {s.dead_interval}"
    yield f"network {'point-to-point' if s.type == 'ptp' else 'broadcast'}"
    if s.bfd.enabled:
        yield "bfd"
        yield f"bfd profile {link.interface}"
    if s.authentication and link.password:
        if family == "ipv4":
            if s.authentication.algorithm != "md5":
                raise LabError(f"FRR's ospfd knows md5 authentication only, not {s.authentication.algorithm}")
            yield "authentication message-digest"
            yield f"message-digest-key {s.authentication.key_id} md5 {_word(link.password)}"
        else:
            yield (
                f"authentication key-id {s.authentication.key_id} "
                f"hash-algo {s.authentication.algorithm} key {_word(link.password)}"
            )


def _word(secret: str) -> str:
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise LabError("FRR takes only passwords that are one word of printable ASCII")
    return secret


# --- what it says -------------------------------------------------------------------------------------------


def _next_hops(paths: list[dict[str, Any]]) -> tuple[str, ...]:
    """Of the best path and those that share its traffic; the daemon's own prefixes have none.

    Of two addresses of one next hop FRR uses the link-local one; the global one says more."""
    chosen = [p for p in paths if (p.get("bestpath") or p.get("multipath")) and p.get("path")]
    hops = {min(path["nexthops"], key=lambda hop: hop.get("scope") == "link-local")["ip"] for path in chosen}
    return tuple(sorted(hops))


def _zebra_hops(table: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {
        prefix: hops
        for prefix, routes in table.items()
        if (hops := tuple(sorted({h["ip"] for route in routes for h in route.get("nexthops", ()) if "ip" in h})))
    }


def _session(n: Neighbour, row: dict[str, Any]) -> Session:
    families = row.get("addressFamilyInfo", {}).values()
    state = row.get("bgpState", "absent")
    return Session(
        peer=n.name,
        address=n.address,
        up=state == "Established",
        state=state,
        received=sum(family.get("acceptedPrefixCounter", 0) for family in families),
        bfd=row.get("peerBfdInfo", {}).get("status", "").lower(),
        last_error=row.get("lastResetDueTo", ""),
    )
