"""Dropping connection-tracking entries of addresses that moved or went away.

Best effort: a stale entry does harm only where rules ask for connection state, and entries expire by themselves.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Iterable

from flock.edge.netlink import wire as w

NETLINK_NETFILTER = 12
CT_DELETE = 1 << 8 | 2  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE
CTA_TUPLE_ORIG, CTA_FILTER, CTA_TUPLE_IP, CTA_FILTER_ORIG_FLAGS = 1, 25, 1, 1
SOURCE, DESTINATION = 1 << 0, 1 << 1  # which part of the original tuple has to match
_ATTRIBUTE = {(4, SOURCE): 1, (4, DESTINATION): 2, (16, SOURCE): 3, (16, DESTINATION): 4}


def drop(addresses: Iterable[bytes], *, sysctl: str) -> None:
    """Forget flows from and to each address, in the calling thread's namespace."""
    if not _any_entries(sysctl):
        return
    messages = [
        w.message(CT_DELETE, w.NLM_F_ACK, 1, _body(address, part))
        for address in addresses
        for part in (SOURCE, DESTINATION)
    ]
    with contextlib.suppress(OSError), _netfilter_socket() as s:
        s.settimeout(5)
        for message in messages:  # one at a time: a batch would be one transaction, and one miss would end it
            s.send(message)
            s.recv(4096)


def _netfilter_socket() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)


def _any_entries(sysctl: str) -> bool:
    """Each drop walks the whole table; most nodes without rules on connection state have none."""
    try:
        with open(os.path.join(sysctl, "netfilter/nf_conntrack_count")) as file:  # noqa: PTH118
            return int(file.read()) > 0
    except (OSError, ValueError):
        return False


def _body(address: bytes, part: int) -> bytes:
    family = w.AF_INET6 if len(address) == 16 else w.AF_INET
    nested = w.NLA_F_NESTED
    ip = w.nested(CTA_TUPLE_IP | nested, w.attr(_ATTRIBUTE[len(address), part], address))
    return (
        struct.pack("=BBH", family, 0, 0)
        + w.nested(CTA_TUPLE_ORIG | nested, ip)
        + w.nested(CTA_FILTER | nested, w.attr(CTA_FILTER_ORIG_FLAGS, w.u32(part)))
    )
