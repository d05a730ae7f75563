"""containerd's `ctr run --cni`, which names no pod: its containers go by the id it passes."""

import json

from containerd import Containerd
from pause_image import ENTRYPOINT, IMAGE
from runtime_agent import ANYCAST, Agent
from runtime_node import Node

SERVING = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "k8s.io-web", "annotations": {"flock.fritzlab.net/anycast": ANYCAST}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


def ctr(node: Node, *argv: str) -> None:
    """Its directories for CNI are fixed."""
    node.run("ctr", "--address", node.directory / "containerd.sock", "--namespace", "k8s.io", *argv)


def test_a_manifest_reaches_a_container_by_namespace_and_id(node: Node, agent: Agent, runtime: Containerd) -> None:
    """Containerd's namespace `k8s.io` has the image; a container `web` of it is passed as `k8s.io-web`."""
    assert runtime
    node.run("rm", "-rf", "/opt/cni", "/etc/cni")  # the node's own copies
    node.run("mkdir", "/opt/cni", "/etc/cni")
    for place, directory in (("/opt/cni/bin", "cni"), ("/etc/cni/net.d", "net.d")):
        node.run("ln", "-s", node.directory / directory, place)
    (node.directory / "manifests" / "web.json").write_text(json.dumps(SERVING))
    how = ("--cni", "--snapshotter", "native", "--cgroup", f"{node.cgroup}/web", "-d")
    ctr(node, "run", *how, IMAGE, "web", f"/{ENTRYPOINT}")
    assert [*agent.allocations()] == ["k8s.io-web"]
    node.wait_for("its anycast address", lambda: ANYCAST in node.run("ip", "-6", "route"))
    node.run("ping", "-n", "-c", "1", "-W", "5", ANYCAST)
    ctr(node, "task", "kill", "--signal", "9", "web")
