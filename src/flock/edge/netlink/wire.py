"""Netlink framing: headers, attributes, and the numbers we need from the kernel's headers."""

import struct
from collections.abc import Iterator

# message types
NLMSG_ERROR, NLMSG_DONE = 2, 3
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
RTM_GETNSID, NETNSA_NSID, NETNSA_FD = 90, 1, 3

# header flags
NLM_F_REQUEST, NLM_F_ACK = 0x1, 0x4
NLM_F_DUMP_INTR = 0x10
NLM_F_ROOT_MATCH = 0x300  # NLM_F_DUMP
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE, NLM_F_APPEND = 0x100, 0x200, 0x400, 0x800
NLM_F_ACK_TLVS = 0x200
NLMSGERR_ATTR_MSG = 1
NLA_F_NESTED = 0x8000  # newer message types insist on it

# links
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_LINKINFO = 1, 3, 4, 5, 18
IFLA_IFALIAS, IFLA_AF_SPEC, IFLA_GROUP, IFLA_NET_NS_FD = 20, 26, 27, 28
IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS, IFLA_LINK_NETNSID = 29, 8, 37
IFLA_NUM_TX_QUEUES, IFLA_NUM_RX_QUEUES = 31, 32
IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 1, 2, 1
IFLA_INET_CONF, IFLA_INET6_CONF, IFLA_INET6_ADDR_GEN_MODE, ADDR_GEN_MODE_NONE = 1, 2, 8, 1
IPV4_DEVCONF_FORWARDING, IPV4_DEVCONF_PROXY_ARP = 1, 3
IPV4_DEVCONF_ACCEPT_REDIRECTS, IPV4_DEVCONF_SEND_REDIRECTS, IPV4_DEVCONF_ACCEPT_SOURCE_ROUTE = 4, 6, 9
# Counted from 1, as IPv4's are.
DEVCONF_FORWARDING, DEVCONF_ACCEPT_RA, DEVCONF_ACCEPT_REDIRECTS, DEVCONF_DISABLE_IPV6 = 1, 4, 5, 27
IFF_UP, IFF_LOOPBACK = 0x1, 0x8

# addresses
IFA_ADDRESS, IFA_LOCAL, IFA_FLAGS = 1, 2, 8
IFA_F_TEMPORARY, IFA_F_NODAD, IFA_F_DADFAILED, IFA_F_TENTATIVE, IFA_F_NOPREFIXROUTE = 0x01, 0x02, 0x08, 0x40, 0x200

# routes
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_TABLE, RTA_EXPIRES, RTA_NH_ID = 1, 4, 5, 6, 15, 23, 30
RTA_MULTIPATH, RTM_F_FIB_MATCH = 9, 0x2000
RT_TABLE_UNSPEC, RT_TABLE_MAIN, RT_TABLE_LOCAL, RTN_UNICAST, RTN_LOCAL, RTN_BLACKHOLE = 0, 254, 255, 1, 2, 6
RT_SCOPE_UNIVERSE, RT_SCOPE_LINK, RT_SCOPE_NOWHERE, RTNH_F_ONLINK = 0, 253, 255, 4
RTPROT_KERNEL, RTPROT_BOOT, RTPROT_STATIC = 2, 3, 4

# neighbours
NDA_DST, NDA_LLADDR, NDA_IFINDEX, NUD_INCOMPLETE, NUD_FAILED, NUD_PERMANENT = 1, 2, 8, 0x01, 0x20, 0x80

AF_UNSPEC, AF_INET, AF_INET6 = 0, 2, 10

_HEADER = struct.Struct("=IHHII")
_ATTR = struct.Struct("=HH")
_U32 = struct.Struct("=I")
_pack_attr = _ATTR.pack
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")  # up to four bytes, by what is over
HEADER_SIZE = _HEADER.size

Attrs = dict[int, bytes]


def u32(value: int) -> bytes:
    return _U32.pack(value)


def as_u32(data: bytes) -> int:
    return int(_U32.unpack_from(data)[0])


def attr(kind: int, payload: bytes) -> bytes:
    """The innermost of all loops: an ADD has two hundred."""
    size = 4 + len(payload)
    return _pack_attr(size, kind) + payload + _PADDING[size & 3]


def nested(kind: int, *children: bytes) -> bytes:
    return attr(kind, b"".join(children))


def text(kind: int, value: str) -> bytes:
    return attr(kind, value.encode() + b"\0")


def filtered(kind: int, value: int) -> bytes:
    """An attribute by which a list is filtered; nothing for 0."""
    return attr(kind, u32(value)) if value else b""


def as_text(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")


def message(kind: int, flags: int, seq: int, body: bytes) -> bytes:
    size = HEADER_SIZE + len(body)
    return _HEADER.pack(size, kind, flags | NLM_F_REQUEST, seq, 0) + body + bytes(-size & 3)


def messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Split one datagram into (type, flags, sequence, body)."""
    offset, end = 0, len(data)
    while offset + HEADER_SIZE <= end:
        size, kind, flags, seq, _ = _HEADER.unpack_from(data, offset)
        if size < HEADER_SIZE:
            return
        yield kind, flags, seq, data[offset + HEADER_SIZE : offset + size]
        offset += size + 3 & ~3


def attrs(data: bytes, offset: int = 0) -> Attrs:
    """Attributes by type; the nested and byte-order bits are masked off, the last of repeats wins."""
    found: Attrs = {}
    end = len(data)
    while offset + 4 <= end:
        size, kind = _ATTR.unpack_from(data, offset)
        if size < 4:
            break
        found[kind & 0x3FFF] = data[offset + 4 : offset + size]
        offset += size + 3 & ~3
    return found


def find(data: bytes, offset: int, wanted: int) -> bytes:
    """One attribute of top level, empty if it is not there; what follows it is not looked at."""
    end = len(data)
    while offset + 4 <= end:
        size, kind = _ATTR.unpack_from(data, offset)
        if size < 4:
            break
        if kind == wanted:
            return data[offset + 4 : offset + size]
        offset += size + 3 & ~3
    return b""


def items(data: bytes) -> list[bytes]:
    """The items of a list: attributes of one type."""
    found, offset = [], 0
    while offset + 4 <= len(data):
        size, _ = _ATTR.unpack_from(data, offset)
        if size < 4:
            break
        found.append(data[offset + 4 : offset + size])
        offset += size + 3 & ~3
    return found
