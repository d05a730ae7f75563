"""A namespace that changes its policies all the time: its own pods wait for them, and nobody else does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import Node

EDITS = 150


def policy(namespace: str, port: int) -> dict[str, Any]:
    spec = {"podSelector": {}, "ingress": [{"ports": [{"port": port}]}]}
    metadata = {"name": "edited", "namespace": namespace}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path) as node:
        for name in ("busy", "calm"):
            node.write(f"namespace-{name}", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        node.start()
        yield node


def add(node: Node, namespace: str, name: str) -> None:
    node.write(f"pod-{name}", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}})
    node.namespace(name)
    node.cni("ADD", name, args=f"K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}", wait=30)


def assert_allowed(node: Node, port: int) -> None:
    rules = node.execute("nft", "list", "table", "inet", "flock").stdout
    assert f"tcp dport {{ {port} }} accept" in rules or f"tcp dport {port} accept" in rules


def test_a_pod_comes_up_with_the_last_of_its_namespaces_policies(node: Node) -> None:
    """Whether or not it was the namespace's turn: no packet passes by a version from before the ADD."""
    add(node, "busy", "first")
    for turn in range(3):
        for edit in range(1, EDITS + 1):
            node.write("edited", policy("busy", turn * EDITS + edit))
        add(node, "busy", f"pod{turn}")
        assert_allowed(node, (turn + 1) * EDITS)
        node.write("edited-too", policy("calm", 9000 + turn))
        add(node, "calm", f"calm{turn}")
        assert_allowed(node, 9000 + turn)
