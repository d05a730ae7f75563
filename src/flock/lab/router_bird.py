"""BIRD 2 as a router of the lab: routers, the client, and nodes without flock.

BIRD keeps one route per neighbour and prefix; which of them share the traffic is decided when it feeds the kernel
(`merge paths`).  `routes` applies the same rule: those as good as the best one.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from flock.core.birdconf.text import password
from flock.core.nodeconfig import Family
from flock.lab.hosts import Host
from flock.lab.speaker import MULTIPATH, Neighbour, OspfLink, Router, Routes, Session, Speaker

ROLE = "bird"


class BirdRouter(Router):
    @property
    def socket(self) -> Path:
        return self.host.home / "bird.ctl"

    def start(self) -> None:
        run(self.host, config=self._write("bird.conf", render(self.speaker)), socket=self.socket)

    def stop(self) -> None:
        self.host.stop(ROLE)

    def routes(self) -> Routes:
        return parse_routes(birdc(self.host, self.socket, "show route all"))

    def sessions(self) -> tuple[Session, ...]:
        neighbours = {n.session: n for n in self.speaker.neighbours}
        bfd = _bfd_states(birdc(self.host, self.socket, "show bfd sessions"))
        said = _protocols(birdc(self.host, self.socket, "show protocols all"))
        return tuple(_session(neighbours[name], block, bfd) for name, block in said)


def run(host: Host, *, config: Path, socket: Path) -> None:
    """Run BIRD as a node's or router's init would, and wait until it answers."""
    host.spawn(ROLE, ["bird", "-f", "-R", "-c", str(config), "-s", str(socket)])
    host.wait(ROLE, lambda: birdc(host, socket, "show status"), what="BIRD")


def birdc(host: Host, socket: Path, command: str) -> str:
    return host.run(["birdc", "-s", str(socket), command], timeout=10)


# --- configuration ------------------------------------------------------------------------------------------


def render(speaker: Speaker) -> str:
    """bird.conf for the job.  Values come from the plan and checked NodeConfigs."""
    blocks = [
        f"# {speaker.name}: written by flockctl lab\nrouter id {speaker.router_id};\nlog stderr all;",
        "protocol device {}",
        *(_family(speaker, family) for family in ("ipv6", "ipv4")),
        _bfd(speaker.ospf),
        *(_bgp(speaker, neighbour) for neighbour in speaker.neighbours),
        *(
            _ospf(links, family)
            for family in ("ipv6", "ipv4")
            if (links := [link for link in speaker.ospf if family in link.families])
        ),
    ]
    return "\n\n".join(blocks) + "\n"


def _family(speaker: Speaker, family: Family) -> str:
    version = family[-1]
    source = next((a for a in speaker.source if (":" in a) == (family == "ipv6")), None)
    aggregates = [a for a in speaker.aggregates if (":" in a) == (family == "ipv6")]
    default = "::/0" if family == "ipv6" else "0.0.0.0/0"
    is_router = speaker.connected and (speaker.ospf or any(n.default_route for n in speaker.neighbours))
    way_out = [default] if is_router else []
    lines = [
        f"protocol kernel kernel{version} {{",
        f"  {family} {{",
        "    import all;" if speaker.learn else "    import none;",
        "    export filter {",
        "      if source = RTS_DEVICE then reject;",
        *([f"      if source ~ [RTS_BGP] then krt_prefsrc = {source};"] if source else []),
        "      accept;",
        "    };",
        *(["    preference 200;"] if speaker.learn else []),
        "  };",
        *(["  learn;"] if speaker.learn else []),
        f"  merge paths on limit {MULTIPATH};",
        "}",
        "",
        f"protocol direct direct{version} {{ {family}; {'' if speaker.connected else 'disabled; '}}}",
        "",
        f"protocol static static{version} {{",
        f"  {family};",
        *(f"  route {prefix} unreachable;" for prefix in way_out),
        *(f"  route {prefix} blackhole;" for prefix in aggregates),
        "}",
    ]
    return "\n".join(lines)


def _bfd(links: Iterable[OspfLink]) -> str:
    """BGP neighbours bring their own timers, OSPF takes the interface's."""
    timed = [
        f'  interface "{link.interface}" {{ interval {link.settings.bfd.interval} ms; '
        f"multiplier {link.settings.bfd.multiplier}; }};"
        for link in links
        if link.settings.bfd.enabled
    ]
    return "\n".join(["protocol bfd {", *timed, "}"])


def _bgp(speaker: Speaker, neighbour: Neighbour) -> str:
    zone = f"%{neighbour.interface}" if neighbour.interface else ""
    reach = "direct;" if neighbour.multihop is None else f"multihop {neighbour.multihop};"
    bfd = f"  bfd {{ interval {neighbour.bfd.interval} ms; multiplier {neighbour.bfd.multiplier}; }};"
    lines = [
        f"protocol bgp {neighbour.session} {{",
        f"  local {neighbour.local_address} as {speaker.asn};",
        f"  neighbor {neighbour.address}{zone} as {neighbour.asn};",
        f"  {reach}",
        f"  hold time {neighbour.hold_time};",
        "  connect delay time 1; connect retry time 1; error wait time 1, 2; error forget time 10;",
        *(["  ttl security on;"] if neighbour.ttl_security else []),
        *([f"  password {_quoted(neighbour.password)};"] if neighbour.password else []),
        *([bfd] if neighbour.bfd.enabled else []),
        *([] if neighbour.asn != speaker.asn else ["  rr client;"]),
        *(_channel(speaker, neighbour, family) for family in neighbour.families),
        "}",
    ]
    return "\n".join(lines)


def _channel(speaker: Speaker, neighbour: Neighbour, family: Family) -> str:
    extended = " extended next hop on;" if family == "ipv4" and ":" in neighbour.address else ""
    if speaker.learn:  # a node
        policy = "import where net ~ [0.0.0.0/0]" if family == "ipv4" else "import where net ~ [::/0]"
        policy += "; export where source ~ [RTS_STATIC, RTS_INHERIT];"
    elif neighbour.default_route:
        policy = "import all; export all;"
    else:
        policy = "import all; export where net.len > 0;"
    return f"  {family} {{ {policy} next hop self;{extended} }};"


def _ospf(links: Iterable[OspfLink], family: Family) -> str:
    areas: dict[str, list[OspfLink]] = {}
    for link in links:
        areas.setdefault(link.area, []).append(link)
    version = "v3" if family == "ipv6" else "v2"
    body = "".join(
        f"  area {area} {{\n" + "".join(_ospf_interface(link) for link in members) + "  };\n"
        for area, members in areas.items()
    )
    return f"protocol ospf {version} ospf{family[-1]} {{\n  {family} {{ import all; export all; }};\n{body}}}"


def _ospf_interface(link: OspfLink) -> str:
    s = link.settings
    options = [
        f"type {s.type}",
        f"cost {s.cost}",
        f"hello {s.hello_interval}",
        f"dead {s.dead_interval}",
        f"bfd {'on' if s.bfd.enabled else 'off'}",
    ]
    if s.authentication and link.password:
        algorithm = "keyed md5" if s.authentication.algorithm == "md5" else s.authentication.algorithm.replace("-", " ")
        key = f"password {_quoted(link.password)} {{ id {s.authentication.key_id}; algorithm {algorithm}; }}"
        options += ["authentication cryptographic", key]
    return f'    interface "{link.interface}" {{ {" ".join(f"{o};" for o in options)} }};\n'


def _quoted(secret: str) -> str:
    return password(secret, field="passwordFile", longest=80)


# --- what it says -------------------------------------------------------------------------------------------

_ROUTE = re.compile(r"(\S+)?\s+(?:unicast|unreachable|blackhole|prohibit) \[.*?\] (\*)?")


def parse_routes(text: str) -> Routes:
    """`show route all` as prefix -> next hops, where the best route came by BGP or OSPF."""
    found: dict[str, list[tuple[bool, str, int, list[str]]]] = {}
    prefix = ""
    for block in re.split(r"\n(?=\S|  )", text):
        start = _ROUTE.match(block)
        if start:
            prefix = start[1] or prefix
            kind = re.search(r"\n\tType: (\S+)", block)
            path = re.search(r"\n\tBGP.as_path:(.*)", block)
            hops = re.findall(r"\n\tvia (\S+) on", block)
            length = len(path[1].split()) if path else 0
            found.setdefault(prefix, []).append((start[2] == "*", kind[1] if kind else "", length, hops))
    routes = {}
    for prefix, candidates in found.items():
        _, kind_, length, _ = max(candidates)  # the starred one
        if kind_.startswith(("BGP", "OSPF")):
            equal = {hop for _, k, n, hops in candidates if (k, n) == (kind_, length) for hop in hops}
            routes[prefix] = tuple(sorted(equal))
    return routes


def _protocols(text: str) -> Iterable[tuple[str, str]]:
    """Name and block of each BGP protocol in `show protocols all`."""
    for block in re.split(r"\n(?=\S)", text):
        head = block.split()
        if len(head) > 4 and head[1] == "BGP":
            yield head[0], block


def _session(neighbour: Neighbour, block: str, bfd: Mapping[str, str]) -> Session:
    def said(label: str) -> str:
        found = re.search(rf"{label}: +(.*\S)", block)
        return found[1] if found else ""

    head, address = block.split(), said("Neighbor address")
    state = said("BGP state") or head[3]
    return Session(
        peer=neighbour.name,
        address=address,
        up=state == "Established",
        state=state,
        received=sum(map(int, re.findall(r"Routes:\s+(\d+) imported", block))),
        bfd=bfd.get(address, ""),
        since=head[4],
        last_error=said("Last error"),
    )


def _bfd_states(text: str) -> dict[str, str]:
    rows = (line.split() for line in text.splitlines()[2:])
    return {row[0]: row[2].lower() for row in rows if len(row) >= 3}
