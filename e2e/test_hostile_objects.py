"""Objects that a tenant is free to write, and that every node's agent gets to read.

The tenant may make pods and policies in a namespace of its own, and nothing else.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, addresses
from control_plane import ControlPlane
from deployment import is_well
from places import eventually
from watching import Server, Watcher, watched_server
from workloads import PORT, deployment

from flock.core import kinds

TENANT, EVIL = "tenant", "evil"
LEVELS = 5_000
PODS = f"/api/v1/namespaces/{EVIL}/pods"
POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{EVIL}/networkpolicies"
CLOSED = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "closed", "namespace": "default"},
    "spec": {"podSelector": {"matchLabels": {"app": "victim"}}, "policyTypes": ["Ingress"]},
}

pytestmark = pytest.mark.timeout(400)


def test_later_policies_are_enforced_on_every_node_beside_objects_nested_deeply(cluster: Cluster) -> None:
    with cluster.running(deployment("victim", replicas=4)) as pods, tenant(cluster.plane) as kubeconfig:
        create_nested(cluster.plane, kubeconfig)
        assert {pod["spec"]["nodeName"] for pod in pods} == set(cluster.nodes)
        open_to_all = [addresses(pod)[0] for pod in pods]
        for address in open_to_all:
            eventually(lambda a=address: not cluster.refuses(a, PORT), what=f"{address} to answer")
        cluster.plane.apply(CLOSED)
        try:
            for address in open_to_all:
                eventually(lambda a=address: cluster.refuses(a, PORT), what=f"{address} to be closed")
            for node in cluster.nodes:
                eventually(lambda n=node: is_well(cluster, n), what=f"{node} to be well")
        finally:
            cluster.plane.kubectl("delete", "networkpolicy", "closed")


@pytest.fixture
def server() -> Iterator[Server]:
    with watched_server() as server:
        yield server


def test_objects_nested_deeply_are_listed_and_watched_like_others(server: Server, tmp_path: Path) -> None:
    with tenant(server) as kubeconfig:
        with Watcher(server, state_dir=tmp_path) as before:
            eventually(lambda: before.cache.complete, what="the first listing")
            create_nested(server, kubeconfig)
            knows_them(before)
        with Watcher(server, state_dir=tmp_path) as after:
            knows_them(after)


def knows_them(watcher: Watcher) -> None:
    policies = watcher.cache.table(kinds.POLICIES)
    eventually(lambda: (EVIL, "nested") in policies and "nested" in watcher.pods, what="the nested objects")
    eventually(lambda: (EVIL, "later") in policies and "later" in watcher.pods, what="what came after them")
    assert policies[EVIL, "nested"]["spec"]["policyTypes"] == ["Ingress"] and not watcher.problems


# --- the tenant ---


@contextmanager
def tenant(plane: ControlPlane) -> Iterator[Path]:
    """Somebody with a namespace; its kubeconfig."""
    plane.kubectl("create", "namespace", EVIL)
    what = "--resource=pods,networkpolicies.networking.k8s.io"
    plane.kubectl("create", "role", TENANT, "--verb=create", what, f"--namespace={EVIL}")
    plane.kubectl("create", "rolebinding", TENANT, f"--role={TENANT}", f"--user={TENANT}", f"--namespace={EVIL}")
    if plane.place.attempt(*plane.kubectl_command("get", "sa", "default", f"--namespace={EVIL}")).returncode:
        plane.kubectl("create", "serviceaccount", "default", f"--namespace={EVIL}")
    try:
        yield plane.kubeconfig_for(TENANT)
    finally:
        plane.kubectl("delete", "namespace", EVIL, "--wait=false")


def create_nested(plane: ControlPlane, kubeconfig: Path) -> None:
    """A policy and a pod with LEVELS levels in their managedFields, and another of each after them."""
    for name, levels in (("nested", LEVELS), ("later", 0)):
        create(plane, kubeconfig, POLICIES, policy(name), levels)
        create(plane, kubeconfig, PODS, pod(name), levels)
    stored = plane.kubectl("get", "--raw", f"{POLICIES}/nested")
    assert stored.count('{"f:a":') >= LEVELS, "the API server is expected to keep it; else this shows nothing"


def create(plane: ControlPlane, kubeconfig: Path, path: str, obj: dict[str, Any], levels: int) -> None:
    if levels:
        managed = {"manager": TENANT, "operation": "Update", "apiVersion": obj["apiVersion"]}
        managed |= {"time": "2030-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": "@"}
        obj["metadata"]["managedFields"] = [managed]
    text = json.dumps(obj).replace('"@"', '{"f:a":' * levels + "{}" + "}" * levels)
    plane.place.run(plane.bin / "kubectl", f"--kubeconfig={kubeconfig}", "create", "--raw", path, "-f", "-", stdin=text)


def policy(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": EVIL},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }


def pod(name: str) -> dict[str, Any]:
    """On a node that agents see; nobody need run it."""
    container = {"name": "main", "image": "nobody/runs-it:1", "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": EVIL},
        "spec": {"nodeName": "n1", "containers": [container], "automountServiceAccountToken": False},
    }
