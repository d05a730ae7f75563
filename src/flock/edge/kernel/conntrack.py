"""Forgetting flows of addresses that moved or went away, beside everything else and at leisure.

Nobody waits for it: a flow says by its mark which pod it was let through for, so that a left-over one is judged as new
(docs/policy-rules.md), and entries expire by themselves.  It is best effort, for rules and translations of others.  And
nobody could wait for it: a walk through a table that one pod has filled takes a quarter of a second, deleting what it
left behind seconds.

The table is listed once for all addresses asked for by then, searched here, and each entry found is deleted by its own
tuple.  The kernel's own filter is of no use: for IPv6 it picks all entries but those asked for (Linux 6.18), and a
message of version 0 that deletes by filter compares no address at all.
"""

import contextlib
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Collection, Iterable, Iterator

from flock.edge.netlink import wire as w

log = logging.getLogger("conntrack")

NETLINK_NETFILTER = 12
CT_GET, CT_DELETE = 1 << 8 | 1, 1 << 8 | 2  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET and _DELETE
CTA_TUPLE_ORIG, CTA_TUPLE_IP = 1, 1
_SIZE = struct.Struct("=H")
HEADER = 4  # struct nfgenmsg: the family comes first
RECEIVE = 1 << 16  # a dump's datagrams are at most 32 KiB, some 150 entries
LAST = 1 << 14  # bytes: none but the last datagrams of a dump are smaller
TIMEOUT = 5.0  # an answer comes within the call; this only bounds a lost one
# After each datagram in which something was found, and deleted within a millisecond, other threads have their turn:
# calls of the runtime must not wait for what a dead pod left behind.
PAUSE = 0.005
FEW = 8  # addresses that are quicker looked for in a datagram than its entries read


class Sweeper:
    """A thread of its own, in the network namespace of whoever makes it."""

    def __init__(self, *, sysctl: str) -> None:
        self._sysctl = sysctl
        self._asked: set[bytes] = set()
        self._wanted: frozenset[bytes] = frozenset()  # what the walk under way looks for
        self._change = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._serve, name="conntrack", daemon=True)
        self._thread.start()

    def forget(self, addresses: Iterable[bytes]) -> None:
        """Flows from and to each address, soon."""
        with self._change:
            self._asked.update(addresses)
            self._change.notify()

    def spare(self, addresses: Iterable[bytes]) -> None:
        """Addresses that are somebody's again: flows that begin now stay."""
        with self._change:
            self._asked.difference_update(addresses)
            self._wanted = self._wanted.difference(addresses)

    def close(self) -> None:
        with self._change:
            self._ending = True
            self._asked, self._wanted = set(), frozenset()
            self._change.notify()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._asked or self._ending)
                if self._ending:
                    return
                self._wanted, self._asked = frozenset(self._asked), set()
            try:
                if _any_entries(self._sysctl):
                    self._walk()
            except OSError as error:
                log.warning("flows were not forgotten problem=%s", error.strerror or error)
            except Exception:  # the next pods' flows are to be forgotten all the same
                log.exception("flows were not forgotten")

    def _walk(self) -> None:
        with _netfilter_socket() as listing, _netfilter_socket() as deleting:
            listing.send(w.message(CT_GET, w.NLM_F_ROOT_MATCH, 1, bytes(HEADER)))
            while wanted := self._wanted:
                datagram = listing.recv(RECEIVE)
                found, over = _search(datagram, wanted)
                if found:
                    _delete(deleting, found)
                    time.sleep(PAUSE)
                if over:
                    return


def _search(datagram: bytes, addresses: Collection[bytes]) -> tuple[list[bytes], bool]:
    """What names each entry whose flow came from, or went to, one of the addresses; and was it the last datagram?

    Reading every entry would cost others more than the kernel's listing does: most datagrams are passed over whole.
    """
    few = len(addresses) <= FEW
    if few and len(datagram) > LAST and not any(address in datagram for address in addresses):
        return [], False
    found: list[bytes] = []
    for kind, _, _, body in w.messages(datagram):
        if kind in (w.NLMSG_DONE, w.NLMSG_ERROR):
            return found, True
        if not few or any(address in body for address in addresses):
            found += _named(body, addresses)
    return found, False


def _named(entry: bytes, addresses: Collection[bytes]) -> Iterator[bytes]:
    """The tuple is the first attribute and goes back as it came."""
    (size,) = _SIZE.unpack_from(entry, HEADER)
    tuple_ = w.attrs(entry[HEADER : HEADER + size]).get(CTA_TUPLE_ORIG, b"")
    if any(end in addresses for end in w.attrs(w.attrs(tuple_).get(CTA_TUPLE_IP, b"")).values()):
        yield entry[:1] + bytes(HEADER - 1) + entry[HEADER : HEADER + size]


def _delete(s: socket.socket, entries: list[bytes]) -> None:
    """All in one send.  The kernel tells of each that it did not find, which is fine, and of the last in any case."""
    last = len(entries)
    flags = [0] * (last - 1) + [w.NLM_F_ACK]
    s.send(
        b"".join(w.message(CT_DELETE, flag, n, e) for n, (flag, e) in enumerate(zip(flags, entries, strict=True), 1))
    )
    while all(number != last for _, _, number, _ in w.messages(s.recv(RECEIVE))):
        pass


def _netfilter_socket() -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(TIMEOUT), 0))
    return made


def _any_entries(sysctl: str) -> bool:
    """Each walk lists the whole table; most nodes without rules on connection state have none."""
    with contextlib.suppress(OSError, ValueError), open(os.path.join(sysctl, "netfilter/nf_conntrack_count")) as file:  # noqa: PTH118
        return int(file.read()) > 0
    return False
