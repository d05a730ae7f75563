"""Tells at once when somebody else changes our tables: `nft flush ruleset`, a deleted chain, an added rule.

The kernel announces every change with the netlink port of whoever made it.  Our own are known by the port of our
sockets, which do not wake us up, and by the process id of the `nft` we started, which is the port it gets.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator

from flock.core.policy.elements import TABLES
from flock.edge.netlink import sieve
from flock.edge.netlink import wire as w
from flock.edge.netlink.listener import Listener
from flock.edge.netlink.socket import NETLINK_NETFILTER, SO_RCVBUFFORCE
from flock.edge.nft.batch import CHAIN_HOOK, DELCHAIN, DELTABLE, NEWCHAIN, NEWGEN, NEWTABLE, SUBSYSTEM

NFNLGRP_NFTABLES = 7
BUFFER = 16 << 20  # a table of a thousand pods made anew; an overrun only means that everything is looked at
_PORT = struct.Struct("=12xI")  # of a message's header
_OUR_NAMES = tuple({w.text(1, table.split(" ")[1]) for table in TABLES})  # the first attribute of every message


class Watch(Listener):
    """`on_change` is called on the loop for each burst of changes to our tables that was not ours, `on_lost` where the
    kernel had more to tell than there was room for, which may all have been our own.  Both must be quick."""

    def __init__(
        self,
        *,
        on_change: Callable[[], None],
        on_lost: Callable[[], None],
        on_others: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_change = on_change
        self._on_others = on_others  # somebody's chain at a hook is new or another, or a table is gone
        self._on_lost = on_lost
        self._changed = False  # a change is about to be told
        self._own_ports: list[int] = []  # of the sockets by which we change things
        self._ours: set[int] = set()
        self._finished: list[int] = []  # processes that ended, whose announcements may still wait in the socket
        super().__init__()

    def _open(self) -> socket.socket:
        flags = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        made = socket.socket(socket.AF_NETLINK, flags, NETLINK_NETFILTER)
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        made.bind((0, 1 << NFNLGRP_NFTABLES - 1))
        if self._own_ports:
            sieve.not_from(made, self._own_ports)
        return made

    def own(self, port: int) -> None:
        """What comes from this socket is not told, for as long as we live."""
        self._own_ports.append(port)
        sieve.not_from(self._socket, self._own_ports)

    def ours(self, port: int) -> None:
        self._ours.add(port)

    def no_longer_ours(self, port: int) -> None:
        """Once what it did was read: a process id may come back as somebody else's."""
        self._finished.append(port)

    def _take(self, data: bytes) -> None:
        if self._tells_of_hooks(data):
            self._on_others()
        if not self._changed and self._concerns_us(data):
            self._changed = True
            asyncio.get_running_loop().call_soon(self._tell)  # once for all that is waiting

    def _tell(self) -> None:
        self._changed = False
        self._on_change()

    def _missed(self) -> None:
        self._on_lost()

    def _caught_up(self) -> None:
        self._ours.difference_update(self._finished)
        self._finished.clear()

    def _tells_of_hooks(self, data: bytes) -> bool:
        """Of a chain at a hook, or of a table, which takes its chains along."""
        return any(
            kind & 0xFF in (NEWTABLE, DELTABLE)
            or (kind & 0xFF in (NEWCHAIN, DELCHAIN) and CHAIN_HOOK in w.attrs(data[start : start + size], 4))
            for kind, _, start, size in _messages(data)
        )

    def _concerns_us(self, data: bytes) -> bool:
        """A message's first attribute names its table; one datagram holds messages of one or more tables."""
        return any(
            kind != SUBSYSTEM << 8 | NEWGEN and port not in self._ours and data.startswith(_OUR_NAMES, start + 4)
            for kind, port, start, _ in _messages(data)
        )


def _messages(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Of each message its type, who caused it, and where its body is, and how long."""
    offset = 0
    while offset + w.HEADER_SIZE <= len(data):
        size, kind = struct.unpack_from("=IH", data, offset)
        if size < w.HEADER_SIZE:
            break
        (port,) = _PORT.unpack_from(data, offset)
        yield kind, port, offset + w.HEADER_SIZE, size - w.HEADER_SIZE
        offset += size + 3 & ~3
