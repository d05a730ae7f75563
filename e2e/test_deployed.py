"""flock deployed by its own manifests: what kubelet, containerd and users expect of any network, over BGP."""

from collections.abc import Iterator
from typing import Any

import pytest
from cluster import Cluster, addresses, is_true
from places import eventually
from workloads import PORT, deployment

REPLICAS = 30
FEW = 4
HOST_PORT = 8090

Pods = list[dict[str, Any]]


@pytest.fixture(scope="module")
def web(cluster: Cluster) -> Iterator[Pods]:
    """Replicas on both nodes, ready by their probes."""
    with cluster.running(deployment("web", replicas=REPLICAS)) as pods:
        yield pods


def name(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def test_a_node_config_tells_that_its_node_is_ready_and_its_sessions_are_up(cluster: Cluster, web: Pods) -> None:
    for node in cluster.nodes:
        status = cluster.plane.get("nodeconfig", node)
        assert is_true(status, "Ready") and is_true(status, "BGPEstablished")


def test_pods_run_on_every_node_with_an_address_of_each_family(cluster: Cluster, web: Pods) -> None:
    assert {pod["spec"]["nodeName"] for pod in web} == set(cluster.nodes)
    for pod in web:
        assert sorted("6" if ":" in address else "4" for address in addresses(pod)) == ["4", "6"]


def test_pods_reach_each_other_across_nodes(cluster: Cluster, web: Pods) -> None:
    owners = {address: name(pod) for pod in web for address in addresses(pod)}
    for source in web:
        assert cluster.fetch_from(source, list(owners)) == list(owners.values())


def test_the_client_behind_the_routers_and_every_node_reach_every_pod(cluster: Cluster, web: Pods) -> None:
    for pod in web:
        for address in addresses(pod):
            assert cluster.fetch(address, PORT) == name(pod)
            for node in cluster.nodes.values():
                assert cluster.fetch(address, PORT, source=node) == name(pod)


def test_logs_and_exec_reach_the_pod(cluster: Cluster, web: Pods) -> None:
    for pod in web[:FEW]:
        assert cluster.plane.kubectl("logs", name(pod)) == "serving\n"
        assert cluster.plane.kubectl("exec", name(pod), "--", "hostname") == f"{name(pod)}\n"


def test_a_host_port_leads_to_the_pod_of_that_node(cluster: Cluster) -> None:
    with cluster.running(deployment("ported", replicas=len(cluster.nodes), host_port=HOST_PORT)) as pods:
        for pod in pods:
            for address in cluster.nodes[pod["spec"]["nodeName"]].addresses:
                assert cluster.fetch(address, HOST_PORT) == name(pod)


def test_a_deleted_deployment_leaves_no_link_behind(cluster: Cluster) -> None:
    before = links(cluster)
    with cluster.running(deployment("brief", replicas=FEW)):
        own = links(cluster) - before
        assert len(own) == FEW
    eventually(lambda: not own & links(cluster), what="the links to be gone")


def links(cluster: Cluster) -> set[tuple[str, str]]:
    return {(node.name, link) for node in cluster.nodes.values() for link in node.pod_links()}
