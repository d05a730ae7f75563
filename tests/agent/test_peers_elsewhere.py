"""Pods of other nodes that policies mean: known when somebody here needs them, and nothing is open or shut for that."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from clustered import NAMESPACE, Clustered, clustered, pod

from harness import Node, eventually

BANK, DB = "bank", "198.51.100.7"
THEIRS = f"/api/v1/namespaces/{BANK}/pods"


@pytest.fixture
def cluster(fresh: Node) -> Iterator[Clustered]:
    """Nobody is attached; bank/db is elsewhere, and shop's policy lets bank's pods in."""
    with clustered(fresh) as made:
        made.configure()
        for number in range(8):  # so that those that are needed are not most of them
            made.api.put({"kind": "Namespace", "metadata": {"name": f"other-{number}"}})
        made.api.put({"kind": "Namespace", "metadata": {"name": BANK, "labels": {"team": BANK}}})
        made.api.put(elsewhere("db", DB), policy("bank", {"namespaceSelector": {"matchLabels": {"team": BANK}}}))
        made.api.put(pod("web", labels={"app": "web"}))
        yield made


def elsewhere(name: str, address: str, namespace: str = BANK) -> dict[str, Any]:
    made = pod(name, node="n2", uid="")
    made["metadata"] |= {"namespace": namespace}
    return {**made, "status": {"phase": "Running", "podIPs": [{"ip": address}]}}


def policy(name: str, peer: dict[str, Any]) -> dict[str, Any]:
    spec = {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [peer]}]}
    return {"kind": "NetworkPolicy", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def is_let_in(cluster: Clustered, address: str = DB) -> bool:
    return address in cluster.node.execute("nft", "list", "ruleset").stdout


def isolates(cluster: Clustered) -> bool:
    """The pod's host side is in a map of those that are isolated."""
    return "shop/bank" in cluster.node.execute("nft", "list", "ruleset").stdout


def test_nothing_is_asked_about_pods_that_no_policy_of_a_pod_here_means(cluster: Clustered) -> None:
    cluster.start()
    assert not cluster.api.asked(THEIRS) and not is_let_in(cluster)
    assert not [path for path in cluster.api.asked("/api/v1/pods?") if "nodeName%3D" not in path]


def test_the_first_pod_that_needs_them_comes_up_with_its_peers_in_force(cluster: Clustered) -> None:
    cluster.start()
    cluster.add("web", annotations={})
    assert cluster.api.asked(THEIRS) and is_let_in(cluster)


def test_a_pod_whose_peers_cannot_be_listed_comes_up_closed_to_them_until_they_can(cluster: Clustered) -> None:
    cluster.start()
    cluster.api.errors[THEIRS] = 403
    cluster.add("web", annotations={})
    assert isolates(cluster) and not is_let_in(cluster)
    assert "403" in cluster.problems()
    cluster.api.errors.clear()
    eventually(lambda: is_let_in(cluster), what="its peers")


def test_a_start_keeps_what_was_in_force_until_its_pods_peers_are_listed(cluster: Clustered) -> None:
    cluster.start()
    cluster.add("web", annotations={})
    cluster.node.stop()
    cluster.api.errors[THEIRS] = 503
    cluster.start(wait=False)
    reason = eventually(lambda: _not_ready(cluster, "bank"), what="the reason")
    assert "not listed yet" in reason and is_let_in(cluster)
    cluster.api.errors.clear()
    eventually(cluster.node.is_ready, what="the start to go on")
    assert is_let_in(cluster)


def test_peers_stay_in_force_while_everything_comes_to_be_followed_and_when_it_is_no_more_needed(
    cluster: Clustered,
) -> None:
    cluster.start()
    cluster.add("web", annotations={})
    cluster.api.put(elsewhere("far", "198.51.100.9", "other-1"), policy("everybody", {"namespaceSelector": {}}))
    while not is_let_in(cluster, "198.51.100.9"):
        assert is_let_in(cluster)
    cluster.api.delete("NetworkPolicy", "everybody", NAMESPACE)
    while is_let_in(cluster, "198.51.100.9"):
        assert is_let_in(cluster)
    cluster.api.put(elsewhere("db2", "198.51.100.8"))
    eventually(lambda: is_let_in(cluster, "198.51.100.8"), what="a new peer")
    cluster.api.delete("Pod", "db", BANK)
    eventually(lambda: not is_let_in(cluster), what="one that is gone")


def test_a_namespace_that_comes_to_be_meant_is_listed_then(cluster: Clustered) -> None:
    cluster.start()
    cluster.add("web", annotations={})
    cluster.api.put(elsewhere("far", "198.51.100.9", "other-1"))
    assert not cluster.api.asked("/api/v1/namespaces/other-1/pods")
    cluster.api.put({"kind": "Namespace", "metadata": {"name": "other-1", "labels": {"team": BANK}}})
    eventually(lambda: is_let_in(cluster, "198.51.100.9"), what="its pods")
    cluster.api.put({"kind": "Namespace", "metadata": {"name": "other-1"}})
    eventually(lambda: not is_let_in(cluster, "198.51.100.9"), what="them to be shut out")
    assert is_let_in(cluster)


def _not_ready(cluster: Clustered, word: str) -> str:
    with contextlib.suppress(OSError):  # not listening yet
        said = "; ".join(cluster.node.ask("status")["not_ready"])
        return said if word in said else ""
    return ""
