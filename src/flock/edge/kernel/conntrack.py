"""Dropping connection-tracking entries of addresses that moved or went away.

Best effort: a stale entry does harm only where rules ask for connection state, and entries expire by themselves.
The table is listed once for each family and searched here, and each entry found is deleted by its own tuple.  The
kernel's own filter is of no use: for IPv6 it picks all entries but those asked for (Linux 6.18), and a message of
version 0 that deletes by filter compares no address at all.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator

from flock.edge.netlink import wire as w

NETLINK_NETFILTER = 12
CT_GET, CT_DELETE = 1 << 8 | 1, 1 << 8 | 2  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET and _DELETE
CTA_TUPLE_ORIG, CTA_ID, CTA_ZONE, CTA_TUPLE_IP = 1, 12, 18, 1
_NFGENMSG = struct.Struct("=BBH")


def drop(addresses: Iterable[bytes], *, sysctl: str) -> None:
    """Forget flows from and to each address, in the calling thread's namespace."""
    if not _any_entries(sysctl):
        return
    wanted = frozenset(addresses)
    with contextlib.suppress(OSError), _netfilter_socket() as s:
        s.settimeout(5)
        for family, size in ((w.AF_INET6, 16), (w.AF_INET, 4)):
            ours = [address for address in wanted if len(address) == size]
            for entry in list(_entries(s, family, ours)) if ours else ():
                s.send(w.message(CT_DELETE, w.NLM_F_ACK, 1, entry))
                s.recv(4096)  # one that has just expired is fine


def _netfilter_socket() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)


def _any_entries(sysctl: str) -> bool:
    """Each drop walks the whole table; most nodes without rules on connection state have none."""
    try:
        with open(os.path.join(sysctl, "netfilter/nf_conntrack_count")) as file:  # noqa: PTH118
            return int(file.read()) > 0
    except (OSError, ValueError):
        return False


def _entries(s: socket.socket, family: int, addresses: Collection[bytes]) -> Iterator[bytes]:
    """What names each entry whose flow came from, or went to, one of the addresses."""
    header = _NFGENMSG.pack(family, 0, 0)
    s.send(w.message(CT_GET, w.NLM_F_ROOT_MATCH, 1, header))
    while True:
        datagram = s.recv(1 << 16)
        worth_reading = any(address in datagram for address in addresses)  # much quicker than reading
        for kind, _, _, body in w.messages(datagram):
            if kind in (w.NLMSG_DONE, w.NLMSG_ERROR):
                return
            if worth_reading:
                attributes = w.attrs(body, _NFGENMSG.size)
                tuple_ = attributes.get(CTA_TUPLE_ORIG, b"")
                if any(end in addresses for end in w.attrs(w.attrs(tuple_).get(CTA_TUPLE_IP, b"")).values()):
                    others = (w.attr(k, attributes[k]) for k in (CTA_ID, CTA_ZONE) if k in attributes)
                    yield header + w.attr(CTA_TUPLE_ORIG | w.NLA_F_NESTED, tuple_) + b"".join(others)
