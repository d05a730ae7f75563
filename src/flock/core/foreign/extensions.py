"""Matches that are iptables' own, for a packet: yes, no, it depends.  Pure, over what their modules keep in the kernel.

iptables-nft writes most of a rule in the kernel's form, but some matches as the modules of old: a name, a revision and
a struct, as the headers `linux/netfilter/xt_*.h` have it.  Those with which packet filters are commonly built are read
here.  Of others it is known at least that they speak of some packets (ports, hours, contents); the rest is a puzzle.
"""

import struct
from collections.abc import Callable

from flock.core.foreign.bits import Answer, all_of, opposite
from flock.core.foreign.packet import NATED, NEW, UNICAST, Packet

# It depends on how many came before; on who is at the other end; on what nobody here understands.
RATE, OTHERS, PUZZLE = "rate", "others", "puzzle"
RATES = frozenset({"limit", "hashlimit", "connlimit", "quota", "quota2", "rateest"})
ABOUT_SOME = frozenset(
    {
        "multiport", "udp", "udplite", "icmp", "icmp6", "sctp", "dccp", "esp", "ah", "string", "time", "ttl",
        "hl", "length", "mac", "tos", "dscp", "ecn", "helper", "connmark", "connlabel", "recent", "statistic",
        "connbytes", "devgroup", "tcpmss", "u32", "realm", "cpu", "frag", "rt", "hbh", "dst", "ipv6header",
        "mh", "eui64", "osf", "nfacct",
    }
)  # fmt: skip
OF_A_SOCKET = frozenset({"owner", "socket", "cgroup"})  # which what is forwarded has none of on this host

# conntrack, of its flags and of its states
STATE, STATUS, CALLED_STATE = 0x01, 0x40, 0x2000
UNTRACKED_BIT = 0x100
ADDRESSES_SIZE = 8 * 16 + 2 * 4 + 5 * 2
# physdev: in, bridged, is-in, is-out, out
PHYSDEV_OPERATIONS = 0x1F


def matches(name: str, revision: int, info: bytes, packet: Packet) -> Answer | str:
    """RATE, OTHERS, PUZZLE: it depends on that."""
    if name in RATES:
        return RATE
    if name in ABOUT_SOME:
        return None
    if name in OF_A_SOCKET:
        return False
    read = READERS.get(name)
    try:
        return PUZZLE if read is None else read(info, revision, packet)
    except (struct.error, IndexError):
        return PUZZLE


def _comment(_: bytes, __: int, ___: Packet) -> Answer:
    return True


def _conntrack(info: bytes, revision: int, packet: Packet) -> Answer | str:
    """Its flags, which of them are inverted, states and status: two bytes each from revision 2 on."""
    if revision < 2:
        return PUZZLE
    flags, inverted, states, status = struct.unpack_from("=4H", info, ADDRESSES_SIZE)
    answers: list[Answer] = []
    if flags & STATE:
        has = NEW if packet.tracked else UNTRACKED_BIT
        answers.append(bool(states & has) != bool(inverted & STATE))
    if flags & STATUS:
        answers.append(None if status & ~NATED else bool(inverted & STATUS))
    if flags & ~(STATE | STATUS | CALLED_STATE):
        answers.append(None)
    return all_of(answers)


def _state(info: bytes, _: int, packet: Packet) -> Answer:
    (states,) = struct.unpack_from("=I", info)
    return bool(states & (NEW if packet.tracked else UNTRACKED_BIT))


def _tcp(info: bytes, _: int, packet: Packet) -> Answer:
    """Ports from and to, of source and destination; an option; flags; which of these are inverted."""
    s0, s1, d0, d1, option, mask, wanted, inverted = struct.unpack_from("=4H4B", info)
    answers: list[Answer] = [_flags(packet, mask, wanted, inverse=bool(inverted & 0x04))]
    for (low, high), bit in (((s0, s1), 0x01), ((d0, d1), 0x02)):
        everything = (low, high) == (0, 0xFFFF)
        answers.append(not inverted & bit if everything else None)
    answers += [None] if option else []
    return all_of(answers)


def _flags(packet: Packet, mask: int, wanted: int, *, inverse: bool) -> Answer:
    byte = packet.transport.part(13, 1).masked(bytes([mask]), b"\0")
    answer = byte.equals(bytes([wanted]))
    return opposite(answer) if inverse else answer


def _mark(info: bytes, _: int, packet: Packet) -> Answer:
    answer = packet.mark.masked(info[4:8], bytes(4)).equals(info[:4])
    return opposite(answer) if info[8] else answer


def _addrtype(info: bytes, revision: int, _: Packet) -> Answer:
    """Neither end of what is forwarded is this host's: both are somebody's."""
    source, destination = struct.unpack_from("=2H", info)
    flags: int
    if revision:
        (flags,) = struct.unpack_from("=I", info, 4)
    else:
        flags = sum(bit for bit, inverse in zip((1, 2), struct.unpack_from("=2I", info, 4), strict=True) if inverse)
    answers = [
        bool(types & 1 << UNICAST) != bool(flags & bit) for types, bit in ((source, 1), (destination, 2)) if types
    ]
    return all_of(answers)


def _iprange(info: bytes, _: int, packet: Packet) -> Answer | str:
    size, flags = packet.source.size, info[64]
    answers: list[Answer] = []
    for address, at, bit in ((packet.source, 0, 0x01), (packet.destination, 32, 0x02)):
        if flags & bit:
            answer = address.within(info[at : at + size], info[at + 16 : at + 16 + size])
            if answer is None and address.pods:
                return None
            answers.append(opposite(answer) if flags & bit << 4 else answer)
    found = all_of(answers)
    return OTHERS if found is None else found


def _physdev(info: bytes, _: int, __: Packet) -> Answer:
    """What is routed came by no port of a bridge that anybody here could know of."""
    inverted, asked = info[64], info[65]
    return not asked & PHYSDEV_OPERATIONS & ~inverted


def _pkttype(info: bytes, _: int, __: Packet) -> Answer:
    kind, inverse = struct.unpack_from("=2I", info)
    return bool(kind == 0) != bool(inverse)


def _rpfilter(info: bytes, _: int, __: Packet) -> Answer:
    """Holds if the way back is the way it came, unless that is inverted."""
    return not info[0] & 0x08


def _policy(info: bytes, _: int, __: Packet) -> Answer | str:
    """IPsec: `none`, for an end, holds."""
    (flags,) = struct.unpack_from("=H", info, len(info) - 4)
    return True if flags & 0x04 else False if flags & 0x03 else PUZZLE


READERS: dict[str, Callable[[bytes, int, Packet], Answer | str]] = {
    "comment": _comment,
    "conntrack": _conntrack,
    "state": _state,
    "tcp": _tcp,
    "mark": _mark,
    "addrtype": _addrtype,
    "iprange": _iprange,
    "physdev": _physdev,
    "pkttype": _pkttype,
    "rpfilter": _rpfilter,
    "policy": _policy,
}
