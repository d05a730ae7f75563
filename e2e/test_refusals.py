"""What people write that cannot be followed: told where they look for it, and healing when they mend it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from cluster import Cluster, at_once
from places import Failed, eventually
from workloads import deployment

PREFIX = "flock.fritzlab.net"
CONFIG_PROBLEM = "has bits set after its length"
# Deployments on one node of which not every pod can be attached: replicas, annotation, and what the event says.
WRONG: dict[str, tuple[int, dict[str, str], str, str]] = {
    "misspelled": (1, {"ipv6": "maybe"}, "FlockBadAnnotation", "flock.fritzlab.net/ipv6"),
    "ungranted": (1, {"anycast": "2001:db8:99::1"}, "FlockAddressNotGranted", "2001:db8:99::1"),
    "same": (2, {"addresses": "2001:db8:54::7"}, "FlockAddressInUse", "2001:db8:54::7"),
    "narrow": (2, {"cidr4": "100.64.1.248/30"}, "FlockPoolExhausted", "100.64.1.248/30"),
}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def wrong(cluster: Cluster) -> Iterator[None]:
    for name, (replicas, annotations, _, _) in WRONG.items():
        own = {f"{PREFIX}/{key}": value for key, value in annotations.items()}
        cluster.plane.apply(deployment(name, replicas=replicas, annotations=own, node="n1"))
    yield
    cluster.plane.kubectl("delete", "deployment", *WRONG)


@pytest.mark.parametrize("name", WRONG)
def test_an_annotation_that_cannot_be_followed_is_told_on_the_pod(cluster: Cluster, wrong: None, name: str) -> None:
    _, _, reason, says = WRONG[name]
    eventually(lambda: says in told(cluster, name, reason), what="the event")


def told(cluster: Cluster, name: str, reason: str) -> str:
    """What `kubectl describe` shows of these events on the pods."""
    events = cluster.plane.kubectl("describe", "pods", f"--selector=app={name}").splitlines()
    return "\n".join(line for line in events if reason in line)


def test_pods_are_attached_when_the_cause_is_mended(cluster: Cluster, wrong: None) -> None:
    """Another annotation, or one pod less."""
    for name, (replicas, _, _, _) in WRONG.items():
        if replicas == 1:
            cluster.plane.apply(deployment(name, replicas=1, node="n1"))
        else:
            cluster.plane.kubectl("scale", "deployment", name, "--replicas=1")
    at_once(*(lambda n=name: _one_ready(cluster, n) for name in WRONG))


def _one_ready(cluster: Cluster, name: str) -> None:
    cluster.ready_pods(1, f"app={name}")


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
