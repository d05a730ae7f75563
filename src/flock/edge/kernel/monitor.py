"""Tells when something that may be ours was taken away or changed.

A netlink socket in the route groups, with a filter in the kernel that lets through deletions, link and address
changes only: the routes, neighbours and addresses that every ADD creates do not even wake us up.
"""

import socket
import struct
from collections.abc import Callable

from flock.edge.netlink import sieve
from flock.edge.netlink import wire as w
from flock.edge.netlink.listener import Listener
from flock.edge.netlink.socket import SO_RCVBUFFORCE

RTMGRP_LINK, RTMGRP_NEIGH = 0x1, 0x4
RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE = 0x10, 0x40
RTMGRP_IPV6_IFADDR, RTMGRP_IPV6_ROUTE = 0x100, 0x400
GROUPS = RTMGRP_LINK | RTMGRP_NEIGH | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE
WANTED = (w.RTM_NEWLINK, w.RTM_DELLINK, w.RTM_NEWADDR, w.RTM_DELADDR, w.RTM_DELROUTE, w.RTM_DELNEIGH)
LINK_HEADER, FLAGS_AT = 16, 8  # bytes before a link's attributes, and before its flags
_FLAGS = struct.Struct("=I")
BUFFER = 4 << 20  # a burst of 1000 DELs fits; an overrun only means that everything is looked at


class Event:
    """What changed: a message type and the link it concerns; `protocol` is a deleted route's.  Of a link, what is asked
    for is looked up then, and no more: an ADD is half a dozen events that concern nobody."""

    __slots__ = ("_body", "index", "kind", "protocol")

    def __init__(self, kind: int, index: int, *, protocol: int = 0, body: bytes = b"") -> None:
        self.kind = kind
        self.index = index
        self.protocol = protocol
        self._body = body

    @property
    def name(self) -> str:
        """Of a link that is there, else empty."""
        return w.as_text(w.find(self._body, LINK_HEADER, w.IFLA_IFNAME)) if self._body else ""

    @property
    def up(self) -> bool:
        """Is there a link, switched on?"""
        return bool(self._body) and bool(_FLAGS.unpack_from(self._body, FLAGS_AT)[0] & w.IFF_UP)

    @property
    def mac(self) -> bytes:
        """Of a link that is there, else empty."""
        return w.find(self._body, LINK_HEADER, w.IFLA_ADDRESS)


class Monitor(Listener):
    """`on_event` is called for each event, `on_overrun` when some were lost; both on the loop, both must be quick."""

    gather = 0.05  # and no wake-up in the middle of an ADD

    def __init__(self, *, on_event: Callable[[Event], None], on_overrun: Callable[[], None]) -> None:
        self._on_event = on_event
        self._on_overrun = on_overrun
        super().__init__()

    def _open(self) -> socket.socket:
        made = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
        )
        sieve.only_types(made, WANTED)
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        made.bind((0, GROUPS))
        return made

    def _take(self, data: bytes) -> None:
        for kind, _, _, body in w.messages(data):
            event = _decode(kind, body)
            if event is not None:
                self._on_event(event)

    def _missed(self) -> None:
        self._on_overrun()


def _decode(kind: int, body: bytes) -> Event | None:
    if kind in (w.RTM_NEWLINK, w.RTM_DELLINK, w.RTM_NEWADDR, w.RTM_DELADDR, w.RTM_DELNEIGH):
        return Event(kind, struct.unpack_from("=i", body, 4)[0], body=body if kind == w.RTM_NEWLINK else b"")
    if kind == w.RTM_DELROUTE:
        oif = w.attrs(body, 12).get(w.RTA_OIF)
        return Event(kind, w.as_u32(oif) if oif else 0, protocol=body[5])
    return None
