"""FRR as a router of the lab: zebra, bgpd, bfdd and, where asked for, ospfd and ospf6d, without watchfrr.

The Debian daemons insist on running as user frr, a member of group frrvty, so their directory is that user's and
must be reachable by it.  All sockets are in that directory, away from an FRR of the machine's own.
"""

import json
import shutil
import subprocess
from functools import cache, partial
from pathlib import Path
from typing import Any

from flock.core.routerconf.frr import DAEMONS, render
from flock.core.routerconf.speaker import MULTIPATH, Neighbour
from flock.lab.errors import LabError
from flock.lab.speaker import Router, Routes, Session

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
            self.host.wait(daemon, partial(self._answers, daemon), what=f"FRR's {daemon}")

    def _answers(self, daemon: str) -> bool:
        """The file of its socket is there before it listens, and stays of one that was killed."""
        asked = ["vtysh", "--vty_socket", str(self.host.home), "-d", daemon, "-c", "show logging"]
        return (self.host.home / f"{daemon}.vty").exists() and daemon in self.host.run(asked, timeout=5)

    def _options(self, daemon: str) -> list[str]:
        home = self.host.home
        paths = ["--vty_socket", str(home), "-z", str(home / "zserv.api"), "-i", str(home / f"{daemon}.pid")]
        control = ["--bfdctl", str(home / "bfdd.sock")] if _has_bfdctl() else []
        own = {"bfdd": control, "zebra": ["-e", str(MULTIPATH)]}
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


@cache
def _has_bfdctl() -> bool:
    """FRR 10 has that socket no more."""
    return "--bfdctl" in subprocess.run([BIN / "bfdd", "--help"], capture_output=True, text=True).stdout


def _check_reachable(home: Path) -> None:
    closed = [p for p in home.parents if not p.stat().st_mode & 0o001]
    if closed:
        raise LabError(
            f"FRR runs as user {USER}, which may not enter {closed[-1]}",
            details="give --dir a directory that others may pass through, such as one under /run",
        )


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
