"""A node that the original flock served: this one takes it over, and clients of its anycast address notice nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster
from deployment import NAMESPACE, agent_pod, status
from node import CONTAINERD, Node
from places import eventually
from traffic import requests, route_changes
from workloads import PORT, deployment

STATE = Path("/var/lib/flock/allocations.json")
SERVICE = "2001:db8:53::90"
REPLICAS = 4
RESTART_PATIENCE = 180.0  # seconds; a kubelet waits longer with each restart
KEYS = (
    "container_id",
    "namespace",
    "pod_name",
    "owner_uid",
    "ip6",
    "ip4",
    "anycast",
    "addresses",
    "state",
    "allocated_at",
)

pytestmark = pytest.mark.timeout(400)


def test_a_node_of_the_original_is_taken_over_under_traffic(cluster: Cluster) -> None:
    node = cluster.nodes["n1"]
    annotations = {"flock.fritzlab.net/anycast": SERVICE}
    with cluster.running(deployment("heir", replicas=REPLICAS, annotations=annotations)):
        eventually(lambda: announced_by(cluster, "n1") and announced_by(cluster, "n2"), what="both nodes to announce")
        container = agent_container(cluster, "n1")
        node.stop_kubelet()  # so that nobody starts the agent again
        try:
            stop_agent(node, container)
            carriers = as_the_original_left_it(node)
            assert carriers, "pods of the deployment run on the node"
            eventually(lambda: not announced_by(cluster, "n1"), what="the node to announce nothing")
        finally:
            node.start_kubelet(cluster.plane)
        with route_changes(cluster, SERVICE) as changes, requests(cluster, SERVICE, PORT) as made:
            taken_over = "the node to announce what it took over"  # once the kubelet restarts the agent, at its leisure
            eventually(lambda: announced_by(cluster, "n1"), what=taken_over, patience=RESTART_PATIENCE)
            eventually(lambda: SERVICE not in boot_routes(node), what="the original's route to go")
            assert cluster.fetch(SERVICE, PORT, source=node)
        assert made and not [request for request in made if request.problem and not request.was_moved(changes)]
        assert "flock_netpol" not in node.place.run("nft", "list", "tables")
        assert set(carriers) <= {entry["container_id"] for entry in entries(node)}
        eventually(lambda: SERVICE in status(cluster, "n1")["announced"], what="its status to say so")


def announced_by(cluster: Cluster, node: str) -> bool:
    address = next(a for a in cluster.network.node(node).addresses if ":" in a)
    hops = cluster.network.host("r1").run(["ip", "-6", "route", "show", SERVICE])
    return f"via {address} " in hops


def agent_container(cluster: Cluster, node: str) -> str:
    path = "jsonpath={.status.containerStatuses[?(@.name=='agent')].containerID}"
    named = cluster.plane.kubectl("get", "pod", "--namespace", NAMESPACE, agent_pod(cluster, node), "-o", path)
    return named.removeprefix("containerd://")


def stop_agent(node: Node, container: str) -> None:
    def ctr(*argv: str) -> str:
        return node.place.run("ctr", "--address", CONTAINERD, "--namespace", "k8s.io", "tasks", *argv)

    ctr("kill", "--signal", "SIGKILL", container)
    eventually(lambda: f"{container} " not in ctr("ls") or "STOPPED" in ctr("ls"), what="the agent to end")


def entries(node: Node) -> list[dict[str, Any]]:
    stored: list[dict[str, Any]] = json.loads(node.path(STATE).read_text())["allocations"]
    return stored


def as_the_original_left_it(node: Node) -> list[str]:
    """Routes, rules and file as the original has them; returns the containers that carry the address."""
    content = json.loads(node.path(STATE).read_text())
    carriers = [entry for entry in content["allocations"] if SERVICE in entry.get("anycast", ())]
    ip = lambda *argv: node.place.run("ip", *argv)  # noqa: E731
    for entry in content["allocations"]:
        for family, address in (("-6", entry.get("ip6")), ("-4", entry.get("ip4"))):
            if address:
                ip(family, "route", "add", address, "dev", entry["host_interface"], "proto", "boot", "metric", "2048")
    hops = [x for e in carriers for x in ("nexthop", "via", e["ip6"], "dev", e["host_interface"], "onlink")]
    ip("-6", "route", "add", SERVICE, "proto", "boot", *hops)
    ip("nexthop", "flush", "proto", "134")  # which takes the routes along
    for entry in content["allocations"]:
        for family, address in (("-6", entry.get("ip6")), ("-4", entry.get("ip4"))):
            if address:
                ip(family, "route", "del", address, "proto", "133")
    node.place.run("nft", "add table inet flock_netpol")
    content["allocations"] = [{k: e[k] for k in KEYS if k in e} for e in content["allocations"]]
    del content["journal"]
    node.path(STATE).write_text(json.dumps(content, indent=2))
    return [entry["container_id"] for entry in carriers]


def boot_routes(node: Node) -> str:
    return node.place.run("ip", "-6", "route", "show", "proto", "boot")
