"""GoBGP as a router of the lab: its table and nothing else.

It puts no routes into the kernel and knows neither BFD nor OSPF, so nothing is forwarded through it; it shows what a
third implementation makes of our announcements.
"""

import json
from typing import Any

from flock.lab.speaker import Neighbour, Router, Routes, Session, Speaker

ROLE = "gobgpd"
STATES = ("Unknown", "Idle", "Connect", "Active", "OpenSent", "OpenConfirm", "Established")


class GobgpRouter(Router):
    @property
    def _api(self) -> str:
        return f"unix://{self.host.home / 'api.sock'}"

    def start(self) -> None:
        config = self._write("gobgpd.json", json.dumps(render(self.speaker), indent=1))
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
        return tuple(_session(n, rows.get(_zoned(n.address, n), {})) for n in self.speaker.neighbours)

    def _show(self, *command: str) -> Any:
        return json.loads(self.host.run(["gobgp", "--target", self._api, "-j", *command]) or "{}")


def render(speaker: Speaker) -> dict[str, Any]:
    return {
        "global": {
            "config": {"as": speaker.asn, "router-id": speaker.router_id},
            "use-multiple-paths": {"config": {"enabled": True}},
        },
        "neighbors": [_neighbour(n) for n in speaker.neighbours],
    }


def _neighbour(n: Neighbour) -> dict[str, Any]:
    config: dict[str, Any] = {"neighbor-address": _zoned(n.address, n), "peer-as": n.asn}
    if n.password:
        config["auth-password"] = n.password
    neighbour: dict[str, Any] = {
        "config": config,
        "transport": {"config": {"local-address": _zoned(n.local_address, n)}},
        "timers": {"config": {"hold-time": n.hold_time, "connect-retry": 1, "idle-hold-time-after-reset": 1}},
        "afi-safis": [{"config": {"afi-safi-name": f"{family}-unicast"}} for family in n.families],
    }
    if n.multihop is not None:
        neighbour["ebgp-multihop"] = {"config": {"enabled": True, "multihop-ttl": n.multihop}}
    if n.ttl_security:
        neighbour["ttl-security"] = {"config": {"enabled": True, "ttl-min": 255}}
    return neighbour


def _zoned(address: str, n: Neighbour) -> str:
    return f"{address}%{n.interface}" if n.interface else address


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
