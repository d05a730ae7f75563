"""flock taken off the cluster as docs/install.md says: gone from nodes without pods; others say why not, and serve."""

import json
from pathlib import Path

import pytest
from cluster import Cluster, addresses
from deployment import MANIFESTS, NAMESPACE, overlay
from node import CNI_CONFIGURATION, CNI_PROGRAMS, Node
from places import Failed, eventually
from workloads import PORT, deployment

NETWORKD = Path("/etc/systemd/network/00-flock.network")
UNINSTALL = MANIFESTS / "uninstall.yaml"
LEAVING = "flock.fritzlab.net/uninstall="
REFUSAL = "2 pods of flock are on this host"
PATIENCE = 240.0  # this kubelet takes a minute to let go of a pod, and waits longer and longer between attempts

pytestmark = pytest.mark.timeout(580)


def test_nodes_without_pods_are_rid_of_it_and_others_say_why_not(cluster: Cluster) -> None:
    kubectl = cluster.plane.kubectl
    kubectl("apply", "-f", UNINSTALL)
    with cluster.running(deployment("stays", replicas=2, node="n2")) as pods:
        kubectl("drain", "n1", "--ignore-daemonsets", "--delete-emptydir-data", patience=PATIENCE)
        kubectl("label", "node", "n1", LEAVING)
        eventually(lambda: is_done(cluster, "n1"), what="n1 to be done", patience=PATIENCE)
        assert prefixes(cluster, "n1") == set(), "routers were told and keep nothing, graceful restart or not"
        assert remains(cluster.nodes["n1"]) == []
        kubectl("label", "node", "n2", LEAVING)
        eventually(lambda: REFUSAL in said(cluster, "n2"), what="n2 to say why not", patience=PATIENCE)
        assert not is_done(cluster, "n2")
        for pod in pods:
            assert cluster.fetch(addresses(pod)[0], PORT) == pod["metadata"]["name"]
    eventually(lambda: is_done(cluster, "n2"), what="n2 to be done once its pods are gone", patience=PATIENCE)
    assert prefixes(cluster, "n2") == set()
    kubectl("delete", "-k", overlay(cluster), "--wait=false")
    kubectl("delete", "-f", UNINSTALL, "--wait=false")
    eventually(lambda: not cluster.pods(namespace=NAMESPACE), what="flock's own pods to go", patience=PATIENCE)
    for node in cluster.nodes.values():
        assert remains(node) == []


def uninstaller(cluster: Cluster, node: str) -> str:
    pods = cluster.pods("app.kubernetes.io/name=flock-uninstall", namespace="kube-system")
    found = [pod["metadata"]["name"] for pod in pods if pod["spec"]["nodeName"] == node]
    if not found:
        raise Failed(f"no uninstaller on {node} yet")
    return str(found[0])


def is_done(cluster: Cluster, node: str) -> bool:
    pod = cluster.plane.get("pod", uninstaller(cluster, node), "--namespace=kube-system")
    return all(status["ready"] for status in pod["status"].get("containerStatuses", [{"ready": False}]))


def said(cluster: Cluster, node: str) -> str:
    where = (uninstaller(cluster, node), "--namespace=kube-system", "--container=uninstall")
    return cluster.plane.kubectl("logs", *where)


def prefixes(cluster: Cluster, node: str) -> set[str]:
    """What the first router knows by the node."""
    found = set()
    for family in ("-6", "-4"):
        routes = json.loads(cluster.network.host("r1").run(["ip", "-json", family, "route"]) or "[]")
        hops = {
            route["dst"]: {route.get("gateway"), *(h.get("gateway") for h in route.get("nexthops", ()))}
            for route in routes
        }
        found |= {dst for dst, vias in hops.items() if vias & set(cluster.network.node(node).addresses)}
    return found


def remains(node: Node) -> list[str]:
    """What the node has of flock, in its kernel and on its disk."""
    run = node.place.run
    routes = [
        line for family in ("-6", "-4") for line in run("ip", family, "route", "show", "table", "all").splitlines()
    ]
    found = [line for line in routes if any(f"proto {name}" in line for name in ("bird", "133", "134", "flock"))]
    found += run("ip", "nexthop", "show", "proto", "134").splitlines()
    found += [line for line in run("nft", "list", "tables").splitlines() if "flock" in line]
    for directory in (Path("/run/flock"), Path("/etc/flock/bird")):  # kubelets make empty ones anew for BIRD's pods
        found += [str(path) for path in node.path(directory).rglob("*") if not path.is_dir()]
    files = (CNI_CONFIGURATION / "01-flock.conflist", CNI_PROGRAMS / "flock", NETWORKD)
    return found + [str(path) for path in files if node.path(path).exists()]
