"""Which pods' numbers live connections carry."""

import socket
import struct

from flock.edge.netlink import wire as w
from flock.edge.nft.socket import NETLINK_NETFILTER, RECEIVE, TIMEOUT

CT_GET = 1 << 8 | 1  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET
CTA_MARK = 8


def numbers_in_use() -> set[int]:
    """In the calling thread's namespace.  Reads all of the node's connections: for rare use, off the loop."""
    found: set[int] = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER) as s:
        s.settimeout(TIMEOUT)
        s.send(w.message(CT_GET, w.NLM_F_ROOT_MATCH, 1, bytes(4)))
        while True:
            for kind, _, _, body in w.messages(s.recv(RECEIVE)):
                if kind in (w.NLMSG_DONE, w.NLMSG_ERROR):
                    return found - {0}
                mark = int(struct.unpack(">I", w.attrs(body, 4).get(CTA_MARK, bytes(4)))[0])
                found |= {mark & 0xFFFF, mark >> 16}
