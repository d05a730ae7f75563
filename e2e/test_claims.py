"""Addresses that pods name in annotations, in a cluster where another tenant wants the same ones."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from cluster import Cluster
from places import eventually
from workloads import PORT, deployment

PREFIX = "flock.fritzlab.net"
SHARED = "100.64.1.53"  # all inside n1's CIDR
GRANTED = "100.64.1.99"
FIXED = "100.64.1.77"

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module", autouse=True)
def tenants(cluster: Cluster) -> Iterator[None]:
    for name in ("shop", "evil"):
        metadata = {"name": name, "labels": {"team": name}}
        cluster.plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    yield
    cluster.plane.kubectl("delete", "namespace", "shop", "evil", "--wait=false")


@pytest.fixture(scope="module")
def shop(cluster: Cluster) -> list[str]:
    """The names of shop's two replicas on one node, which share an address."""
    cluster.plane.apply(asking("web", "shop", replicas=2, anycast=SHARED))
    return [pod["metadata"]["name"] for pod in cluster.ready_pods(2, "app=web", namespace="shop")]


def asking(name: str, namespace: str, *, replicas: int = 1, **annotations: str) -> dict[str, Any]:
    own = {f"{PREFIX}/{key}": value for key, value in annotations.items()}
    return deployment(name, namespace=namespace, replicas=replicas, annotations=own, node="n1")


def is_told(cluster: Cluster, namespace: str, name: str, reason: str) -> None:
    """`kubectl describe` shows such an event on the deployment's pods."""
    asked = ("describe", "pods", f"--namespace={namespace}", f"--selector=app={name}")
    eventually(lambda: reason in cluster.plane.kubectl(*asked), what=f"the event {reason}")


def test_another_namespace_does_not_join_an_address_that_replicas_share(cluster: Cluster, shop: list[str]) -> None:
    cluster.plane.apply(asking("thief", "evil", replicas=2, anycast=SHARED))
    is_told(cluster, "evil", "thief", "FlockAddressOfAnotherNamespace")
    answers = {cluster.fetch(SHARED, PORT).strip() for _ in range(40)}
    assert answers <= set(shop)


def test_a_namespace_cannot_use_up_a_nodes_addresses_by_naming_them(cluster: Cluster, shop: list[str]) -> None:
    rest = [f"100.64.1.{n}" for n in range(63, 255)]  # behind what pods have got so far
    for number in range(3):
        some = ",".join(rest[number * 64 : number * 64 + 64])
        cluster.plane.apply(asking(f"greedy-{number}", "evil", addresses=some))
    for number in range(3):
        is_told(cluster, "evil", f"greedy-{number}", "FlockTooManyAddresses")
    cluster.plane.apply(asking("plain", "shop"))
    cluster.ready_pods(1, "app=plain", namespace="shop")


def test_what_is_granted_to_one_namespace_is_not_for_the_first_comer(cluster: Cluster, shop: list[str]) -> None:
    before = cluster.plane.get("nodeconfig", "n1")["spec"].get("anycast", {}).get("allowed", [])
    only_shop = {"matchLabels": {"team": "shop"}}
    grant = {"prefixes": [f"{GRANTED}/32"], "namespaceSelector": only_shop}
    patch(cluster, [*before, grant])
    try:
        cluster.plane.apply(asking("first", "evil", anycast=GRANTED))
        is_told(cluster, "evil", "first", "FlockAddressNotGranted")
        cluster.plane.apply(asking("second", "shop", anycast=GRANTED))
        (pod,) = cluster.ready_pods(1, "app=second", namespace="shop")
        eventually(lambda: cluster.fetch(GRANTED, PORT).strip() == pod["metadata"]["name"], what="the granted pod")
    finally:
        patch(cluster, before)


def patch(cluster: Cluster, allowed: list[Any]) -> None:
    change = json.dumps({"spec": {"anycast": {"allowed": allowed}}})
    cluster.plane.kubectl("patch", "nodeconfig", "n1", "--type=merge", "--patch", change)


def test_a_fixed_address_comes_back_at_once_for_its_own_namespace_alone(cluster: Cluster) -> None:
    template = asking("db", "shop", addresses=FIXED)["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": "db-0", "namespace": "shop"}}
    for _ in range(2):
        cluster.plane.apply({**pod, "spec": {**template["spec"], "topologySpreadConstraints": []}})
        (found,) = cluster.ready_pods(1, "app=db", namespace="shop")
        assert FIXED in {entry["ip"] for entry in found["status"]["podIPs"]}
        assert "Flock" not in cluster.plane.kubectl("describe", "pod", "db-0", "--namespace=shop")
        cluster.plane.kubectl("delete", "pod", "db-0", "--namespace=shop", "--wait=true")
    cluster.plane.apply(asking("successor", "evil", addresses=FIXED))
    is_told(cluster, "evil", "successor", "FlockAddressOfAnotherNamespace")
