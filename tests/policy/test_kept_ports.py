"""Whoever translates ports of the node, for a tenant's host port or Service, its routing protocols stay its own."""

import contextlib
import socket
from collections.abc import Iterator

import pytest
from arriving import Socket, is_idle, received
from playground import FAMILIES, Playground, compiled, subject

from flock.core.policy.render import Ruleset

NODE = {"6": "2001:db8:ff::1", "4": "198.51.100.1"}
BFD = (3784, 3785, 4784)

# As the plugin `portmap` does for a host port, and kube-proxy for an address in `externalIPs`: from wherever it comes.
_TRANSLATED = """
add table inet others
add chain inet others in {{ type nat hook prerouting priority -100; }}
add chain inet others out {{ type nat hook output priority -100; }}
add rule inet others in ip daddr {node4} meta l4proto {{ tcp, udp }} dnat ip to {pod4}
add rule inet others in ip6 daddr {node6} meta l4proto {{ tcp, udp }} dnat ip6 to {pod6}
add rule inet others out ip daddr {router4} meta l4proto {{ tcp, udp }} dnat ip to {pod4}
add rule inet others out ip6 daddr {router6} meta l4proto {{ tcp, udp }} dnat ip6 to {pod6}
"""


@pytest.fixture(params=[True, False], ids=["antispoofing on", "antispoofing off"])
def taken(ground: Playground, request: pytest.FixtureRequest) -> Iterator[Playground]:
    """What is for the node, and what the node has for the router outside, is translated to the first pod."""
    addresses = {f"pod{f}": ground.at(1, f) for f in FAMILIES} | {f"router{f}": ground.at(0, f) for f in FAMILIES}
    ground.node.execute("nft", _TRANSLATED.format(**addresses, **{f"node{f}": NODE[f] for f in FAMILIES}))
    ground.ruleset = Ruleset(ground.numbers, antispoofing=request.param)
    ground.load(compiled([subject(1), subject(2)], []))
    yield ground


def at_node(ground: Playground, family: str, port: int, kind: int = socket.SOCK_DGRAM) -> Socket:
    """Who listens there."""
    server = ground.keep(ground.node.socket(family, kind))
    server.bind(("::" if family == "6" else "0.0.0.0", port))
    if kind == socket.SOCK_STREAM:
        server.listen()
    return server


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_router_sends_to_the_nodes_bfd_gets_there(taken: Playground, family: str) -> None:
    for port in BFD:
        pod, node = taken.udp(1, family, port), at_node(taken, family, port)
        taken.udp(0, family).sendto(b"x", (NODE[family], port))
        assert received(node), f"port {port}"
        assert is_idle(pod), f"port {port}"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_router_that_opens_a_session_finds_the_node(taken: Playground, family: str) -> None:
    node = at_node(taken, family, 179, socket.SOCK_STREAM)
    with taken.place(0).socket(family, socket.SOCK_STREAM) as router:
        router.connect((NODE[family], 179))
        assert node.accept()[0].getpeername()[0] == taken.at(0, family)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_the_node_has_for_a_router_gets_there(taken: Playground, family: str) -> None:
    for port in BFD:
        pod, router = taken.udp(1, family, port), taken.udp(0, family, port)
        with taken.node.socket(family) as node:
            node.sendto(b"x", (taken.at(0, family), port))
            assert received(router), f"port {port}"
        assert is_idle(pod), f"port {port}"
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(taken.place(who).socket(family, socket.SOCK_STREAM)) for who in (0, 1)]
        for server in servers:
            server.bind(("::" if family == "6" else "0.0.0.0", 179))
            server.listen()
        node = stack.enter_context(taken.node.socket(family, socket.SOCK_STREAM))
        node.connect((taken.at(0, family), 179))
        assert servers[0].accept()[0].getpeername()[0] == NODE[family]


@pytest.mark.parametrize("family", FAMILIES)
def test_other_ports_are_whose_they_were_made(taken: Playground, family: str) -> None:
    pod, node = taken.udp(1, family, 8080), at_node(taken, family, 8080)
    taken.udp(0, family).sendto(b"x", (NODE[family], 8080))
    assert received(pod) and is_idle(node)
    with taken.node.socket(family) as client:
        client.sendto(b"x", (taken.at(0, family), 8080))
    assert received(pod)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_service_with_such_a_port_at_an_address_of_its_own_is_translated(ground: Playground, family: str) -> None:
    """Pods may serve BGP; the address is nobody's but the Service's."""
    service = {"6": "2001:db8:99::1", "4": "203.0.113.99"}[family]
    kind = "ip6" if family == "6" else "ip"
    leads = f"{kind} daddr {service} meta l4proto {{ tcp, udp }} dnat {kind} to {ground.at(1, family)}"
    hook = "type nat hook prerouting priority -100;"
    made = f"add table inet others; add chain inet others in {{ {hook} }}; add rule inet others in {leads}"
    ground.node.execute("nft", made)
    ground.load(compiled([subject(1), subject(2)], []))
    pod = ground.udp(1, family, 3784)
    for who in (0, 2):
        ground.udp(who, family).sendto(b"x", (service, 3784))
        assert received(pod), f"from {who}"
