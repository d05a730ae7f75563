"""Which pods' numbers live connections carry.

Reads all of the node's connections, in the calling thread's namespace: for rare use, off the loop.  KernelRefused
rather than an incomplete answer.
"""

import errno
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterator

from flock.core.errors import KernelRefused
from flock.edge.netlink import wire as w
from flock.edge.nft.socket import NETLINK_NETFILTER, RECEIVE, TIMEOUT

CT_GET = 1 << 8 | 1  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET
CTA_MARK = 8
HEADER = 4  # struct nfgenmsg
_ATTR, _MARK = struct.Struct("=HH"), struct.Struct(">I")


def opened_by_number() -> Counter[int]:
    """How many connections each number's pod has opened: those that carry it as source."""
    found: Counter[int] = Counter()
    for mark, flows in Counter(_marks()).items():
        if mark & 0xFFFF:
            found[mark & 0xFFFF] += flows
    return found


def _marks() -> Iterator[int]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER) as s:
        s.settimeout(TIMEOUT)
        s.send(w.message(CT_GET, w.NLM_F_ROOT_MATCH, 1, bytes(HEADER)))
        while True:
            for kind, flags, _, body in w.messages(s.recv(RECEIVE)):
                if kind == w.NLMSG_ERROR or flags & w.NLM_F_DUMP_INTR:
                    number = -struct.unpack_from("=i", body)[0] if kind == w.NLMSG_ERROR else errno.EINTR
                    raise KernelRefused(f"list connections: {os.strerror(number)}", errno=number)
                if kind == w.NLMSG_DONE:
                    return
                yield _mark(body)


def _mark(entry: bytes) -> int:
    """Not by reading all attributes: there may be a quarter of a million entries."""
    offset, end = HEADER, len(entry)
    while offset < end:
        size, kind = _ATTR.unpack_from(entry, offset)
        if kind == CTA_MARK:
            return int(_MARK.unpack_from(entry, offset + 4)[0])
        offset += size + 3 & ~3
    return 0
