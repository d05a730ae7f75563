"""A pod sends only from its own addresses: packets, ARP and neighbour advertisements, decided before conntrack."""

import socket
import struct
from ipaddress import ip_address

import msgspec
import pytest
from arriving import received
from frames import ARP, IPV6, link_local, mac_bytes, neighbour_message, send_frame, source_mac_option
from playground import FAMILIES, Playground, addresses, compiled, interface, mac, subject

from flock.core.policy.render import Ruleset
from flock.edge.nft import observe

FOREIGN = {"6": "2001:db8:1::77", "4": "192.0.2.77"}


def dropped(ground: Playground) -> observe.Counted:
    return ground.do(lambda nft: nft.ask(observe.dropped))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_packet_from_a_foreign_address_is_dropped_and_counted(ground: Playground, family: str) -> None:
    ground.load(compiled([subject(1), subject(2)], []))
    server = ground.udp(0, family, 80)
    for source, passes in ((ground.at(1, family), True), (FOREIGN[family], False), (ground.at(2, family), False)):
        with ground.place(1).socket(family) as client:
            client.setsockopt(*_transparent(family), 1)
            client.bind((source, 4001))
            client.sendto(b"x", (ground.at(0, family), 80))
        assert received(server) is passes
    assert dropped(ground).spoofed == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_a_forged_answer_is_dropped_before_connection_tracking_sees_it(ground: Playground, family: str) -> None:
    ground.load(compiled([subject(1), subject(2)], []))
    client, server = ground.udp(0, family, 4002), ground.udp(2, family, 80)
    client.sendto(b"x", (ground.at(2, family), 80))
    assert received(server)

    def unanswered() -> bool:
        (flow,) = [x for x in ground.node.execute("cat", "/proc/net/nf_conntrack").splitlines() if "sport=4002" in x]
        return "UNREPLIED" in flow

    assert unanswered()
    with ground.place(1).socket(family) as forger:
        forger.setsockopt(*_transparent(family), 1)
        forger.bind((ground.at(2, family), 80))
        forger.sendto(b"y", (ground.at(0, family), 4002))
    assert not received(client, b"y")
    assert unanswered()
    server.sendto(b"y", (ground.at(0, family), 4002))
    assert received(client, b"y")
    assert not unanswered(), "a true answer does show"


def _transparent(family: str) -> tuple[int, int]:
    return (socket.IPPROTO_IPV6, 75) if family == "6" else (socket.IPPROTO_IP, 19)


def test_every_address_of_a_pod_is_its_own(ground: Playground) -> None:
    ground.load(compiled([msgspec.structs.replace(subject(1), addresses=addresses(1, 9))], []))
    server = ground.udp(0, "6", 80)
    with ground.place(1).socket("6") as client:
        client.setsockopt(*_transparent("6"), 1)
        client.bind((ground.at(9, "6"), 4001))
        client.sendto(b"x", (ground.at(0, "6"), 80))
    assert received(server)


def test_an_interface_of_ours_that_nobody_described_sends_nothing(ground: Playground) -> None:
    ground.load(compiled([subject(1)], []))
    assert ground.reaches(1, 0, "6")
    assert not ground.reaches(2, 0, "6")
    assert not ground.reaches(2, 0, "4")


def test_arp_is_answered_for_own_addresses_and_dropped_for_foreign_ones(ground: Playground) -> None:
    ground.load(compiled([subject(1)], []))
    ground.node.execute("ip", "neigh", "del", ground.at(1, "4"), "dev", interface(1))
    assert ground.reaches(0, 1, "4"), "the node resolved the pod's address"
    before = dropped(ground).spoofed_arp
    for sender, passes in ((ground.at(1, "4"), True), ("0.0.0.0", True), (ground.at(2, "4"), False)):
        packet = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1) + mac_bytes(mac(1)) + ip_address(sender).packed
        send_frame(ground, 1, ARP, packet + bytes(6) + ip_address("198.51.100.1").packed)
        now = dropped(ground).spoofed_arp
        assert now == before + (not passes)
        before = now


def test_neighbours_are_discovered_and_foreign_addresses_not_advertised(ground: Playground) -> None:
    ground.load(compiled([subject(1, ingress="", egress="")], []))
    ground.node.execute("ip", "neigh", "del", ground.at(1, "6"), "dev", interface(1))
    ping = ground.node.execute("ping", "-c1", "-W2", "-n", ground.at(1, "6"), check=False)
    assert "1 received" in ping, "the node resolved the address of a pod that is isolated in both directions"
    before = dropped(ground).spoofed
    own, local = ground.at(1, "6"), link_local(1)
    for source, target, passes in (
        (own, own, True),
        (own, local, True),
        (local, own, True),
        (own, ground.at(2, "6"), False),
        (own, "fe80::1", False),
        (own, link_local(2), False),
        (link_local(2), own, False),
        ("fe80::1", own, False),
    ):
        send_frame(ground, 1, IPV6, neighbour_message(136, source=source, target=target, to="fe80::1"))
        now = dropped(ground).spoofed
        assert now == before + (not passes), f"{target} advertised from {source}"
        before = now


def test_duplicate_address_detection_passes_and_nothing_else_from_the_unspecified_address(ground: Playground) -> None:
    ground.load(compiled([subject(1)], []))
    before = dropped(ground).spoofed
    send_frame(ground, 1, IPV6, neighbour_message(135, source="::", target="fe80::5", to="ff02::1:ff00:5"))
    assert dropped(ground).spoofed == before
    send_frame(ground, 1, IPV6, neighbour_message(136, source="::", target=ground.at(1, "6"), to="ff02::1"))
    send_frame(ground, 1, IPV6, neighbour_message(128, source="::", target="::", to=ground.at(0, "6")))
    assert dropped(ground).spoofed == before + 2


def test_invented_link_local_sources_do_not_reach_the_nodes_neighbour_table(ground: Playground) -> None:
    """The table is one for the whole machine and all of its namespaces, and small."""
    ground.load(compiled([subject(1)], []))

    def entries(prefix: str) -> int:
        listed = ground.node.execute("ip", "-6", "neigh", "show", "dev", interface(1), "nud", "all").splitlines()
        return sum(line.startswith(prefix) for line in listed)

    option = source_mac_option(mac(1))
    before = dropped(ground).spoofed
    for number in range(50):
        for kind in (135, 133):  # solicitations of neighbours and of routers
            source, to = f"fe80::bad:{number:x}", "fe80::1" if kind == 135 else "ff02::2"
            frame = neighbour_message(kind, source=source, target="fe80::1", to=to, option=option)
            send_frame(ground, 1, IPV6, frame)
    assert entries("fe80::bad:") == 0
    assert dropped(ground).spoofed >= before + 100
    solicitation = neighbour_message(135, source=link_local(1), target="fe80::1", to="fe80::1", option=option)
    send_frame(ground, 1, IPV6, solicitation)
    assert entries(link_local(1)) == 1, "the pod's own is heard"


def test_a_pod_of_the_original_keeps_whatever_link_local_address_it_has(ground: Playground) -> None:
    ground.load(compiled([msgspec.structs.replace(subject(1), link_local=None)], []))
    before = dropped(ground).spoofed
    for source, target in (("fe80::5", ground.at(1, "6")), (ground.at(1, "6"), "fe80::5")):
        send_frame(ground, 1, IPV6, neighbour_message(136, source=source, target=target, to="fe80::1"))
    assert dropped(ground).spoofed == before
    send_frame(ground, 1, IPV6, neighbour_message(136, source="fe80::1", target="fe80::5", to="ff02::1"))
    assert dropped(ground).spoofed == before + 1


def test_a_pod_and_its_node_speak_by_link_local_addresses(ground: Playground) -> None:
    ground.load(compiled([subject(1, ingress="", egress="")], []))
    assert ground.pings(1, "fe80::1%eth0")


def test_antispoofing_can_be_switched_off(ground: Playground) -> None:
    ground.ruleset = Ruleset(ground.numbers, antispoofing=False)
    state = compiled([subject(1)], [])
    ground.load(state)
    assert ground.reaches(2, 0, "6"), "an interface that nobody described"
    assert ground.do(lambda nft: nft.ask(observe.observe)) == ground.ruleset.expected(state)
