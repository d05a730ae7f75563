"""The reference plugin `portmap`, chained after flock, forwards a port of the node to a pod, for both families."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from containerd import REFERENCE_PLUGINS, Containerd
from runtime_agent import CIDR4, CIDR6, EXECUTABLE, Agent
from runtime_node import Neighbour, Node

HOST_PORT = 8081
LOCAL_PORT = 8082
POD_PORT = 8080  # where the image's program answers with the pod's name

PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}

_ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float((sys.argv[3:] or [5])[0])) as connection:
    print(connection.makefile().read())
"""


@pytest.fixture
def neighbour(node: Node) -> Iterator[Neighbour]:
    with Neighbour(node, prefixes=(CIDR6, CIDR4)) as neighbour:
        yield neighbour


@pytest.fixture
def runtime(node: Node, neighbour: Neighbour, agent: Agent, archive: Path) -> Containerd:
    executables = [EXECUTABLE, REFERENCE_PLUGINS / "portmap"]
    return Containerd(node, archive=archive, executables=executables, conflist=agent.conflist(PORTMAP))


def who_answers(neighbour: Neighbour, address: str, port: int) -> str:
    return neighbour.run(sys.executable, "-c", _ASK, address, str(port)).strip()


# One who serves the node alone, as a kubelet and an agent do.
_SERVE = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    while True:
        server.accept()[0].sendall(b"the node")
"""


def nat_rules(node: Node) -> str:
    return node.run("iptables-save", "-t", "nat") + node.run("ip6tables-save", "-t", "nat")


def test_a_host_port_leads_to_its_pod_until_the_pod_stops(
    node: Node, neighbour: Neighbour, agent: Agent, runtime: Containerd
) -> None:
    runtime.run_pod("bystander")
    web = runtime.run_pod("web", host_ports={HOST_PORT: POD_PORT})

    for address in web.addresses:
        assert who_answers(neighbour, address, POD_PORT) == "web", "the pod itself is reachable"
    for address in Neighbour.NODE_ADDRESSES:
        assert who_answers(neighbour, address, HOST_PORT) == "web"
    assert web.id in nat_rules(node)

    web.stop()
    assert web.id not in nat_rules(node)
    for address in Neighbour.NODE_ADDRESSES:
        with pytest.raises(AssertionError, match="ConnectionRefusedError"):
            who_answers(neighbour, address, HOST_PORT)
    assert list(agent.allocations()) == ["bystander"]


def test_a_pod_with_a_host_port_does_not_reach_what_listens_on_the_nodes_loopback(
    node: Node, neighbour: Neighbour, agent: Agent, runtime: Containerd
) -> None:
    web = runtime.run_pod("web", host_ports={HOST_PORT: POD_PORT})
    node.start("local", sys.executable, "-c", _SERVE, str(LOCAL_PORT))

    def asked(port: int, *, netns_of: int | None = None) -> str:
        patience = "1" if netns_of else "5"  # who is not to be answered answers at once, if at all
        ask = (_ASK, "127.0.0.1", str(port), patience)
        return node.attempt(sys.executable, "-c", *ask, netns_of=netns_of).stdout.strip()

    node.wait_for("the local server", lambda: asked(LOCAL_PORT) == "the node")
    assert asked(HOST_PORT) == "web", "the node asks for the host port at 127.0.0.1"

    for command in (
        "ip address del 127.0.0.1/8 dev lo",
        "ip route add 127.0.0.0/8 via 169.254.1.1 dev eth0 onlink",
        "sysctl -qw net.ipv4.conf.eth0.route_localnet=1",
    ):
        node.run(*command.split(), netns_of=web.pid)
    assert asked(LOCAL_PORT, netns_of=web.pid) == ""
    assert asked(HOST_PORT, netns_of=web.pid) == "", "nor by way of the host port"
    assert asked(HOST_PORT) == "web", "which still serves the node"
