"""The kernel's own word on when something changed: route and rule notifications, read where they are waited for.

Whoever asks for a change takes the time, asks, and blocks here until the kernel of the namespace concerned tells that
it is done: one process, one clock, no polling.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

from flock.edge.kernel.netns import inside, open_netns, own_netns
from flock.edge.netlink import wire as w
from flock.edge.nft.batch import DELSETELEM, ELEMENTS_SET, NEWGEN, NEWSETELEM, SUBSYSTEM
from launching import BenchError

RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_ROUTE = 0x40, 0x400
NETLINK_NETFILTER, NFNLGRP_NFTABLES = 12, 7
SO_RCVBUFFORCE = 33  # beyond what an ordinary user may have: a thousand pods' rules are announced at once
BUFFER = 64 << 20
DATAGRAM = 1 << 16


@contextlib.contextmanager
def within(netns: Path) -> Iterator[None]:
    """Sockets opened here belong to the namespace for good."""
    home, there = own_netns(), open_netns(str(netns))
    try:
        with inside(there, home=home):
            yield
    finally:
        home.close()
        there.close()


class _Events:
    """A netlink socket in a namespace that hears of one group of changes."""

    def __init__(self, netns: Path, *, protocol: int, groups: int) -> None:
        with within(netns):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        self._socket.bind((0, groups))

    def close(self) -> None:
        self._socket.close()

    def forget(self) -> None:
        """What came so far is nothing the next wait is for."""
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(DATAGRAM)

    def _next(self, deadline: float, what: str) -> bytes:
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            return self._socket.recv(DATAGRAM)
        except TimeoutError:
            raise BenchError(f"{what}: not seen in the kernel") from None


class RouteEvents(_Events):
    def __init__(self, netns: Path) -> None:
        super().__init__(netns, protocol=socket.NETLINK_ROUTE, groups=RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE)

    def wait(self, prefix: str, *, present: bool, patience: float = 10.0) -> int:
        """When the route came or went, in nanoseconds of the monotonic clock."""
        network = ip_network(prefix)
        kind = w.RTM_NEWROUTE if present else w.RTM_DELROUTE
        deadline = time.monotonic() + patience
        while True:
            data = self._next(deadline, f"route {prefix} {'added' if present else 'removed'}")
            now = time.monotonic_ns()
            for found, _, _, body in w.messages(data):
                destination = w.attrs(body, 12).get(w.RTA_DST) if found == kind else None
                if destination == network.network_address.packed and body[1] == network.prefixlen:
                    return now


class RuleEvents(_Events):
    def __init__(self, netns: Path) -> None:
        super().__init__(netns, protocol=NETLINK_NETFILTER, groups=1 << NFNLGRP_NFTABLES - 1)

    def wait(self, *, into: str = "", patience: float = 60.0) -> int:
        """When the next transaction was in force as a whole: the kernel announces its new generation last.

        `into`: the next that changes elements of this set or map.  One before it may only make ready what they lead to.
        """
        deadline, met = time.monotonic() + patience, not into
        wanted = w.text(ELEMENTS_SET, into)
        while True:
            data = self._next(deadline, f"a transaction of rules {into}")
            now, offset = time.monotonic_ns(), 0
            while offset + w.HEADER_SIZE <= len(data):
                size, kind = struct.unpack_from("=IH", data, offset)
                if kind == SUBSYSTEM << 8 | NEWGEN and met:
                    return now
                if kind in (SUBSYSTEM << 8 | NEWSETELEM, SUBSYSTEM << 8 | DELSETELEM):
                    met = met or wanted in data[offset : offset + size]
                offset += max(size, w.HEADER_SIZE) + 3 & ~3
