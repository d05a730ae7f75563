"""The API server away for a minute, with pods coming and going meanwhile."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, addresses, at_once
from deployment import problems
from node import CONTAINERD, Node
from places import Failed, eventually
from traffic import held_connections
from workloads import ECHO_PORT, PORT, deployment

STATE = Path("/var/lib/flock/allocations.json")
AWAY = 60.0  # seconds without an API server
REPLICAS = 6
ANYCAST = "2001:db8:53::81"
CLOSED = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "closed", "namespace": "default"},
    "spec": {"podSelector": {"matchLabels": {"app": "churn"}}, "policyTypes": ["Ingress"]},
}

pytestmark = pytest.mark.timeout(400)


def test_pods_keep_their_network_and_get_a_new_one_while_the_api_server_is_away(cluster: Cluster) -> None:
    """A policy is deleted in that time, and etcd forgets that it ever was: it is missed when the server is back."""
    annotations = {"flock.fritzlab.net/anycast": ANYCAST}
    churn = deployment("churn", replicas=REPLICAS, annotations=annotations)
    with cluster.running(deployment("steady", replicas=REPLICAS)) as steady, cluster.running(churn) as churning:
        cluster.plane.apply(CLOSED)
        closed = addresses(churning[0])[0]
        eventually(lambda: cluster.refuses(closed, PORT), what="the policy to be in force")
        held = [address for pod in steady for address in addresses(pod)]
        with held_connections(cluster, held, ECHO_PORT) as fates, away(cluster):
            cluster.plane.erase("networkpolicies/default/closed")
            cluster.plane.compact()
            at_once(*(partial(renew_sandbox, cluster, pod) for pod in churning))
            for node in cluster.nodes:
                eventually(lambda n=node: "not reachable" in problems(cluster, n), what="the agent to tell")
        assert len(fates) == len(held) and not any(fates.values()), fates
        for node in cluster.nodes:
            eventually(lambda n=node: not problems(cluster, n), what="the agent to have caught up")
        for app in ("steady", "churn"):
            eventually(
                lambda a=app: all_answer(cluster, a), what=f"all pods of {app} to answer where they are said to be"
            )
        cluster.plane.kubectl("scale", "deployment", "churn", f"--replicas={REPLICAS + 2}")
        cluster.ready_pods(REPLICAS + 2, "app=churn")


def all_answer(cluster: Cluster, app: str) -> bool:
    """At the addresses that the API server tells, which kubelets bring up to date in their own time."""
    pods = cluster.ready_pods(REPLICAS, f"app={app}")
    return all(cluster.fetch(addresses(pod)[0], PORT) == pod["metadata"]["name"] for pod in pods)


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
