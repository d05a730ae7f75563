"""What may go wrong in a cluster: each with the condition or event that tells it, each healing by itself."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, addresses
from node import CONTAINERD, Node
from places import Failed, eventually
from traffic import held_connections
from workloads import ECHO_PORT, PORT, deployment

PREFIX = "flock.fritzlab.net"
STATE = Path("/var/lib/flock/allocations.json")
AWAY = 60.0  # seconds without an API server
REPLICAS = 6
ANYCAST = "2001:db8:53::81"
CONFIG_PROBLEM = "has bits set after its length"

pytestmark = pytest.mark.timeout(400)


# --- the API server --------------------------------------------------------------------------------------------------


def test_pods_keep_their_network_and_get_a_new_one_while_the_api_server_is_away(cluster: Cluster) -> None:
    churn = deployment("churn", replicas=REPLICAS, annotations={f"{PREFIX}/anycast": ANYCAST})
    with cluster.running(deployment("steady", replicas=REPLICAS)) as steady, cluster.running(churn) as churning:
        held = [address for pod in steady for address in addresses(pod)]
        with held_connections(cluster, held, ECHO_PORT) as fates, away(cluster):
            for pod in churning:
                renew_sandbox(cluster, pod)
        assert len(fates) == len(held) and not any(fates.values()), fates
        cluster.wait_for_nodes()
        for pod in (*cluster.ready_pods(REPLICAS, "app=steady"), *cluster.ready_pods(REPLICAS, "app=churn")):
            assert cluster.fetch(addresses(pod)[0], PORT) == pod["metadata"]["name"]
        cluster.plane.kubectl("scale", "deployment", "churn", f"--replicas={REPLICAS + 2}")
        cluster.ready_pods(REPLICAS + 2, "app=churn")


@contextmanager
def away(cluster: Cluster) -> Iterator[None]:
    """No API server for the block, and AWAY seconds at least."""
    cluster.plane.kill_api_server()
    since = time.monotonic()
    try:
        yield
        time.sleep(max(0.0, since + AWAY - time.monotonic()))
    finally:
        cluster.plane.start_api_server()


def renew_sandbox(cluster: Cluster, pod: dict[str, Any]) -> None:
    """Kill a pod's sandbox; the kubelet makes a new one, with new addresses, whether there is an API server or not."""
    node, name = cluster.nodes[pod["spec"]["nodeName"]], pod["metadata"]["name"]
    (before,) = allocations(node, name)
    ctr(node, "tasks", "kill", "--signal", "SIGKILL", before["container_id"])
    after = eventually(lambda: renewed(node, name, before["container_id"]), what=f"a new sandbox of {name}")
    assert after["anycast"] == [ANYCAST]
    eventually(lambda: cluster.fetch(after["ip6"], PORT, source=node) == name, what=f"{name} to answer")


def renewed(node: Node, pod: str, old: str) -> dict[str, Any]:
    found = [a for a in allocations(node, pod) if a["state"] == "committed" and a["container_id"] != old]
    if not found:
        raise Failed(f"{pod} has only its old sandbox")
    return found[0]


def allocations(node: Node, pod: str) -> list[dict[str, Any]]:
    stored = json.loads(node.path(STATE).read_text())
    return [entry for entry in stored["allocations"] if entry["pod_name"] == pod]


def ctr(node: Node, *argv: str) -> str:
    return node.place.run("ctr", "--address", CONTAINERD, "--namespace", "k8s.io", *argv)


# --- what people write -----------------------------------------------------------------------------------------------


def test_a_malformed_node_config_is_refused_by_the_api_server(cluster: Cluster) -> None:
    for spec in ({"cidr6": ["nonsense"]}, {"bgp": {"asn": -1}}, {"mtu": 10}):
        with pytest.raises(Failed, match=r"Invalid|invalid"):
            patch(cluster, spec)


def test_a_node_config_only_the_agent_can_refuse_is_told_and_the_last_good_one_stays(cluster: Cluster) -> None:
    good = cluster.plane.get("nodeconfig", "n1")["spec"]["cidr6"]
    patch(cluster, {"cidr6": ["2001:db8:1::1/64"]})
    try:
        eventually(lambda: CONFIG_PROBLEM in ready_condition(cluster)["message"], what="the condition")
        assert ready_condition(cluster)["status"] == "True"
        assert CONFIG_PROBLEM in cluster.plane.kubectl("describe", "nodeconfig", "n1").partition("Events:")[2]
        with cluster.running(deployment("meanwhile", replicas=2)):
            pass
    finally:
        patch(cluster, {"cidr6": good})
    eventually(lambda: ready_condition(cluster)["reason"] == "Serving", what="the condition to heal")


def patch(cluster: Cluster, spec: dict[str, Any]) -> None:
    cluster.plane.kubectl("patch", "nodeconfig", "n1", "--type=merge", "--patch", json.dumps({"spec": spec}))


def ready_condition(cluster: Cluster) -> dict[str, str]:
    conditions = cluster.plane.get("nodeconfig", "n1").get("status", {}).get("conditions", ())
    for condition in conditions:
        if condition["type"] == "Ready":
            return dict(condition)
    raise Failed("no condition tells whether the node is ready")


@pytest.mark.parametrize(
    ("annotation", "value", "reason", "says"),
    [
        ("ipv6", "maybe", "FlockBadAnnotation", "flock.fritzlab.net/ipv6"),
        ("anycast", "2001:db8:99::1", "FlockAddressNotGranted", "2001:db8:99::1"),
    ],
)
def test_an_annotation_that_cannot_be_followed_is_told_on_the_pod(
    cluster: Cluster, annotation: str, value: str, reason: str, says: str
) -> None:
    with attempted(cluster, "wrong", replicas=1, annotations={annotation: value}):
        eventually(lambda: says in told(cluster, "wrong", reason), what="the event")
        good = deployment("wrong", replicas=1, node="n1")
        cluster.plane.apply(good)
        cluster.ready_pods(1, "app=wrong")


def test_two_pods_with_one_address_conflict_until_one_is_gone(cluster: Cluster) -> None:
    with attempted(cluster, "same", replicas=2, annotations={"addresses": "2001:db8:54::7"}):
        eventually(lambda: "2001:db8:54::7" in told(cluster, "same", "FlockAddressInUse"), what="the event")
        cluster.plane.kubectl("scale", "deployment", "same", "--replicas=1")
        cluster.ready_pods(1, "app=same")


def test_an_exhausted_pool_is_told_on_the_pod_it_has_no_address_for(cluster: Cluster) -> None:
    with attempted(cluster, "narrow", replicas=2, annotations={"cidr4": "100.64.1.0/30"}):
        eventually(lambda: "100.64.1.0/30" in told(cluster, "narrow", "FlockPoolExhausted"), what="the event")
        cluster.plane.kubectl("scale", "deployment", "narrow", "--replicas=1")
        cluster.ready_pods(1, "app=narrow")


@contextmanager
def attempted(cluster: Cluster, name: str, *, replicas: int, annotations: dict[str, str]) -> Iterator[None]:
    """A deployment on one node of which not every pod can be attached."""
    own = {f"{PREFIX}/{key}": value for key, value in annotations.items()}
    cluster.plane.apply(deployment(name, replicas=replicas, annotations=own, node="n1"))
    try:
        yield
    finally:
        cluster.plane.kubectl("delete", "deployment", name)


def told(cluster: Cluster, name: str, reason: str) -> str:
    """What `kubectl describe` shows of these events on the pods."""
    events = cluster.plane.kubectl("describe", "pods", f"--selector=app={name}").splitlines()
    return "\n".join(line for line in events if reason in line)
