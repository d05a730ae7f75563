"""The node's table of connections, read a datagram at a time, for there may be a quarter of a million entries.

In the calling thread's network namespace, and off the loop.  KernelRefused rather than an incomplete answer.
The kernel's own filter is of no use: for IPv6 it picks all entries but those asked for (Linux 6.18), and a message of
version 0 that deletes by filter compares no address at all.
"""

import errno
import os
import struct
from collections import Counter
from collections.abc import Collection, Iterator

from flock.core.errors import KernelRefused
from flock.edge.netlink import wire as w
from flock.edge.netlink.route import Request
from flock.edge.netlink.socket import NETLINK_NETFILTER, NetlinkSocket, failure, refused

CT_NEW, CT_GET, CT_DELETE = 1 << 8, 1 << 8 | 1, 1 << 8 | 2  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_…
CTA_TUPLE_ORIG, CTA_TUPLE_IP, CTA_MARK = 1, 1, 8
HEADER = 4  # struct nfgenmsg: the family comes first
LAST = 1 << 14  # bytes: none but the last datagrams of a list are smaller
FEW = 8  # addresses that are quicker looked for in a datagram than its entries read
WHAT = "list connections"
_ATTR, _MARK = struct.Struct("=HH"), struct.Struct(">I")


class Connections(NetlinkSocket):
    def __init__(self) -> None:
        super().__init__(NETLINK_NETFILTER)

    def datagrams(self) -> Iterator[bytes]:
        """All of the table, some 150 entries at a time."""
        self.send(w.message(CT_GET, w.NLM_F_ROOT_MATCH, 1, bytes(HEADER)), WHAT)
        over = False
        while not over:
            datagram = self.receive()
            over = len(datagram) < LAST and _ends(datagram)
            yield datagram

    def delete(self, found: list[bytes]) -> None:
        """What `find` found; some may be gone, or in the hands of hardware."""
        requests = [Request("forget a connection", CT_DELETE, 0, entry) for entry in found]
        self.run(requests, ignore=(errno.ENOENT, errno.EBUSY))


def opened_by_number() -> Counter[int]:
    """How many connections each number's pod has opened: those that carry it as source."""
    with Connections() as connections:
        marks = Counter(_mark(entry) for datagram in connections.datagrams() for entry in _entries(datagram))
    found: Counter[int] = Counter()
    for mark, flows in marks.items():
        if mark & 0xFFFF:
            found[mark & 0xFFFF] += flows
    return found


def find(datagram: bytes, addresses: Collection[bytes]) -> list[bytes]:
    """What names each entry whose flow came from, or went to, one of the addresses.

    Reading every entry would cost others more than the kernel's listing does: most datagrams are passed over whole.
    """
    few = len(addresses) <= FEW
    if few and not any(address in datagram for address in addresses):
        return []
    return [
        named
        for entry in _entries(datagram)
        if not few or any(address in entry for address in addresses)
        for named in _named(entry, addresses)
    ]


def _named(entry: bytes, addresses: Collection[bytes]) -> Iterator[bytes]:
    """The tuple is the first attribute and goes back as it came."""
    size, _ = _ATTR.unpack_from(entry, HEADER)
    tuple_ = w.attrs(entry[HEADER : HEADER + size]).get(CTA_TUPLE_ORIG, b"")
    if any(end in addresses for end in w.attrs(w.attrs(tuple_).get(CTA_TUPLE_IP, b"")).values()):
        yield entry[:1] + bytes(HEADER - 1) + entry[HEADER : HEADER + size]


def _mark(entry: bytes) -> int:
    """Not by reading all attributes."""
    offset, end = HEADER, len(entry)
    while offset < end:
        size, kind = _ATTR.unpack_from(entry, offset)
        if kind == CTA_MARK:
            return int(_MARK.unpack_from(entry, offset + 4)[0])
        offset += size + 3 & ~3
    return 0


def _entries(datagram: bytes) -> Iterator[bytes]:
    for kind, flags, _, body in w.messages(datagram):
        if flags & w.NLM_F_DUMP_INTR:
            raise KernelRefused(f"{WHAT}: {os.strerror(errno.EINTR)}", errno=errno.EINTR)
        if kind == CT_NEW:
            yield body


def _ends(datagram: bytes) -> bool:
    for kind, flags, _, body in w.messages(datagram):
        if kind in (w.NLMSG_DONE, w.NLMSG_ERROR):
            if number := failure(body):
                raise refused(WHAT, number, flags, body)
            return True
    return False
