"""The packet that asks: the first of a TCP connection which a pod begins, or somebody begins with a pod.  Pure.

Of its header there is known what all such packets have in common: the pod's address is of the node's prefixes, the
other end's is not (unless that is a pod, too), ports are anything.  Of the host: the pod's link is called `flock…`, the
other one is an uplink.
"""

import struct
from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum
from ipaddress import ip_address

import msgspec

from flock.core.facts import Network
from flock.core.foreign.bits import Bits, anything, beginning, exactly, joined

POD_LINKS = b"flock"
NAME = 16
TCP, SYN, ECN_BITS = 6, 0x02, 0xC0  # a host may offer ECN with its first packet
NEW, UNTRACKED = 0x08, 0x40  # states as nft numbers them
NATED = 0x3F  # bits of a connection's status that none has at its first packet: expected, seen, assured, … nat
LOOPBACK = 1
# Of whom no rule speaks that does not speak of the world: well-known servers of names, in several parts of it.
FAR = {
    4: tuple(map(ip_address, ("1.1.1.1", "8.8.8.8", "193.0.14.129", "202.12.27.33"))),
    6: tuple(map(ip_address, ("2001:4860:4860::8888", "2606:4700:4700::1111", "2a05:d018::1", "2400:cb00::1"))),
}
UNICAST = 1


class Way(Enum):
    SENT = "sent"  # by a pod, to somebody beyond an uplink
    RECEIVED = "received"
    BETWEEN = "between"  # pods of this node


class Link(msgspec.Struct, frozen=True):
    """One that is no pod's.  Without a name: it is not known which."""

    name: str = ""
    index: int = 0


UNKNOWN = Link()


class Packet(msgspec.Struct, frozen=True, kw_only=True):
    way: Way
    version: int
    header: Bits
    transport: Bits
    names: tuple[Bits, Bits]  # of the interfaces it comes in and goes out by
    indexes: tuple[Bits, Bits]
    leaves: tuple[Bits, Bits]  # name and index of the latter, as routes have it before it does
    mark: Bits = exactly(bytes(4))
    tracked: bool = True

    @property
    def source(self) -> Bits:
        return self.header.part(*(12, 4) if self.version == 4 else (8, 16))

    @property
    def destination(self) -> Bits:
        return self.header.part(*(16, 4) if self.version == 4 else (24, 16))

    def at(self, hook: str) -> "Packet":
        """Before it is routed it goes nowhere yet."""
        if hook != "prerouting":
            return self
        names, indexes = (self.names[0], exactly(bytes(NAME))), (self.indexes[0], exactly(bytes(4)))
        return msgspec.structs.replace(self, names=names, indexes=indexes)


def far(asking: Packet) -> list[Packet]:
    """The same with some whom everybody would call far at the other end, if a pod is not."""
    if asking.way is Way.BETWEEN:
        return []
    size, offset = (4, 12) if asking.version == 4 else (16, 8)
    at = offset if asking.way is Way.RECEIVED else offset + size
    header = asking.header
    parts = header.part(0, at), header.part(at + size, header.size - at - size)
    return [
        msgspec.structs.replace(asking, header=joined([parts[0], exactly(address.packed), parts[1]]))
        for address in FAR[asking.version]
    ]


def packet(way: Way, network: Network, *, aggregates: Iterable[Network] = (), uplink: Link = UNKNOWN) -> Packet:
    """With a pod of that network at one end, or at both."""
    pod, outside = _pod(network), _outside(network, [*aggregates])
    source = outside if way is Way.RECEIVED else pod
    destination = outside if way is Way.SENT else pod
    mine, theirs = _pod_link(uplink), _uplink(uplink)
    inward = theirs if way is Way.RECEIVED else mine
    outward = theirs if way is Way.SENT else mine
    return Packet(
        way=way,
        version=network.version,
        header=_header4(source, destination) if network.version == 4 else _header6(source, destination),
        transport=_transport(),
        names=(inward[0], outward[0]),
        indexes=(inward[1], outward[1]),
        leaves=outward,
    )


def _pod(network: Network) -> Bits:
    size = network.max_prefixlen // 8
    known = int(network.netmask)
    return Bits(size, int(network.network_address), known, pods=(1 << 8 * size) - 1)


def _outside(network: Network, aggregates: Sequence[Network]) -> Bits:
    size = network.max_prefixlen // 8
    alike = {network, *(n for n in aggregates if n.version == network.version)}
    never = tuple(sorted((int(n.network_address), int(n.netmask)) for n in alike if n.prefixlen))
    return Bits(size, 0, 0, others=(1 << 8 * size) - 1, never=never)


def _pod_link(uplink: Link) -> tuple[Bits, Bits]:
    name, index = beginning(POD_LINKS, NAME), anything(4, _these(0, LOOPBACK, uplink.index))
    return msgspec.structs.replace(name, pods=name.all), msgspec.structs.replace(index, pods=index.all)


def _uplink(link: Link) -> tuple[Bits, Bits]:
    if link.name:
        name, index = exactly(link.name.encode().ljust(NAME, b"\0")), exactly(struct.pack("=I", link.index))
    else:
        pods, loopback = beginning(POD_LINKS, NAME), exactly(b"lo".ljust(NAME, b"\0"))
        name = anything(NAME, tuple((those.value, those.known) for those in (pods, loopback)))
        index = anything(4, _these(0, LOOPBACK))
    return msgspec.structs.replace(name, others=name.all), msgspec.structs.replace(index, others=index.all)


def _these(*indexes: int) -> tuple[tuple[int, int], ...]:
    """As `never`: none of them."""
    return tuple((int.from_bytes(struct.pack("=I", index)), 0xFFFFFFFF) for index in indexes)


def _header4(source: Bits, destination: Bits) -> Bits:
    whole = Bits(2, 0, 0xBFFF)  # no fragment; whether it may become one is open
    return joined(
        [exactly(b"\x45"), anything(5), whole, anything(1), exactly(bytes([TCP])), anything(2), source, destination]
    )


def _header6(source: Bits, destination: Bits) -> Bits:
    first = Bits(4, 6 << 28, 0xF << 28)
    return joined([first, anything(2), exactly(bytes([TCP])), anything(1), source, destination])


def _transport() -> Bits:
    flags = Bits(1, SYN, 0xFF & ~ECN_BITS)
    return joined([anything(8), exactly(bytes(4)), anything(1), flags, anything(6)])


# --- what a rule may load -------------------------------------------------------------------------------------------

NETWORK_HEADER, TRANSPORT_HEADER = 1, 2
FIB_OIF, FIB_OIFNAME, FIB_TYPE = 1, 2, 3
FIB_SADDR, FIB_DADDR, FIB_IIF, FIB_PRESENT = 1, 2, 8, 32
ETHER = struct.pack("=H", 1)


class Meta(IntEnum):
    """By the kernel's numbers; what is not here, nobody can know of a packet that is yet to come."""

    PROTOCOL, MARK, IIF, OIF, IIFNAME, OIFNAME, IIFTYPE, OIFTYPE = 1, 3, 4, 5, 6, 7, 8, 9
    SKUID, SKGID, NFPROTO, L4PROTO, PKTTYPE, CGROUP, SECPATH, IIFKIND, OIFKIND = 10, 11, 15, 16, 19, 23, 25, 26, 27


class Connection(IntEnum):
    STATE, DIRECTION, STATUS, L3PROTOCOL, PROTOCOL = 0, 1, 2, 7, 10


def payload(asking: Packet, base: int, offset: int, size: int) -> Bits:
    where = {NETWORK_HEADER: asking.header, TRANSPORT_HEADER: asking.transport}.get(base)
    return where.part(offset, size) if where is not None and offset + size <= where.size else anything(size)


def meta(asking: Packet, key: int) -> Bits | None:
    """None: such a packet has none, and no rule that asks for it holds."""
    match key:
        case Meta.SKUID | Meta.SKGID | Meta.CGROUP:  # of a socket on this host
            return None
        case Meta.PROTOCOL:
            return exactly(b"\x08\x00" if asking.version == 4 else b"\x86\xdd")
        case Meta.MARK:
            return asking.mark
        case Meta.IIF | Meta.OIF:
            return asking.indexes[key - Meta.IIF]
        case Meta.IIFNAME | Meta.OIFNAME:
            return asking.names[key - Meta.IIFNAME]
        case Meta.IIFTYPE | Meta.OIFTYPE:
            return exactly(ETHER) if _is_pods(asking, key - Meta.IIFTYPE) else anything(2)
        case Meta.NFPROTO:
            return exactly(_family(asking))
        case Meta.L4PROTO:
            return exactly(bytes([TCP]))
        case Meta.PKTTYPE | Meta.SECPATH:  # to this host's link; by no tunnel of IPsec
            return exactly(b"\0")
        case Meta.IIFKIND | Meta.OIFKIND:
            return exactly(b"veth".ljust(NAME, b"\0")) if _is_pods(asking, key - Meta.IIFKIND) else anything(NAME)
    return anything(4)


def connection(asking: Packet, key: int) -> Bits | None:
    """The same of what the kernel keeps of its connection.  Its mark is flock's, too: nobody knows it."""
    if key == Connection.STATE:
        return exactly(struct.pack("=I", NEW if asking.tracked else UNTRACKED))
    if not asking.tracked:
        return None
    match key:
        case Connection.DIRECTION:
            return exactly(b"\0")
        case Connection.STATUS:
            return Bits(4, 0, int.from_bytes(struct.pack("=I", NATED)))
        case Connection.L3PROTOCOL:
            return exactly(_family(asking))
        case Connection.PROTOCOL:
            return exactly(bytes([TCP]))
    return anything(4)


def route(asking: Packet, result: int, flags: int) -> Bits:
    """What the kernel's routes say of its addresses: both are somebody's, and the way back is the way it came."""
    if result == FIB_TYPE:
        return exactly(struct.pack("=I", UNICAST))
    if flags & FIB_PRESENT:
        return exactly(b"\1")
    if flags & FIB_SADDR and flags & FIB_IIF:
        return asking.indexes[0] if result == FIB_OIF else asking.names[0]
    if flags & (FIB_DADDR | FIB_IIF) == FIB_DADDR:
        return asking.leaves[1] if result == FIB_OIF else asking.leaves[0]
    size = 4 if result == FIB_OIF else NAME
    return anything(size, ((0, (1 << 8 * size) - 1),))


def _family(asking: Packet) -> bytes:
    return b"\x02" if asking.version == 4 else b"\x0a"


def _is_pods(asking: Packet, side: int) -> bool:
    """The interface it comes in by, 0, or goes out by, 1."""
    return asking.way is not (Way.SENT if side else Way.RECEIVED)
