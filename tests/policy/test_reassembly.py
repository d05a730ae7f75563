"""Parts of datagrams wait for each other in a memory that is one for the node.  No pod fills it for the others."""

import json
import socket
import struct
import time
from pathlib import Path

import pytest
from arriving import received
from frames import FRAGMENT, IPV4, IPV6, UDP, ipv4, ipv6, mac_bytes
from playground import FAMILIES, HOST_MAC, Playground, compiled, interface, mac, subject

from flock.core.policy.render import Ruleset
from flock.edge.kernel.node import make_room_for_fragments
from flock.edge.nft import observe

SYSCTL = Path("/proc/sys/net")
SOL_PACKET, PACKET_VNET_HDR = 263, 15
OFFLOADED = struct.pack("<BBHHHH", 1, 5, 34, 1400, 34, 6)  # whoever sends it on is to cut it: no link minds its length
STATE = compiled([subject(1), subject(2), subject(3)], [])
COUNTED = f"""
add table netdev counted
add counter netdev counted parts
add chain netdev counted in {{ type filter hook ingress device {interface(1)} priority -500; }}
add rule netdev counted in ip frag-off & 0x1fff != 0 counter name parts
add rule netdev counted in exthdr frag exists counter name parts
"""
# Each kind would take more than all of the memory: how many, of how many bytes, and whether a link is to mind them.
PACKETS, BYTES = 1000, 2 << 20  # of fragments that a pod may send in a second, and at once before that: of bytes twice
FLOODS = {"many": (40_000, 1400, True), "long": (2_000, 60_000, False)}


@pytest.fixture(params=[True, False], ids=["antispoofing on", "antispoofing off"])
def roomy(ground: Playground, request: pytest.FixtureRequest) -> Playground:
    """As the agent prepares a node."""
    ground.ruleset = Ruleset(ground.numbers, antispoofing=request.param)
    ground.load(STATE)
    with ground.node.inside():
        make_room_for_fragments(SYSCTL)
    ground.node.execute("nft", COUNTED)
    return ground


def flood(ground: Playground, family: str, kind: str) -> tuple[int, float]:
    """Pod 1 sends second fragments of datagrams without a first.  Returns how many its node took from the link, and how
    many seconds it took: a busy machine has no room for some, and time to let more of them by."""
    before, started = taken(ground), time.monotonic()
    count, size, minded = FLOODS[kind]
    source, to, head = ground.at(1, family), ground.at(3, family), mac_bytes(HOST_MAC) + mac_bytes(mac(1))
    with ground.pods[1].inside():
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with raw:
        raw.setsockopt(SOL_PACKET, PACKET_VNET_HDR, int(not minded))
        raw.bind(("eth0", 0))
        for number in range(count):
            if family == "6":
                extension = struct.pack(">BBHI", UDP, 0, 8 | 1, number)
                packet = struct.pack(">H", IPV6) + ipv6(source, to, FRAGMENT, extension + bytes(size))
            else:
                packet = struct.pack(">H", IPV4) + ipv4(
                    source, to, UDP, bytes(size), ident=number, fragment=1 << 13 | 1
                )
            raw.send((b"" if minded else OFFLOADED) + head + packet)
    return taken(ground) - before, time.monotonic() - started


def taken(ground: Playground) -> int:
    """Fragments of pod 1, and nothing else that its kernel sends by itself."""
    listed = json.loads(ground.node.execute("nft", "-j", "list", "counters", "table", "netdev", "counted"))
    return next(int(entry["counter"]["packets"]) for entry in listed["nftables"] if "counter" in entry)


def arrived(ground: Playground, source: int, to: int, family: str, *, size: int, count: int) -> int:
    """How many of so many datagrams, one after the other."""
    with ground.udp(to, family, 80) as server, ground.udp(source, family) as client:
        found = 0
        for _ in range(count):
            client.sendto(bytes(size), (ground.at(to, family), 80))
            found += received(server, bytes(size))
    return found


@pytest.mark.parametrize(("family", "kind"), [("6", "many"), ("4", "many"), ("4", "long")])
def test_parts_without_the_rest_leave_room_for_datagrams_of_others(roomy: Playground, family: str, kind: str) -> None:
    sent, seconds = flood(roomy, family, kind)
    assert arrived(roomy, 2, 3, family, size=4000, count=10) == 10
    assert arrived(roomy, 0, 2, family, size=4000, count=10) == 10
    allowed = min(PACKETS * (1 + seconds), BYTES / FLOODS[kind][1] * (2 + seconds))
    assert sent - allowed <= roomy.do(lambda nft: nft.ask(observe.dropped)).overfull <= sent
    assert roomy.do(lambda nft: nft.ask(observe.observe)) == roomy.ruleset.expected(STATE)


@pytest.mark.parametrize("family", FAMILIES)
def test_large_datagrams_of_a_pod_pass_many_in_a_row(roomy: Playground, family: str) -> None:
    """Of 41 parts each."""
    assert arrived(roomy, 1, 3, family, size=60_000, count=20) == 20
    assert roomy.do(lambda nft: nft.ask(observe.dropped)).overfull == 0
