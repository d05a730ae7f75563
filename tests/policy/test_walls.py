"""What no pod may send, whatever its policies say and whether anti-spoofing is on or off."""

import contextlib
import socket
from collections.abc import Iterator

import pytest
from arriving import PATIENCE, connected, received
from frames import (
    DESTINATION_OPTIONS,
    FRAGMENT,
    HOP_BY_HOP,
    ICMP,
    ICMPV6,
    IPV4,
    IPV6,
    OSPF,
    UDP,
    fragments,
    ipv4,
    ipv6,
    link_local,
    options,
    packet,
    redirect,
    redirect4,
    router_advertisement,
    send_frame,
    udp,
)
from playground import FAMILIES, OUTSIDE4, OUTSIDE6, Playground, compiled, interface, subject

from flock.core.policy.render import Ruleset
from flock.edge.nft import observe
from thoroughness import some

NODE = {"6": "2001:db8:ff::1", "4": "198.51.100.1"}
LOCAL = "127.0.0.1"


@pytest.fixture(params=[True, False], ids=["antispoofing on", "antispoofing off"])
def walled(ground: Playground, request: pytest.FixtureRequest) -> Iterator[Playground]:
    """Two pods, the first of them as trusting a node as can be: only rules stand between them."""
    ground.ruleset = Ruleset(ground.numbers, antispoofing=request.param)
    ground.load(compiled([subject(1), subject(2)], []))
    for switch in ("ipv6/conf/{}/accept_ra=2", "ipv6/conf/{}/accept_redirects=1", "ipv4/conf/{}/route_localnet=1"):
        ground.node.execute("sysctl", "-qw", f"net/{switch.format(interface(1))}")
    yield ground


def walled_off(ground: Playground) -> int:
    return ground.do(lambda nft: nft.ask(observe.dropped)).walled


def learned(ground: Playground) -> str:
    """Routes and addresses that the node has from router advertisements."""
    routes = ground.node.execute("ip", "-6", "route", "show", "proto", "ra")
    return routes + ground.node.execute("ip", "-6", "addr", "show", "dynamic")


ADVERTISEMENT = router_advertisement(source=link_local(1))
CUT_SHORT = "its type in the second fragment"
DISGUISES = {
    "plain": [(ICMPV6, ADVERTISEMENT)],
    "behind hop-by-hop options": [(HOP_BY_HOP, options(ICMPV6, ADVERTISEMENT))],
    "behind destination options": [(DESTINATION_OPTIONS, options(ICMPV6, ADVERTISEMENT))],
    "behind both": [(HOP_BY_HOP, options(DESTINATION_OPTIONS, options(ICMPV6, ADVERTISEMENT)))],
    "in one fragment": [(FRAGMENT, part) for part in fragments(ICMPV6, ADVERTISEMENT, size=1000)],
    "in fragments": [(FRAGMENT, part) for part in fragments(ICMPV6, ADVERTISEMENT, size=8)],
    CUT_SHORT: [(FRAGMENT, part) for part in fragments(DESTINATION_OPTIONS, options(ICMPV6, ADVERTISEMENT), size=8)],
}


@pytest.mark.parametrize("disguise", some(DISGUISES))
def test_a_router_advertisement_from_a_pod_is_dropped_and_counted(walled: Playground, disguise: str) -> None:
    for protocol, payload in DISGUISES[disguise]:
        send_frame(walled, 1, IPV6, ipv6(link_local(1), "ff02::1", protocol, payload))
    assert learned(walled) == ""
    assert walled_off(walled) == (disguise != CUT_SHORT), "a first fragment without its type the kernel drops itself"


def test_redirects_from_a_pod_are_dropped_and_counted(walled: Playground) -> None:
    message = redirect(source=link_local(1), to="fe80::1", target=link_local(1), destination=OUTSIDE6)
    send_frame(walled, 1, IPV6, ipv6(link_local(1), "fe80::1", ICMPV6, message))
    assert walled_off(walled) == 1
    about = ipv4(NODE["4"], OUTSIDE4, UDP, udp(NODE["4"], OUTSIDE4, 80))
    message4 = redirect4(gateway=walled.at(1, "4"), about=about)
    for destination in (NODE["4"], OUTSIDE4, walled.at(2, "4")):
        send_frame(walled, 1, IPV4, ipv4(walled.at(1, "4"), destination, ICMP, message4))
    assert walled_off(walled) == 4


def test_other_errors_of_a_pod_pass(walled: Playground) -> None:
    assert walled.pings(1, NODE["4"]) and walled.pings(1, NODE["6"])
    assert walled_off(walled) == 0


def test_the_nodes_loopback_is_out_of_a_pods_reach(walled: Playground) -> None:
    """As the plugin `portmap` leaves the link of a pod with a host port."""
    server = walled.keep(walled.node.socket("4"))
    server.bind(("0.0.0.0", 9465))
    own = walled.at(1, "4")
    for source, to in ((own, LOCAL), (own, "127.1.2.3"), ("127.0.0.1", NODE["4"]), ("127.0.0.9", "127.0.0.1")):
        send_frame(walled, 1, IPV4, ipv4(source, to, UDP, udp(source, to, 9465)))
        assert not received(server), f"{source} > {to}"
    assert walled_off(walled) + spoofed(walled) == 4
    send_frame(walled, 1, IPV4, ipv4(own, NODE["4"], UDP, udp(own, NODE["4"], 9465)))
    assert received(server), "the node itself is reached"


def spoofed(ground: Playground) -> int:
    return ground.do(lambda nft: nft.ask(observe.dropped)).spoofed


def test_nothing_reaches_a_pod_from_the_nodes_loopback(walled: Playground) -> None:
    with walled.pods[1].inside():
        seen = walled.keep(socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(IPV4)))
    seen.settimeout(0.2)
    with walled.node.socket("4") as client:
        client.bind((LOCAL, 0))
        with contextlib.suppress(PermissionError):  # how the kernel tells that rules forbid it
            client.sendto(b"x", (walled.at(1, "4"), 80))
    with pytest.raises(TimeoutError):
        seen.recv(100)
    with walled.node.socket("4") as client:
        client.sendto(b"x", (walled.at(1, "4"), 80))
    seen.settimeout(PATIENCE)
    assert seen.recv(100), "the node itself does"


@pytest.mark.parametrize("source", ["::ffff:192.0.2.1", "::ffff:127.0.0.1"])
def test_mapped_addresses_are_no_sources(walled: Playground, source: str) -> None:
    send_frame(walled, 1, IPV6, ipv6(source, walled.at(2, "6"), UDP, udp(source, walled.at(2, "6"), 80)))
    assert walled_off(walled) + spoofed(walled) == 1


# --- routing protocols --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("port", [3784, 3785, 4784])
def test_bfd_of_the_node_does_not_hear_pods(walled: Playground, family: str, port: int) -> None:
    node = walled.keep(walled.node.socket(family))
    node.bind(("::" if family == "6" else "0.0.0.0", port))
    own, to = walled.at(1, family), NODE[family]
    segment = udp(own, to, port)
    send_frame(walled, 1, *packet(own, to, UDP, segment))
    assert not received(node)
    if family == "6":
        for protocol, payload in [
            (HOP_BY_HOP, options(UDP, segment)),
            *((FRAGMENT, part) for part in fragments(UDP, segment, size=8)),
        ]:
            send_frame(walled, 1, IPV6, ipv6(own, to, protocol, payload))
        assert not received(node), "neither behind extension headers nor in fragments"
    assert walled_off(walled) == (3 if family == "6" else 1)
    outside = walled.place(0).socket(family)
    with outside:
        outside.sendto(b"x", (to, port))
    assert received(node), "routers are heard"


@pytest.mark.parametrize("family", FAMILIES)
def test_bgp_of_the_node_does_not_answer_pods(walled: Playground, family: str) -> None:
    for port, answers in ((179, False), (8179, True)):
        with walled.node.inside():
            node = walled.keep(socket.socket(socket.AF_INET6 if family == "6" else socket.AF_INET))
        node.bind(("::" if family == "6" else "0.0.0.0", port))
        node.listen()
        for who in (1, 0):
            with walled.place(who).socket(family, socket.SOCK_STREAM) as client:
                assert connected(client, (NODE[family], port)) is (answers or who == 0), f"{who} at port {port}"


@pytest.mark.parametrize("family", FAMILIES)
def test_ospf_of_the_node_does_not_hear_pods(walled: Playground, family: str) -> None:
    with walled.node.inside():
        kind = socket.AF_INET6 if family == "6" else socket.AF_INET
        node = walled.keep(socket.socket(kind, socket.SOCK_RAW, OSPF))
    node.settimeout(0.2)
    own, to = walled.at(1, family), NODE[family]
    send_frame(walled, 1, *packet(own, to, OSPF, b"hello" * 4))
    with pytest.raises(TimeoutError):
        node.recv(100)
    assert walled_off(walled) == 1
    with walled.place(0).socket(family, socket.SOCK_RAW, OSPF) as router:
        router.sendto(b"hello" * 4, (to, 0))
    node.settimeout(PATIENCE)
    assert node.recv(100), "routers are heard"


@pytest.mark.parametrize("family", FAMILIES)
def test_pods_speak_bgp_and_bfd_with_whom_they_like_but_the_node(walled: Playground, family: str) -> None:
    for to in (0, 2):
        assert walled.connects(1, to, family, 179)
        assert walled.reaches(1, to, family, 3784) and walled.reaches(1, to, family, 4784)


def test_what_is_in_the_kernel_is_what_is_expected(walled: Playground) -> None:
    state = compiled([subject(1), subject(2)], [])
    assert walled.do(lambda nft: nft.ask(observe.observe)) == walled.ruleset.expected(state)
