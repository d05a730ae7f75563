"""No pod takes more than its share of the node's table of connections; whoever tries harms itself alone."""

import socket
from typing import Any

from flooding import flood, flows
from looking import addresses_of, flockctl

from harness import NODE_CONFIG, Node, eventually
from namespaces import within

LIMIT = 500


def limited(node: Node, limit: int | None = LIMIT) -> None:
    spec = dict(NODE_CONFIG["spec"]) | ({} if limit is None else {"limits": {"connectionsPerPod": limit}})
    node.write("nodeconfig", {**NODE_CONFIG, "spec": spec})


def reaches(node: Node, source: str, to: dict[str, list[str]], target: str = "target", within_s: float = 10) -> bool:
    """Does a first packet get there?"""
    address = to[target][1]
    with within(node.path(target), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as server:
        server.settimeout(within_s)
        server.bind((address, 700))

        def send() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.sendto(b"x", (address, 700))

        within(node.path(source), send)
        try:
            return server.recv(10) == b"x"
        except TimeoutError:
            return False


def attached(node: Node, *names: str) -> dict[str, list[str]]:
    return {name: addresses_of(node.pod(name)) for name in names}


def degraded(node: Node) -> str:
    status: dict[str, Any] = node.ask("status")
    return "; ".join(status["degraded"])


def test_a_pod_with_too_many_connections_gets_no_further_ones_until_it_has_fewer(fresh: Node) -> None:
    limited(fresh)
    fresh.start()
    pods = attached(fresh, "hoarder", "other", "sink", "target")
    flood(fresh, "hoarder", pods["sink"][1], ports=2 * LIMIT)
    eventually(lambda: "default/hoarder" in degraded(fresh), what="the pod is found out")
    assert not reaches(fresh, "hoarder", pods, within_s=0.3)
    flood(fresh, "hoarder", pods["target"][1], ports=LIMIT)
    assert flows(fresh) < 2.5 * LIMIT, "its further packets made no entries"
    assert reaches(fresh, "other", pods), "other pods are not concerned"
    assert fresh.ping(pods["hoarder"][1]), "the node reaches it"
    assert "spec.limits.connectionsPerPod" in flockctl(fresh, "status").stdout
    fresh.execute("conntrack", "-F")
    eventually(lambda: "default/hoarder" not in degraded(fresh), what="the pod is let go on")
    assert reaches(fresh, "hoarder", pods)


def test_nobody_cuts_a_pod_off_by_connections_to_it(fresh: Node) -> None:
    """Neither pods that stay below the limit each, nor one that does not."""
    limited(fresh)
    fresh.start()
    pods = attached(fresh, "a", "b", "other", "target")
    for name in ("a", "b"):
        flood(fresh, name, pods["target"][1], ports=LIMIT - 100)
    flood(fresh, "a", pods["target"][0], ports=LIMIT)
    assert flows(fresh) > 2 * LIMIT
    eventually(lambda: "default/a" in degraded(fresh), what="who opened too many is found out")
    assert "default/target" not in degraded(fresh) and "default/b" not in degraded(fresh)
    assert reaches(fresh, "other", pods) and not reaches(fresh, "a", pods, within_s=0.3)


def test_connections_to_the_node_count_too(fresh: Node) -> None:
    limited(fresh)
    fresh.start()
    attached(fresh, "hoarder")
    flood(fresh, "hoarder", "198.18.0.1", ports=2 * LIMIT)
    eventually(lambda: "default/hoarder" in degraded(fresh), what="the pod is found out")


def test_many_connections_of_many_pods_are_nobodys_fault(fresh: Node) -> None:
    limited(fresh)
    fresh.start()
    pods = attached(fresh, "a", "b", "c", "target")
    for name in ("a", "b", "c"):
        flood(fresh, name, "198.18.0.1", ports=LIMIT - 100)
    assert flows(fresh) > 2 * LIMIT
    flood(fresh, "b", "198.18.0.1", ports=LIMIT + 100)
    eventually(lambda: "default/b" in degraded(fresh), what="the one that goes on is found out")
    assert "default/a" not in degraded(fresh) and "default/c" not in degraded(fresh)
    assert reaches(fresh, "a", pods) and reaches(fresh, "c", pods)


def test_a_deleted_pod_leaves_nothing_of_it_behind(fresh: Node) -> None:
    limited(fresh)
    fresh.start()
    pods = attached(fresh, "hoarder", "sink", "target")
    flood(fresh, "hoarder", "198.18.0.1", ports=2 * LIMIT)
    eventually(lambda: degraded(fresh), what="the pod is found out")
    fresh.cni("DEL", "hoarder")
    eventually(lambda: not degraded(fresh), what="it is forgotten")
    fresh.cni("ADD", "hoarder")
    assert reaches(fresh, "hoarder", pods)


def test_the_limit_follows_the_nodeconfig(fresh: Node) -> None:
    fresh.start()
    pods = attached(fresh, "hoarder", "target")
    flood(fresh, "hoarder", "198.18.0.1", ports=2 * LIMIT)
    assert reaches(fresh, "hoarder", pods), "by default it is far"
    limited(fresh)
    eventually(lambda: "default/hoarder" in degraded(fresh), what="it counts at once")
    limited(fresh, 0)
    eventually(lambda: not degraded(fresh), what="0 is no limit")
