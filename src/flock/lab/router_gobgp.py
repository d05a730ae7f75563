"""GoBGP as a router of the lab: its table and nothing else.

It puts no routes into the kernel and knows neither BFD nor OSPF, so nothing is forwarded through it; it shows what a
third implementation makes of our announcements.
"""

import json
from typing import Any

from flock.core.routerconf.gobgp import render, zoned
from flock.core.routerconf.speaker import Neighbour
from flock.lab.speaker import Router, Routes, Session

ROLE = "gobgpd"
STATES = ("Unknown", "Idle", "Connect", "Active", "OpenSent", "OpenConfirm", "Established")


class GobgpRouter(Router):
    @property
    def _api(self) -> str:
        return f"unix://{self.host.home / 'api.sock'}"

    def start(self) -> None:
        self._write("gobgpd.json", json.dumps(render(self.speaker), indent=1))
        self.run()

    def run(self) -> None:
        """The daemon with the configuration that is there."""
        config = self.host.home / "gobgpd.json"
        if not self.host.running(ROLE):
            (self.host.home / "api.sock").unlink(missing_ok=True)
        self.host.spawn(
            ROLE, ["gobgpd", "-f", str(config), "-t", "json", "-p", "--pprof-disable", f"--api-hosts={self._api}"]
        )
        self.host.wait(ROLE, lambda: self._show("global"), what="GoBGP")

    def stop(self) -> None:
        self.host.stop(ROLE)

    def routes(self) -> Routes:
        tables = [self._show("global", "rib", "-a", family) for family in ("ipv6", "ipv4")]
        found = {prefix: _next_hops(paths) for table in tables for prefix, paths in dict(table).items()}
        return {prefix: hops for prefix, hops in found.items() if hops}

    def sessions(self) -> tuple[Session, ...]:
        rows = {row["conf"]["neighbor_address"]: row for row in self._show("neighbor")}
        return tuple(_session(n, rows.get(zoned(n.address, n), {})) for n in self.speaker.neighbours)

    def _show(self, *command: str) -> Any:
        return json.loads(self.host.run(["gobgp", "--target", self._api, "-j", *command]) or "{}")


def _next_hops(paths: list[dict[str, Any]]) -> tuple[str, ...]:
    """Of the paths as short as the shortest; GoBGP's own have no AS path."""
    by_length: dict[int, set[str]] = {}
    for path in paths:
        attributes = {a["type"]: a for a in path["attrs"]}
        length = sum(len(part["asns"]) for part in attributes.get(2, {}).get("as_paths", ()))
        hop = attributes.get(3, {}).get("nexthop") or attributes.get(14, {}).get("nexthop")
        if length and hop:
            by_length.setdefault(length, set()).add(hop)
    return tuple(sorted(by_length[min(by_length)])) if by_length else ()


def _session(n: Neighbour, row: dict[str, Any]) -> Session:
    state = STATES[row.get("state", {}).get("session_state", 0)]
    received = sum(f.get("state", {}).get("accepted", 0) for f in row.get("afi_safis", ()))
    return Session(peer=n.name, address=n.address, up=state == "Established", state=state, received=received)
