"""Fragments are judged one by one, before the node puts them together: nobody adds a part to another's datagram."""

import pytest
from arriving import received
from frames import (
    DESTINATION_OPTIONS,
    FRAGMENT,
    HOP_BY_HOP,
    IPV6,
    UDP,
    fragments,
    in_fragments,
    ipv6,
    options,
    send_frame,
    udp,
)
from playground import FAMILIES, Playground, compiled, subject

from flock.core.policy.render import Ruleset
from flock.edge.nft import observe

FIRST, TAIL = b"first part of 24 bytes..", b"genuine tail...." * 2
FORGED = bytes(byte for at in range(30, -2, -2) for byte in TAIL[at : at + 2])  # other bytes with the same checksum
SIZE = 32  # the UDP header and the first part
NODE = {"6": "2001:db8:ff::1", "4": "198.51.100.1"}
STATE = compiled([subject(1), subject(2), subject(3)], [])


def spoofed(ground: Playground) -> int:
    return ground.do(lambda nft: nft.ask(observe.dropped)).spoofed


def parts(source: str, to: str, *, tail: bytes = TAIL, ident: int = 77) -> list[tuple[int, bytes]]:
    return in_fragments(source, to, udp(source, to, 80, FIRST + tail), size=SIZE, ident=ident)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("to", [0, 3])
def test_a_pod_adds_no_part_to_a_datagram_of_another(ground: Playground, family: str, to: int) -> None:
    """Pod 1 sends a second fragment in the name of pod 2, which then sends its first."""
    ground.load(STATE)
    server, victim, target = ground.udp(to, family, 80), ground.at(2, family), ground.at(to, family)
    first, tail = parts(victim, target)
    _, forged = parts(victim, target, tail=FORGED)
    send_frame(ground, 1, *forged)
    send_frame(ground, 2, *first)
    assert not received(server, FIRST + FORGED)
    assert spoofed(ground) == 1
    send_frame(ground, 2, *tail)
    assert received(server, FIRST + TAIL), "its own arrives whole"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pod_spoils_no_datagram_of_another(ground: Playground, family: str) -> None:
    """Where two fragments each say that they are the last, the kernel drops what it has."""
    ground.load(STATE)
    server, victim, target = ground.udp(3, family, 80), ground.at(2, family), ground.at(3, family)
    first, tail = parts(victim, target)
    _, shorter = parts(victim, target, tail=FORGED[:16])
    for who, part in ((1, shorter), (2, first), (2, tail)):
        send_frame(ground, who, *part)
    assert received(server, FIRST + TAIL)


DISGUISES = {
    "hop-by-hop options": (HOP_BY_HOP, lambda part: options(FRAGMENT, part)),
    "destination options": (DESTINATION_OPTIONS, lambda part: options(FRAGMENT, part)),
    "both": (HOP_BY_HOP, lambda part: options(DESTINATION_OPTIONS, options(FRAGMENT, part))),
}


@pytest.mark.parametrize("disguise", DISGUISES)
def test_nor_does_a_fragment_behind_other_headers(ground: Playground, disguise: str) -> None:
    ground.load(STATE)
    server, victim, target = ground.udp(3, "6", 80), ground.at(2, "6"), ground.at(3, "6")
    protocol, behind = DISGUISES[disguise]
    whole = udp(victim, target, 80, FIRST + FORGED)
    forged = fragments(UDP, whole, size=SIZE)[1]
    send_frame(ground, 1, IPV6, ipv6(victim, target, protocol, behind(forged)))
    send_frame(ground, 2, *parts(victim, target)[0])
    assert not received(server, FIRST + FORGED)
    assert spoofed(ground) == 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("antispoofing", [True, False])
def test_fragments_of_its_own_arrive_in_any_order(ground: Playground, family: str, antispoofing: bool) -> None:
    ground.ruleset = Ruleset(ground.numbers, antispoofing=antispoofing)
    ground.load(STATE)
    server, source, target = ground.udp(3, family, 80), ground.at(1, family), ground.at(3, family)
    for ident, order in ((1, (0, 1)), (2, (1, 0))):
        sent = parts(source, target, ident=ident)
        for at in order:
            send_frame(ground, 1, *sent[at])
        assert received(server, FIRST + TAIL)
    assert spoofed(ground) == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_large_datagrams_pass_between_pods_node_and_others(ground: Playground, family: str) -> None:
    ground.load(STATE)
    for source, to in ((1, 3), (1, 0), (0, 1)):
        server, client = ground.udp(to, family, 80), ground.udp(source, family)
        client.sendto(b"x" * 60_000, (ground.at(to, family), 80))
        assert received(server, b"x" * 60_000)
        server.close()


def test_the_chain_of_an_earlier_version_is_replaced_without_a_moment_between(ground: Playground) -> None:
    """It had another priority, which no chain can change."""
    earlier = "type filter hook prerouting priority raw; policy accept;"
    script = f'table inet flock {{ chain antispoof {{ {earlier} iifname "flock*" drop; }}; }}'
    ground.node.execute("nft", "-f", "-", input=script)
    existing = ground.do(lambda nft: nft.ask(observe.existing))
    script = ground.ruleset.full(STATE, existing)
    assert "delete table" not in script
    ground.do(lambda nft: nft.run(script))
    assert ground.do(lambda nft: nft.ask(observe.observe)) == ground.ruleset.expected(STATE)
    assert ground.reaches(1, 3, "6")
