"""Anycast by annotation on a Deployment, as the client behind the routers sees it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cluster import Cluster
from places import eventually
from traffic import requests, route_changes
from workloads import PORT, deployment

SERVICE = "2001:db8:53::80"
REPLICAS = 4

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def service(cluster: Cluster) -> Iterator[list[dict[str, Any]]]:
    annotations = {"flock.fritzlab.net/anycast": SERVICE}
    with cluster.running(deployment("dns", replicas=REPLICAS, annotations=annotations, serve_on=5)) as pods:
        eventually(lambda: announcers(cluster) == set(cluster.nodes), what="both nodes to announce")
        yield pods


def announcers(cluster: Cluster) -> set[str]:
    """The nodes to which the first router would send."""
    hops = cluster.network.host("r1").run(["ip", "-6", "route", "show", SERVICE])
    return {name for name in cluster.nodes if f"via {lan_address(cluster, name)} " in hops}


def lan_address(cluster: Cluster, node: str) -> str:
    return next(a for a in cluster.network.node(node).addresses if ":" in a)


def test_a_rolling_update_costs_only_requests_that_a_router_moves(
    cluster: Cluster, service: list[dict[str, Any]], record_property: Callable[[str, object], None]
) -> None:
    with route_changes(cluster, SERVICE) as changes, requests(cluster, SERVICE, PORT) as made:
        cluster.plane.kubectl("rollout", "restart", "deployment", "dns")
        cluster.wait_for_rollout("deployment/dns")
        cluster.ready_pods(REPLICAS, "app=dns")
    failed = [request for request in made if request.problem]
    moved = [request for request in failed if request.was_moved(changes)]
    others = len(failed) - len(moved)
    told = f"{len(made)} requests, {len(moved)} lost to {len(changes)} route changes of routers, {others} otherwise"
    record_property("measured", told)
    assert len(made) > 100
    assert [request for request in failed if request not in moved] == []


def test_a_cordoned_node_withdraws_and_an_uncordoned_one_is_back(
    cluster: Cluster, service: list[dict[str, Any]]
) -> None:
    plane = cluster.plane
    merge = ("--type=merge", "--patch", '{"spec": {"anycast": {"withdrawOnCordon": true}}}')
    plane.kubectl("patch", "nodeconfig", "n1", *merge)
    with route_changes(cluster, SERVICE) as changes:
        try:
            plane.kubectl("cordon", "n1")
            eventually(lambda: announcers(cluster) == {"n2"}, what="the cordoned node to withdraw")
            assert cluster.fetch(SERVICE, PORT)
        finally:
            plane.kubectl("uncordon", "n1")
    assert changes  # which shows that a router's change does not go unseen in the test above
    eventually(lambda: announcers(cluster) == {"n1", "n2"}, what="the node to announce again")
