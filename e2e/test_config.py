"""Where a node's configuration comes from on a cluster: templates, the Node's podCIDRs, its own NodeConfig."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, addresses
from deployment import NAMESPACE, agent_pod
from places import eventually
from workloads import PORT, deployment

FLOCKCTL = Path(sys.executable).with_name("flockctl")
NODE = "n1"
TEMPLATE = {
    "apiVersion": "flock.fritzlab.net/v1alpha1",
    "kind": "NodeConfigTemplate",
    "metadata": {"name": "rack"},
    "spec": {"nodeSelector": {"matchLabels": {"rack": "1"}}, "template": {"mtu": 1400}},
}

pytestmark = pytest.mark.timeout(300)


def test_templates_and_the_nodes_pod_cidrs_fill_what_a_node_config_leaves_open(cluster: Cluster) -> None:
    with templated(cluster), without_cidrs(cluster):
        eventually(lambda: "spec.mtu" in from_agent(cluster)["origins"], what="the agent to take up the template")
        eventually(lambda: origin(cluster) == "Node spec.podCIDRs", what="the agent to take up the Node's CIDRs")
        told = from_agent(cluster)
        assert told["origins"]["spec.mtu"] == "NodeConfigTemplate rack"
        assert told == from_workstation(cluster) == from_another_nodes_pod(cluster)
        cidrs = [ip_network(cidr) for cidr in cluster.plane.get("node", NODE)["spec"]["podCIDRs"]]
        with cluster.running(deployment("roomy", replicas=1, node=NODE)) as (pod,):
            for address in addresses(pod):
                assert any(ip_address(address) in cidr for cidr in cidrs if cidr.version == ip_address(address).version)
                eventually(lambda a=address: not cluster.refuses(a, PORT), what="the client to reach it over BGP")
            mtu = ("exec", pod["metadata"]["name"], "--", "cat", "/sys/class/net/eth0/mtu")
            assert cluster.plane.kubectl(*mtu) == "1400\n"
    eventually(lambda: origin(cluster) == f"NodeConfig {NODE}", what="the agent to be back with the NodeConfig")


@contextmanager
def templated(cluster: Cluster) -> Iterator[None]:
    """A template that selects one node alone."""
    cluster.plane.apply(TEMPLATE)
    cluster.plane.kubectl("label", "node", NODE, "rack=1")
    try:
        yield
    finally:
        cluster.plane.kubectl("label", "node", NODE, "rack-")
        cluster.plane.kubectl("delete", "nodeconfigtemplate", "rack")


@contextmanager
def without_cidrs(cluster: Cluster) -> Iterator[None]:
    spec = cluster.plane.get("nodeconfig", NODE)["spec"]
    change(cluster, {"cidr6": None, "cidr4": None})
    try:
        yield
    finally:
        change(cluster, {"cidr6": spec["cidr6"], "cidr4": spec["cidr4"]})


def change(cluster: Cluster, spec: dict[str, Any]) -> None:
    cluster.plane.kubectl("patch", "nodeconfig", NODE, "--type=merge", "--patch", json.dumps({"spec": spec}))


def origin(cluster: Cluster) -> str:
    return str(from_agent(cluster)["origins"].get("spec.cidr6"))


# --- three places to ask for the same ---


def from_agent(cluster: Cluster) -> dict[str, Any]:
    return _decoded(cluster.nodes[NODE].place.run(FLOCKCTL, "config", NODE, "--output=json"))


def from_workstation(cluster: Cluster) -> dict[str, Any]:
    plane = cluster.plane
    return _decoded(plane.place.run(FLOCKCTL, "config", NODE, f"--kubeconfig={plane.kubeconfig}", "--output=json"))


def from_another_nodes_pod(cluster: Cluster) -> dict[str, Any]:
    pod = (agent_pod(cluster, "n2"), f"--namespace={NAMESPACE}", "--container=agent")
    return _decoded(cluster.plane.kubectl("exec", *pod, "--", "flockctl", "config", NODE, "--output=json"))


def _decoded(said: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(said)
    return answer
