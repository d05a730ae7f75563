"""LoadBalancer Services with a real kube-proxy (iptables), as the client behind the routers sees them."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import image
import pytest
from checking import checked, passed, red
from cluster import Cluster
from control_plane import NAME_SERVICE
from deployment import MANIFESTS
from places import eventually
from traffic import Request, requests, route_changes
from workloads import DNS_PORT, PORT, deployment, name_server

ADDRESS = "192.0.2.80"  # of a range that the routers take host routes of
HTTP = 80
REPLICAS = 4
NAME = "shopfront"
# Seconds that pods go on after they were told to end.  kube-proxy leads to them until it has heard and programmed that
# they went: nine and more at a load of forty on two cores, and whoever announces the address can do nothing about it.
SERVE_ON = 30

pytestmark = pytest.mark.timeout(400)


def service(policy: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {
            "type": "LoadBalancer",
            "externalTrafficPolicy": policy,
            "selector": {"app": NAME},
            "ports": [{"port": HTTP, "targetPort": PORT}],
        },
    }


@pytest.fixture(scope="module")
def web(cluster: Cluster) -> Iterator[Cluster]:
    """Four pods on two nodes behind a Service with externalTrafficPolicy Local, whose address we assign."""
    plane = cluster.plane
    plane.kubectl("apply", "-f", str(MANIFESTS / "services.yaml"))
    grant = {"spec": {"services": {"allowed": [{"prefixes": [f"{ADDRESS}/32"]}]}}}
    for name, node in cluster.nodes.items():
        plane.kubectl("patch", "nodeconfig", name, "--type=merge", "--patch", json.dumps(grant))
        node.start_kube_proxy(plane)
    plane.apply(service("Local"))
    assign(cluster)
    try:
        with cluster.running(deployment(NAME, replicas=REPLICAS, serve_on=SERVE_ON)):
            announced_by(cluster, "n1", "n2")
            yield cluster
    finally:
        plane.kubectl("delete", "service", NAME)
        for node in cluster.nodes.values():
            node.stop_kube_proxy()


def assign(cluster: Cluster) -> None:
    """As an allocator does."""
    found = cluster.plane.get("service", NAME)
    found = found[0] if isinstance(found, list) else found
    found["status"] = {"loadBalancer": {"ingress": [{"ip": ADDRESS}]}}
    file = cluster.plane.place.directory / "status.json"
    file.write_text(json.dumps(found))
    cluster.plane.kubectl("replace", f"--raw=/api/v1/namespaces/default/services/{NAME}/status", "-f", str(file))


def announcers(cluster: Cluster) -> set[str]:
    """The nodes to which the first router would send; a next hop may be of the other family."""
    hops = cluster.network.host("r1").run(["ip", "route", "show", ADDRESS]).split()
    return {name for name in cluster.nodes if not {*hops}.isdisjoint(cluster.network.node(name).addresses)}


def announced_by(cluster: Cluster, *nodes: str) -> None:
    eventually(lambda: announcers(cluster) == {*nodes}, what=f"{nodes} to announce, and no other")


def announced_where_ready(cluster: Cluster, replicas: int) -> None:
    """So many pods are ready, and the nodes they are on announce, and no other."""
    pods = cluster.ready_pods(replicas, f"app={NAME}")
    announced_by(cluster, *{pod["spec"]["nodeName"] for pod in pods})


def answers(cluster: Cluster) -> set[str]:
    """Who answers, by both nodes, whichever the router takes."""
    return {cluster.fetch(ADDRESS, HTTP) for _ in range(8)}


def delivering(cluster: Cluster) -> set[str]:
    """The nodes whose kube-proxy says that it leads to pods there."""
    url = f"http://127.0.0.1:{cluster.plane.get('service', NAME)['spec']['healthCheckNodePort']}/"
    ask = ("curl", "--silent", "--max-time", "5", "--output", "/dev/null", "--write-out", "%{http_code}", url)
    return {name for name, node in cluster.nodes.items() if node.place.attempt(*ask).stdout == "200"}


def spread(cluster: Cluster, replicas: int = REPLICAS) -> None:
    """So many pods on both nodes.  They are scheduled anew: an update may have left all of them on one.

    What a kube-proxy says may be of pods before: it has to have noticed that they went."""
    scale(cluster, 0)
    eventually(lambda: not delivering(cluster), what="kube-proxy on both nodes to notice that no pod is left")
    scale(cluster, replicas)
    announced_by(cluster, "n1", "n2")


def scale(cluster: Cluster, replicas: int) -> None:
    cluster.plane.kubectl("scale", "deployment", NAME, f"--replicas={replicas}")
    cluster.ready_pods(replicas, f"app={NAME}")


def flockctl(cluster: Cluster, node: str, *arguments: str) -> Any:
    program = Path(sys.executable).with_name("flockctl")
    return json.loads(cluster.nodes[node].place.run(program, *arguments, "--output=json"))


def judged(made: list[Request], changes: list[float]) -> tuple[str, list[Request]]:
    """In words, and the requests that were lost though no router had changed its route."""
    failed = [request for request in made if request.problem]
    others = [request for request in failed if not request.was_moved(changes)]
    moved = len(failed) - len(others)
    said = f"{len(made)} requests, {moved} lost to {len(changes)} route changes of routers, {len(others)} otherwise"
    return said, others


@pytest.mark.parametrize("replicas", [REPLICAS, 2], ids=["two on a node", "one on a node"])
def test_a_rolling_update_costs_only_requests_that_a_router_moves(
    web: Cluster, replicas: int, record_property: Callable[[str, object], None]
) -> None:
    spread(web, replicas)
    with route_changes(web, ADDRESS) as changes, requests(web, ADDRESS, HTTP) as made:
        for _ in range(2):
            web.plane.kubectl("rollout", "restart", "deployment", NAME)
            web.wait_for_rollout(f"deployment/{NAME}")
            announced_where_ready(web, replicas)
    said, others = judged(made, changes)
    record_property("measured", said)
    assert len(made) > 100
    assert others == []


def test_a_drained_node_is_left_by_requests_without_loss_but_for_those_a_router_moves(
    web: Cluster, record_property: Callable[[str, object], None]
) -> None:
    spread(web)
    with route_changes(web, ADDRESS) as changes, requests(web, ADDRESS, HTTP) as made:
        flockctl(web, "n1", "drain")
        announced_by(web, "n2")
        for _ in range(20):
            assert web.fetch(ADDRESS, HTTP)
        flockctl(web, "n1", "undrain")
        announced_by(web, "n1", "n2")
    said, others = judged(made, changes)
    record_property("measured", said)
    assert changes and others == []


def test_without_kube_proxy_a_node_withdraws_and_with_it_is_back(web: Cluster) -> None:
    spread(web)
    web.nodes["n1"].stop_kube_proxy()
    announced_by(web, "n2")
    rows = flockctl(web, "n1", "services")
    assert [row["reason"].partition(" (")[0] for row in rows] == ["kube-proxy does not say 200"]
    web.nodes["n1"].start_kube_proxy(web.plane)
    announced_by(web, "n1", "n2")


def test_a_check_of_the_cluster_finds_services_and_names_served(web: Cluster) -> None:
    plane, selector = web.plane, {"app": "names"}
    served = {"selector": selector, "clusterIP": NAME_SERVICE, "ports": [{"port": DNS_PORT, "protocol": "UDP"}]}
    plane.apply(
        name_server("names", namespace="kube-system", image=image.flock()[0]),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
            "spec": served,
        },
    )
    try:
        web.ready_pods(1, "app=names", namespace="kube-system")
        code, rows = checked(web)
        assert (code, red(rows)) == (0, {}) and passed(rows) >= {"pod to Service", "names"}
        plane.kubectl("delete", "pod", "names", "--namespace=kube-system", "--force", "--grace-period=0")
        code, rows = checked(web)
        assert code == 1 and {check for check, _ in red(rows)} == {"names"}
    finally:
        plane.kubectl("delete", "--namespace=kube-system", "--ignore-not-found", "service/kube-dns", "pod/names")


def test_with_policy_cluster_every_node_announces_while_an_endpoint_is_anywhere(web: Cluster) -> None:
    web.plane.apply(service("Cluster"))
    assign(web)
    web.plane.kubectl("scale", "deployment", NAME, "--replicas=1")
    (pod,) = web.ready_pods(1, f"app={NAME}")
    announced_by(web, "n1", "n2")
    name = pod["metadata"]["name"]  # those that end still answer until kube-proxy has noticed
    eventually(lambda: answers(web) == {name}, what="kube-proxy to lead to that pod alone")
    web.plane.kubectl("scale", "deployment", NAME, "--replicas=0")
    announced_by(web)
    web.plane.kubectl("scale", "deployment", NAME, f"--replicas={REPLICAS}")
    announced_by(web, "n1", "n2")
