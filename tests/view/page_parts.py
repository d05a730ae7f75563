"""What agents tell, in the shapes the page is told them in."""

from typing import Any

NOW = 1_800_000_000.0
SHAPE = {"namespace": "shop", "state": "committed", "ready": True, "netns": "", "since": NOW, "pending_annotations": []}


def session(peer: str, **changes: Any) -> dict[str, Any]:
    told = {"peer": peer, "asn": 64512, "address": "2001:db8:ff::1", "kind": "BGP", "up": True, "state": "Established"}
    return (
        told | {"since": "2026-11-15 06:00:16", "imported": 2, "exported": 3, "last_error": "", "bfd": "up"} | changes
    )


def pod(name: str, **changes: Any) -> dict[str, Any]:
    told = {"pod": name, "container": f"container-of-{name}", "ip6": "2001:db8:1::2", "ip4": "192.0.2.2", "anycast": []}
    more = {"addresses": ["2001:db8:1::2", "192.0.2.2"], "interface": "flock12345678", "policies": []}
    return SHAPE | told | more | changes


def claim(address: str, owner: str, *, reason: str = "", **changes: Any) -> dict[str, Any]:
    told = {"address": address, "kind": "anycast", "pod": owner, "interface": "flock12345678"}
    return told | {"announced": not reason, "reason": reason} | changes


def status(node: str, **changes: Any) -> dict[str, Any]:
    """Ready, with one router and nothing else."""
    told: dict[str, Any] = {
        "version": "0.1.0",
        "node": node,
        "ready": True,
        "not_ready": [],
        "degraded": [],
        "mtu": 1500,
        "pods": {"committed": 1, "pending": 0, "dead": 0},
        "pools": [],
        "problems": [],
        "watches": [],
        "repairs": {},
        "sessions": [session("tor1")],
        "announced": [],
        "withdrawn": "",
        "policies": 0,
        "clusterPolicies": 0,
        "policiesWaiting": [],
        "at": NOW,
        "started": NOW,
        "dropList": [],
        "latencies": {},
        "config": {"problem": "", "spec": {}, "origins": {}},
        "podList": [],
        "addressList": [],
        "policyList": [],
    }
    return told | changes


def drop(pod: str, *, policies: str, time: float, **changes: Any) -> dict[str, Any]:
    told = {"time": time, "kind": "Dropped", "what": "ingress", "pod": pod, "source": "203.0.113.9"}
    more = {"destination": "192.0.2.2", "protocol": "TCP", "port": 80, "policies": policies}
    said = f"ingress  {pod}: 203.0.113.9 -> 192.0.2.2 TCP/80 isolated by {policies}"
    return told | more | {"said": said} | changes
