"""BIRD 2 as a router of the lab: routers, the client, and nodes without flock.

BIRD keeps one route per neighbour and prefix; which of them share the traffic is decided when it feeds the kernel
(`merge paths`).  `routes` applies the same rule: those as good as the best one.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from flock.core.routerconf.bird import render
from flock.core.routerconf.speaker import Neighbour
from flock.lab.hosts import Host
from flock.lab.speaker import Router, Routes, Session

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
