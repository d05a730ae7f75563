"""Which pods' numbers live connections carry."""

import errno
import os
import socket
import struct

from flock.core.errors import KernelRefused
from flock.edge.netlink import wire as w
from flock.edge.nft.socket import NETLINK_NETFILTER, RECEIVE, TIMEOUT

CT_GET = 1 << 8 | 1  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET
CTA_MARK = 8


def numbers_in_use() -> set[int]:
    """In the calling thread's namespace.  Reads all of the node's connections: for rare use, off the loop.

    KernelRefused rather than an incomplete answer: a number that is missing here would be retired.
    """
    found: set[int] = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER) as s:
        s.settimeout(TIMEOUT)
        s.send(w.message(CT_GET, w.NLM_F_ROOT_MATCH, 1, bytes(4)))
        while True:
            for kind, flags, _, body in w.messages(s.recv(RECEIVE)):
                if kind == w.NLMSG_ERROR or flags & w.NLM_F_DUMP_INTR:
                    number = -struct.unpack_from("=i", body)[0] if kind == w.NLMSG_ERROR else errno.EINTR
                    raise KernelRefused(f"list connections: {os.strerror(number)}", errno=number)
                if kind == w.NLMSG_DONE:
                    return found - {0}
                mark = int(struct.unpack(">I", w.attrs(body, 4).get(CTA_MARK, bytes(4)))[0])
                found |= {mark & 0xFFFF, mark >> 16}
