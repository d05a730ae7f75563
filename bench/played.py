"""A cluster that exists on paper: nodes, sessions, pods and what happens to them, in the shapes agents tell them.

Pure: the dice have a seed of their own.  `status` is a node's /status.json at a moment, `happening` the next thing that
happens to one of them.
"""

import random
from collections import Counter
from typing import Any

VERSION = "played"
FAULTS = (
    "Error: Hold timer expired",
    "Error: BFD session down",
    "Received: Administrative shutdown",
    "Socket: Connection refused",
)
APPS = ("web", "db", "cache", "dns", "mail", "queue", "search", "metrics")
SPACES = ("shop", "bank", "blog", "infra", "lab")
WHY_NOT = "the pod is not Ready"


class PlayedCluster:
    def __init__(self, *, nodes: int = 200, routers: int = 2, pods: int = 20_000, began: float, seed: int = 1) -> None:
        self._dice = random.Random(seed)
        self.began = began
        self.routers = [f"tor{number + 1}" for number in range(routers)]
        self.nodes = [f"node{number + 1:03}" for number in range(nodes)]
        share = max(1, pods // nodes)
        self._places = {name: index for index, name in enumerate(self.nodes)}
        self._pods = {name: [self._pod(index, at) for at in range(share)] for name, index in self._places.items()}
        self._down: dict[tuple[str, str], tuple[str, float]] = {}
        self._dropped: dict[str, Counter[str]] = {name: Counter() for name in self.nodes}

    def status(self, node: str, now: float) -> dict[str, Any]:
        index, pods = self._places[node], self._pods[node]
        anycast = [row for pod in pods if pod["anycast"] for row in self._claims(pod)]
        return {
            "version": VERSION,
            "node": node,
            "ready": True,
            "not_ready": [],
            "degraded": [f"session {peer} is down" for name, peer in self._down if name == node],
            "mtu": 1500,
            "pods": {"committed": len(pods), "pending": 0, "dead": 0},
            "pools": [{"cidr": f"10.{index}.0.0/24", "size": 253, "used": len(pods), "cooling": 3}],
            "problems": [],
            "watches": [],
            "repairs": {},
            "sessions": [self._session(node, index, peer) for peer in self.routers],
            "announced": sorted({row["address"] for row in anycast if row["announced"]}),
            "withdrawn": "",
            "policies": 24,
            "clusterPolicies": 2,
            "policiesWaiting": [],
            "at": now,
            "started": self.began,
            "config": {"problem": "", "spec": {"bgp": {"asn": 64600 + index}}, "origins": {}},
            "podList": pods,
            "addressList": anycast,
            "policyList": [_policy(space) for space in SPACES],
            "dropList": [
                {"policies": policies, "what": "ingress", "count": count, "last": now}
                for policies, count in self._dropped[node].items()
            ],
            "latencies": {"ADD": {"count": len(pods), "p50": 0.0031, "p95": 0.0064}},
        }

    def happening(self, now: float) -> tuple[str, dict[str, Any]]:
        """Of which node, and what."""
        node = self._dice.choice(self.nodes)
        kind, said, values = self._event(node, now)
        return node, {"time": now, "kind": kind, "said": said, **values}

    def _event(self, node: str, now: float) -> tuple[str, str, dict[str, Any]]:
        draw, pod = self._dice.random(), self._dice.choice(self._pods[node])
        name = f"{pod['namespace']}/{pod['pod']}"
        if draw < 0.0005:
            return self._flap(node, now)
        if draw < 0.02:
            pod["ready"] = not pod["ready"]
            return "Rerouted", "changed address=2001:db8:53::53", {"address": "2001:db8:53::53"}
        if draw < 0.2:
            values = {"pod": name, "container": pod["container"], "addresses": pod["ip4"]}
            return "Attached", f"attached pod={name} container={pod['container']} addresses={pod['ip4']}", values
        policy = f"{pod['namespace']}/{self._dice.choice(APPS)}-in"
        self._dropped[node][policy] += 1
        port = self._dice.choice((22, 80, 443, 5432, 9092))
        said = f"ingress  {name}: 203.0.113.9 -> {pod['ip4']} TCP/{port} isolated by {policy}"
        return (
            "Dropped",
            said,
            {"what": "ingress", "pod": name, "source": "203.0.113.9", "destination": pod["ip4"], "protocol": "TCP"}
            | {"port": port, "policies": policy},
        )

    def _flap(self, node: str, now: float) -> tuple[str, str, dict[str, Any]]:
        peer = self._dice.choice(self.routers)
        if self._down.pop((node, peer), None):
            return "SessionUp", f"session up peer={peer}", {"peer": peer}
        fault = self._dice.choice(FAULTS)
        self._down[node, peer] = (fault, now)
        values = {"peer": peer, "state": "Active", "problem": fault}
        return "SessionDown", f"session down peer={peer} state='Active' problem={fault!r}", values

    def _session(self, node: str, index: int, peer: str) -> dict[str, Any]:
        fault, since = self._down.get((node, peer), ("", self.began))
        up = not fault
        return {
            "peer": peer,
            "asn": 64512 + self.routers.index(peer),
            "address": f"2001:db8:ff{self.routers.index(peer)}:{index:x}::1",
            "kind": "BGP",
            "up": up,
            "state": "Established" if up else "Active",
            "since": str(since),
            "imported": 2 if up else 0,
            "exported": 4 if up else 0,
            "last_error": fault,
            "bfd": "up" if up else "down",
        }

    def _pod(self, index: int, place: int) -> dict[str, Any]:
        dice = self._dice
        app, space = dice.choice(APPS), dice.choice(SPACES)
        anycast = ["2001:db8:53::53"] if app == "dns" and place < 12 else []
        ip6, ip4 = f"2001:db8:{index + 1:x}::{place + 2:x}", f"10.{index}.0.{place + 2}"
        return {
            "namespace": space,
            "pod": f"{app}-{dice.getrandbits(40):010x}",
            "container": f"{dice.getrandbits(256):064x}",
            "state": "committed",
            "ready": dice.random() > 0.02,
            "ip6": ip6,
            "ip4": ip4,
            "addresses": [ip6, ip4],
            "anycast": anycast,
            "interface": f"flock{dice.getrandbits(32):08x}",
            "netns": "",
            "since": self.began,
            "pending_annotations": [],
            "policies": [f"{space}/{app}-in"],
        }

    def _claims(self, pod: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {
                "address": address,
                "kind": "anycast",
                "pod": f"{pod['namespace']}/{pod['pod']}",
                "interface": pod["interface"],
                "announced": pod["ready"],
                "reason": "" if pod["ready"] else WHY_NOT,
            }
            for address in pod["anycast"]
        ]


def _policy(space: str) -> dict[str, Any]:
    return {"kind": "NetworkPolicy", "name": f"{space}/web-in", "tier": "", "priority": None, "audit": False} | {
        "pods": 12,
        "problem": "",
    }
