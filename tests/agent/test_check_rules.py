"""CHECK and `flockctl check` look at whatever a pod's packets depend on: rules, announced routes, forwarding."""

import contextlib
import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from looking import flockctl, outcome, sysctl

from harness import NODE_CONFIG, CniFailure, Node, eventually
from thoroughness import some

ANYCAST = "2001:db8:53::53"
ALLOWED = {"anycast": {"allowed": [{"prefixes": ["2001:db8:53::/64"]}]}}
POLICY: dict[str, Any] = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "only-web", "namespace": "default"},
    "spec": {"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}]},
}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "default", "annotations": {"flock.fritzlab.net/anycast": ANYCAST}},
    "spec": {"nodeName": "n1"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


@pytest.fixture
def attached(fresh: Node) -> tuple[Node, dict[str, Any]]:
    """An isolated pod that carries an anycast address."""
    fresh.write("nodeconfig", {**NODE_CONFIG, "spec": NODE_CONFIG["spec"] | ALLOWED})
    fresh.write("objects", POLICY, POD)
    fresh.start()
    result = fresh.pod("a")
    eventually(lambda: ANYCAST in fresh.ask("status")["announced"])
    fresh.cni("CHECK", "a", prevResult=result)
    assert flockctl(fresh, "check").returncode == 0
    return fresh, result


def nft(node: Node, *command: str) -> str:
    return node.execute("nft", *command, check=False).stdout


def of_pod(node: Node, result: dict[str, Any], name: str) -> str:
    """The first element of a set that is about the pod, as `nft` wants it for a deletion."""
    host = result["interfaces"][0]["name"]
    listed = json.loads(nft(node, "-j", "list", "set" if name in SETS else "map", "inet", "flock", name))
    elements = [element for o in listed["nftables"] for x in o.values() for element in x.get("elem", ())]
    for element in elements:
        key = element[0] if isinstance(element, list) else element  # a map's has a verdict
        while isinstance(key, dict) and "elem" in key:
            key = key["elem"]["val"]
        parts = key["concat"] if isinstance(key, dict) else [key]
        if parts[0] == host:
            return " . ".join(f'"{part}"' if part == host else str(part) for part in parts)
    return ""


SETS = ("sources4", "sources6", "pods", "isolated-ingress")
Break = Callable[[Node, dict[str, Any]], object]


def without(name: str) -> Break:
    return lambda n, r: nft(n, f"delete element inet flock {name} {{ {of_pod(n, r, name)} }}")


DAMAGE: dict[str, tuple[Break, list[str]]] = {
    "source address": (without("sources4"), ["rules", "sources4"]),
    "IPv6 source address": (without("sources6"), ["rules", "sources6"]),
    "number": (without("pods"), ["rules", "pods"]),
    "isolation": (without("isolated-ingress"), ["rules", "isolated-ingress"]),
    "class": (without("ingress"), ["rules", "ingress"]),
    "rules of the policy": (
        lambda n, r: nft(n, "flush chain inet flock ingress/default/only-web"),
        ["rules", "ingress/default/only-web"],
    ),
    "rules for all": (lambda n, r: nft(n, "flush chain inet flock ingress"), ["rules", "ingress"]),
    "all of it": (lambda n, r: nft(n, "delete table inet flock"), ["rules"]),
    "announced route": (
        lambda n, r: n.execute("ip", "-6", "route", "del", ANYCAST, check=False),
        ["announced", ANYCAST],
    ),
    "IPv4 forwarding": (lambda n, r: sysctl(n, "ipv4/ip_forward", "0"), ["forwarding", "ipv4/ip_forward"]),
    "IPv6 forwarding": (lambda n, r: sysctl(n, "ipv6/conf/all/forwarding", "0"), ["forwarding", "ipv6/conf/all"]),
}


def failed_check(node: Node, result: dict[str, Any], damage: Break) -> CniFailure:
    """The agent repairs within milliseconds, so it sleeps until it has both to do: notice the damage, answer CHECK."""
    assert node.agent is not None
    for _ in range(20):
        node.agent.send_signal(signal.SIGSTOP)
        damage(node, result)
        asked = node.cni_start("CHECK", "a", prevResult=result)
        with contextlib.suppress(subprocess.TimeoutExpired):
            asked.wait(0.1)
        node.agent.send_signal(signal.SIGCONT)
        failed = outcome(asked)
        if isinstance(failed, CniFailure):
            return failed
    raise AssertionError("CHECK never failed")


@pytest.mark.parametrize("what", some(DAMAGE))
def test_a_difference_is_named_and_repaired(attached: tuple[Node, dict[str, Any]], what: str) -> None:
    node, result = attached
    damage, named = DAMAGE[what]
    failed = failed_check(node, result, damage)
    assert failed.code == 109
    for text in named:
        assert text in failed.msg, failed.msg
    damage(node, result)
    assert flockctl(node, "check", "--repair").returncode == 0
    node.cni("CHECK", "a", prevResult=result)


def test_a_node_that_lets_pods_send_from_any_address_has_no_difference(fresh: Node) -> None:
    fresh.start("--antispoofing", "off")
    result = fresh.pod("a")
    fresh.cni("CHECK", "a", prevResult=result)
    assert flockctl(fresh, "check").returncode == 0
