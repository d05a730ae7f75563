"""podman's containers on a host without Kubernetes: named by the conflist, under policies, at addresses they want."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pause_image
import pytest
from podman import Podman, podman4
from runtime_agent import ANYCAST, CIDR4, CIDR6, EXECUTABLE, Agent
from runtime_node import Neighbour, Node

DENY_ALL = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "deny-all", "namespace": "default"},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
}
SERVING = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "dns1", "annotations": {"flock.fritzlab.net/anycast": ANYCAST}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


@pytest.fixture
def neighbour(node: Node) -> Iterator[Neighbour]:
    with Neighbour(node, prefixes=(CIDR6, CIDR4, f"{ANYCAST}/128")) as neighbour:
        yield neighbour


@pytest.fixture
def podman(node: Node, neighbour: Neighbour, tmp_path: Path) -> Podman:
    root = podman4()
    if root is None:
        pytest.skip("Debian's podman 4 cannot be had here")
    networks, plugins = node.directory / "net.d", node.directory / "bin"
    networks.mkdir()
    plugins.mkdir()
    shutil.copy(EXECUTABLE, plugins)
    Agent(node, "--cni-conf-dir", networks, "--cni-bin-dir", plugins)
    node.wait_for("the conflist", (networks / "01-flock.conflist").exists)
    return Podman(node, root, program=pause_image.compile_pause(tmp_path), plugins=plugins, networks=networks)


def apply(node: Node, name: str, manifest: object) -> None:
    (node.directory / "manifests" / f".{name}").write_text(json.dumps(manifest))
    (node.directory / "manifests" / f".{name}").rename(node.directory / "manifests" / f"{name}.json")


def answers(neighbour: Neighbour, address: str) -> bool:
    """A single question, of which no answer is no failure of the test."""
    asked = neighbour.run("sh", "-c", f"ping -c1 -W2 -n {address} >/dev/null && echo yes || echo no")
    return asked.strip() == "yes"


def test_manifests_and_policies_reach_a_container(node: Node, neighbour: Neighbour, podman: Podman) -> None:
    apply(node, "dns1", SERVING)
    podman.start("dns1")
    node.wait_for("the anycast address", lambda: answers(neighbour, ANYCAST))
    apply(node, "deny", DENY_ALL)
    node.wait_for("the policy", lambda: not answers(neighbour, ANYCAST))
    podman.remove("dns1")
    assert ANYCAST not in node.run("ip", "-6", "route")


def test_a_container_gets_the_addresses_and_the_mac_it_asks_for(neighbour: Neighbour, podman: Podman) -> None:
    podman.start("web", "--ip", "192.0.2.77", "--ip6", "2001:db8:1::77", "--mac-address", "92:d0:c6:0a:29:33")
    shown = podman.settings("web")
    assert (shown["IPAddress"], shown["GlobalIPv6Address"]) == ("192.0.2.77", "2001:db8:1::77")
    assert shown["MacAddress"] == "92:d0:c6:0a:29:33"
    assert answers(neighbour, "192.0.2.77") and answers(neighbour, "2001:db8:1::77")
    refused = podman.attempt_start("beyond", "--ip", "203.0.113.9")
    assert refused.returncode and "CNI_ARGS IP: 203.0.113.9 is outside" in refused.stderr  # a single one comes so


def test_a_network_that_podman_prunes_is_there_again(node: Node, podman: Podman) -> None:
    podman.run("network", "prune", "-f")
    node.wait_for("the network to be back", lambda: "flock" in podman.run("network", "ls"))
    podman.start("after")
