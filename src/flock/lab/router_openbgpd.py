"""OpenBGPD as a router of the lab: on Linux its table and nothing else.

It keeps the home directory of its user for a root of its own, so it runs with a user database in which that directory
is one of the lab's.
"""

import json
from typing import Any

from flock.core.routerconf.openbgpd import render
from flock.core.routerconf.speaker import Neighbour
from flock.lab.speaker import Router, Routes, Session

ROLE = "openbgpd"
USER = "_openbgpd"
START = """
set -eu
mkdir -p "$1/root"
awk -F: -v OFS=: -v home="$1/root" '$1 == "'"$2"'" { $6 = home } { print }' /etc/passwd >"$1/passwd"
chmod 0644 "$1/passwd"
mount --bind "$1/passwd" /etc/passwd
exec bgpd -d -f "$1/bgpd.conf"
"""


class OpenbgpdRouter(Router):
    def start(self) -> None:
        self.run(render(self.speaker))

    def run(self, config: str) -> None:
        """The daemon with this configuration, in the lab's frame."""
        home = self.host.home
        listen = "".join(f"listen on {address}\n" for address in self._own_addresses())
        self._write("bgpd.conf", f'socket "{home / "bgpd.sock"}"\nfib-update no\n{listen}{config}')
        # `ip netns exec` gives each process mounts of its own: nobody else sees this user database.
        self.host.spawn(ROLE, ["sh", "-c", START, "sh", str(home), USER])
        self.host.wait(ROLE, lambda: self._show("neighbor"), what="OpenBGPD")

    def _own_addresses(self) -> list[str]:
        return sorted({n.local_address for n in self.speaker.neighbours if not n.interface})

    def stop(self) -> None:
        self.host.stop(ROLE)

    def routes(self) -> Routes:
        found: dict[str, set[str]] = {}
        rows = self._show("rib", "detail").get("rib", ())
        lengths = {
            p: min(len(r["aspath"].split()) for r in rows if r["prefix"] == p) for p in {r["prefix"] for r in rows}
        }
        for row in rows:
            if row.get("valid") and len(row["aspath"].split()) == lengths[row["prefix"]] and row.get("exit_nexthop"):
                found.setdefault(row["prefix"], set()).add(row["exit_nexthop"])
        return {prefix: tuple(sorted(hops)) for prefix, hops in found.items()}

    def sessions(self) -> tuple[Session, ...]:
        rows = {row["remote_addr"]: row for row in self._show("neighbor").get("neighbors", ())}
        return tuple(_session(n, rows.get(n.address, {})) for n in self.speaker.neighbours)

    def _show(self, *what: str) -> dict[str, Any]:
        said = self.host.run(["bgpctl", "-s", str(self.host.home / "bgpd.sock"), "-j", "show", *what])
        answer: dict[str, Any] = json.loads(said)
        return answer


def _session(n: Neighbour, row: dict[str, Any]) -> Session:
    state = row.get("state", "absent")
    received = row.get("stats", {}).get("prefixes", {}).get("received", 0)
    return Session(peer=n.name, address=n.address, up=state == "Established", state=state, received=received)
