"""ICMP errors belong to a connection and pass; from a pod, only about connections of its own."""

import errno
import socket
import struct
import time

import pytest
from arriving import Socket, received
from frames import ICMP, ICMPV6, UDP, checksum, icmpv6, packet, send_frame, udp, unreachable
from playground import FAMILIES, Playground, compiled, subject

from flock.edge.nft import observe

PORT = 4100


def refused(client: Socket) -> bool:
    """Was it told so?"""

    def told(seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED:
                return True
            time.sleep(0.005)
        return False

    return client.judge.arrives(told)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pod_forges_no_errors_about_connections_of_another(ground: Playground, family: str) -> None:
    """Pod 2 takes nothing from anybody; what it opened belongs to it and to whom it asked."""
    ground.load(compiled([subject(1), subject(2, ingress="")], []))
    server, client = ground.udp(0, family, 80), ground.udp(2, family, PORT)
    client.connect((ground.at(0, family), 80))
    client.send(b"x")
    assert received(server)
    source, to = ground.at(2, family), ground.at(0, family)
    about = packet(source, to, UDP, udp(source, to, 80, sport=PORT))[1]
    send_frame(ground, 1, *unreachable(sender=ground.at(1, family), to=source, about=about))
    assert not refused(client)
    ethertype, error = unreachable(sender=to, to=source, about=about)
    send_frame(ground, 0, ethertype, error)
    assert refused(client), "the one it asked may say so"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pod_says_that_a_port_of_its_own_is_unreachable(ground: Playground, family: str) -> None:
    ground.load(compiled([subject(1), subject(2, ingress="")], []))
    for asker in (0, 2):
        client = ground.udp(asker, family)
        client.connect((ground.at(1, family), 81))
        client.send(b"x")
        assert refused(client)


@pytest.mark.parametrize("family", FAMILIES)
def test_errors_about_nothing_its_node_has_seen_do_not_leave_it(ground: Playground, family: str) -> None:
    """They may be about a connection that another node has seen, of a pod that takes nothing from anybody."""
    ground.load(compiled([subject(1)], []))
    victim = ground.at(0, family)
    client = ground.udp(0, family, PORT)
    far = "2001:db8:77::1" if family == "6" else "203.0.113.1"
    client.connect((far, 80))  # which says nothing yet
    about = packet(victim, far, UDP, udp(victim, far, 80, sport=PORT))[1]
    send_frame(ground, 1, *unreachable(sender=ground.at(1, family), to=victim, about=about))
    assert not refused(client)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pod_forges_no_errors_about_connections_of_the_node(ground: Playground, family: str) -> None:
    ground.load(compiled([subject(1)], []))
    source, to = ("2001:db8:ff::1" if family == "6" else "198.51.100.1"), ground.at(0, family)
    server, client = ground.udp(0, family, 80), ground.keep(ground.node.socket(family))
    client.bind((source, PORT))
    client.connect((to, 80))
    client.send(b"x")
    assert received(server)
    about = packet(source, to, UDP, udp(source, to, 80, sport=PORT))[1]
    send_frame(ground, 1, *unreachable(sender=ground.at(1, family), to=source, about=about))
    assert not refused(client)
    send_frame(ground, 0, *unreachable(sender=to, to=source, about=about))
    assert refused(client), "the one it asked may say so"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pod_tells_the_node_that_a_port_of_its_own_is_unreachable(ground: Playground, family: str) -> None:
    ground.load(compiled([subject(1)], []))
    client = ground.keep(ground.node.socket(family))
    client.connect((ground.at(1, family), 81))
    client.send(b"x")
    assert refused(client)


def too_big(*, sender: str, to: str, about: str) -> tuple[int, bytes]:
    """(ethertype, packet): an answer to a ping that `to` never gave `about` needs to be smaller."""
    if ":" in to:
        answer = packet(to, about, ICMPV6, icmpv6(129, bytes(48), source=to, to=about))[1]
        return packet(sender, to, ICMPV6, icmpv6(2, struct.pack(">I", 1280) + answer, source=sender, to=to))
    message = (
        struct.pack(">BBHHH", 3, 4, 0, 0, 552) + packet(to, about, ICMP, struct.pack(">HH", 0, 0xFFFF) + bytes(44))[1]
    )
    return packet(sender, to, ICMP, message[:2] + checksum(message) + message[4:])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pod_makes_no_paths_of_the_node_narrow(ground: Playground, family: str) -> None:
    """The kernel believes an error about an answer of its own to a ping without looking for anything it belongs to."""
    ground.load(compiled([subject(1), subject(2)], []))
    node = "2001:db8:ff::1" if family == "6" else "198.51.100.1"
    for target in (0, 2):
        to = ground.at(target, family)
        send_frame(ground, 1, *too_big(sender=ground.at(1, family), to=node, about=to))
        assert "mtu" not in ground.node.execute("ip", "route", "get", to)
    assert ground.do(lambda nft: nft.ask(observe.dropped)).spoofed == 2
    to = ground.at(0, family)
    send_frame(ground, 0, *too_big(sender=to, to=node, about=to))
    assert "mtu" in ground.node.execute("ip", "route", "get", to), "routers may say so"
