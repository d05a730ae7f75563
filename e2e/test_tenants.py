"""What a tenant gets wrong, or hopes for: policies that cannot be read, and the loopback of its node."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, addresses
from deployment import status
from places import eventually
from workloads import PORT, deployment

HOST_PORT = 8091
PAGES = 9465  # of the agent, on the node's 127.0.0.1

pytestmark = pytest.mark.timeout(400)


def policy(name: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {"podSelector": {"matchLabels": {"app": "shut"}}, "policyTypes": ["Ingress"], **spec},
    }


SELECTORS = [{"podSelector": {"matchLabels": {"app": f"app-{number}"}}} for number in range(600)]
REFUSED = {
    "an annotation that is none": policy("refused", annotations={"flock.fritzlab.net/strict": "yes"}, ingress=[{}]),
    "more selectors than a policy may have": policy("refused", ingress=[{"from": SELECTORS}, {}]),
}


@pytest.fixture(scope="module")
def shut(cluster: Cluster) -> Iterator[list[dict[str, Any]]]:
    with cluster.running(deployment("shut", replicas=2)) as pods:
        yield pods


@pytest.mark.parametrize("why", REFUSED)
def test_a_policy_that_is_refused_closes_what_it_selects_until_it_is_gone(
    cluster: Cluster, shut: list[dict[str, Any]], why: str
) -> None:
    """All of them would let everybody in if they could be read."""
    everywhere = [address for pod in shut for address in addresses(pod)]
    for address in everywhere:
        eventually(lambda a=address: not cluster.refuses(a, PORT), what=f"{address} to answer")
    cluster.plane.apply(REFUSED[why])
    try:
        for address in everywhere:
            eventually(lambda a=address: cluster.refuses(a, PORT), what=f"{address} to be closed")
        for node in cluster.nodes:
            assert any("default/refused" in problem["where"] for problem in status(cluster, node)["problems"])
        eventually(lambda: "FlockPolicyRefused" in cluster.events(), what="the event")
    finally:
        cluster.plane.kubectl("delete", "networkpolicy", "refused")
    for address in everywhere:
        eventually(lambda a=address: not cluster.refuses(a, PORT), what=f"{address} to be open again")


def test_a_pod_with_a_host_port_does_not_reach_the_nodes_loopback(cluster: Cluster) -> None:
    """portmap has to open the pod's link for 127.0.0.0/8; what listens there is the node's own all the same."""
    with cluster.running(deployment("ported", replicas=1, node="n1", host_port=HOST_PORT)) as (pod,):
        place, name = cluster.nodes["n1"].place, pod["metadata"]["name"]
        healthy = ("curl", "--silent", "--max-time", "3", f"http://127.0.0.1:{PAGES}/healthz")
        ported = ("curl", "--silent", "--max-time", "3", f"http://127.0.0.1:{HOST_PORT}/")
        assert place.run(*healthy) and place.run(*ported).strip() == name

        inside = ("nsenter", f"--net={netns_of(cluster, 'n1', name)}")
        for command in (
            "ip address del 127.0.0.1/8 dev lo",
            "ip route add 127.0.0.0/8 via 169.254.1.1 dev eth0 onlink",
            "sysctl -qw net.ipv4.conf.eth0.route_localnet=1",
        ):
            place.run(*inside, *command.split())
        assert place.attempt(*inside, *healthy).stdout == ""
        assert place.attempt(*inside, *ported).stdout == "", "nor by way of its own host port"
        assert place.run(*ported).strip() == name, "which still serves the node"


def netns_of(cluster: Cluster, node: str, pod: str) -> str:
    program = Path(sys.executable).with_name("flockctl")
    rows = json.loads(cluster.nodes[node].place.run(program, "pods", "--output=json"))
    return str(next(row["netns"] for row in rows if row["pod"] == pod))
