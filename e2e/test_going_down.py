"""Nodes that go down: routers hear of it while somebody can still tell them, from the pods that are deployed.

What a node's host shows, and in which order, is what `systemctl reboot` of systemd 252 was seen to do with services as
they are on a node: containers are no services of systemd's, they run on and are ended last.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster
from deployment import NAMESPACE, status
from node import Node
from places import Failed, eventually
from workloads import PORT, deployment

SERVICE = "2001:db8:53::90"
NOLOGIN = "System is going down. Unprivileged users are not permitted to log in anymore."
REPLICAS = 4

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def service(cluster: Cluster) -> Iterator[None]:
    annotations = {"flock.fritzlab.net/anycast": SERVICE}
    with cluster.running(deployment("anywhere", replicas=REPLICAS, annotations=annotations)):
        eventually(lambda: ways(cluster, SERVICE) == set(cluster.nodes), what="both nodes to announce")
        yield


def ways(cluster: Cluster, destination: str) -> set[str]:
    """The nodes to which the first router would send."""
    hops = cluster.network.host("r1").run(["ip", "-6", "route", "show", destination])
    addresses = {name: next(a for a in cluster.network.node(name).addresses if ":" in a) for name in cluster.nodes}
    return {name for name, address in addresses.items() if f"via {address} " in hops}


def aggregate(cluster: Cluster, node: str) -> str:
    config = next(c for c in cluster.network.node_configs if c["metadata"]["name"] == node)
    prefix: str = config["spec"]["cidr6"][0]
    return prefix


def test_a_reboot_withdraws_anycast_first_and_the_nodes_prefix_at_the_end(cluster: Cluster, service: None) -> None:
    node = cluster.nodes["n2"]
    since = sessions_since(cluster, "n2")
    try:
        node.stop_kubelet()
        node.unit("kubelet").unlink()
        node.unit("systemd-logind").unlink()
        node.write(Path("/run/nologin"), NOLOGIN)
        node.unit("systemd-user-sessions").unlink()
        eventually(lambda: ways(cluster, SERVICE) == {"n1"}, what="the node that goes down to withdraw")
        assert ways(cluster, aggregate(cluster, "n2")) == {"n2"}
        assert sessions_since(cluster, "n2") == since
        assert cluster.fetch(SERVICE, PORT)
        node.stop_containerd()
        for name in ("containerd", "dbus"):
            node.unit(name).unlink()
        end(node, "flock-agent", "bird")
        eventually(lambda: ways(cluster, aggregate(cluster, "n2")) == set(), what="its prefix to be withdrawn")
    finally:
        boot(cluster, node)


def test_a_kubelet_that_shuts_its_node_down_is_heard_and_its_bird_leaves_for_good(
    cluster: Cluster, service: None
) -> None:
    """The kubelet here is too old to do it: what a later one writes, and does to the pods, is done in its place."""
    node = cluster.nodes["n2"]
    node.stop_kubelet()
    try:
        say_shutting_down(cluster, "n2")
        eventually(lambda: ways(cluster, SERVICE) == {"n1"}, what="the node that goes down to withdraw")
        assert ways(cluster, aggregate(cluster, "n2")) == {"n2"}
    finally:
        node.start_kubelet(cluster.plane)
    eventually(lambda: ways(cluster, SERVICE) == {"n1", "n2"}, what="a node that stays to announce again")
    node.stop_kubelet()
    say_shutting_down(cluster, "n2")
    eventually(lambda: node.path(Path("/run/flock/bird/going-down")).exists(), what="BIRD's pod to be told")
    (bird,) = (p for p in cluster.pods("app.kubernetes.io/component=bird", namespace=NAMESPACE) if on(p, "n2"))
    script = bird["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    command = ("nsenter", f"--target={process(node, 'bird')}", "--mount", "--net", "--", *script)
    node.place.run(*command)
    assert sessions_since(cluster, "n2"), "the hook alone ends nothing"
    end(node, "bird")
    try:
        eventually(lambda: ways(cluster, aggregate(cluster, "n2")) == set(), what="its prefix to be withdrawn")
    finally:
        boot(cluster, node)


def boot(cluster: Cluster, node: Node) -> None:
    """As it was: services up, pods made anew where they ended."""
    node.path(Path("/run/nologin")).unlink(missing_ok=True)
    for name in ("dbus", "systemd-logind", "containerd", "kubelet", "systemd-user-sessions"):
        if not node.unit(name).is_symlink():
            node.unit(name).symlink_to("00000000000000000000000000000000")
    if not node.place.running("containerd"):
        node.start_containerd()
    if not node.place.running("kubelet"):
        node.start_kubelet(cluster.plane)
    cluster.wait_for_nodes()
    eventually(lambda: ways(cluster, aggregate(cluster, node.name)) == {node.name}, what="the node back", patience=120)


def say_shutting_down(cluster: Cluster, name: str) -> None:
    """What a kubelet's graceful node shutdown writes into its Node's status, read again if others write there, too."""
    path = f"/api/v1/nodes/{name}"

    def said() -> bool:
        node: dict[str, Any] = json.loads(cluster.plane.kubectl("get", "--raw", path))
        for condition in node["status"]["conditions"]:
            if condition["type"] == "Ready":
                condition |= {"status": "False", "reason": "KubeletNotReady", "message": "node is shutting down"}
        cluster.plane.kubectl("replace", "--raw", f"{path}/status", "-f", "-", stdin=json.dumps(node))
        return True

    eventually(said, what="the status of the node to be taken")


def sessions_since(cluster: Cluster, node: str) -> dict[str, str]:
    """When the agent's BIRD says that its sessions came up."""
    sessions = status(cluster, node)["sessions"]
    return {session["peer"]: session["since"] for session in sessions if session["up"]}


def on(pod: dict[str, Any], node: str) -> bool:
    return bool(pod["spec"]["nodeName"] == node)


def processes(node: Node) -> dict[int, str]:
    """Of all that runs on the node, by the number it has there."""
    listed = node.place.run("ps", "-e", "-o", "pid=,comm=").splitlines()
    return {int(pid): comm for pid, comm in (line.split(None, 1) for line in listed)}


def process(node: Node, name: str) -> int:
    found = [pid for pid, comm in processes(node).items() if comm == name]
    if len(found) != 1:
        raise Failed(f"{node.name}: {len(found)} processes called {name}")
    return found[0]


def end(node: Node, *names: str) -> None:
    """SIGTERM, as systemd sends it to what is left when all services have ended."""
    node.place.run("kill", "-TERM", *(str(process(node, name)) for name in names))
