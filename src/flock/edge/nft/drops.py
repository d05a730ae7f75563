"""Packets our rules dropped, live: the kernel copies their headers to NFLOG group 133, at a limited rate.

Only one process can listen to a group; who asks the agent shares its reader.  However many there are (each place that
drops has a rate of its own), a bounded share of the loop goes into them: the kernel hands them over in bulk, and beyond
TOLD in a WINDOW they are only counted, by the kernel's own numbers.
"""

import os
import socket
import struct
import time
from collections.abc import Callable

import msgspec

from flock.core.errors import KernelRefused
from flock.core.policy.dropping import NFLOG_GROUP
from flock.edge.netlink import wire as w
from flock.edge.netlink.listener import Listener
from flock.edge.netlink.socket import NETLINK_NETFILTER, TIMEOUT

PACKET, CONFIG = 4 << 8, 4 << 8 | 1  # NFNL_SUBSYS_ULOG: NFULNL_MSG_PACKET, NFULNL_MSG_CONFIG
CONFIG_COMMAND, CONFIG_MODE, CONFIG_ROOM, CONFIG_TIMEOUT, CONFIG_THRESHOLD, CONFIG_FLAGS = 1, 2, 3, 4, 5, 6
BIND, COPY_PACKET, NUMBERED = 1, 2, 1
PACKET_HEADER, INDEV, OUTDEV, PAYLOAD, PREFIX, NUMBER = 1, 4, 5, 9, 10, 12
COPY = 96  # bytes: an IPv6 header with extensions and the ports
ROOM, SOON = (
    65536,
    1,
)  # what the kernel hands over at once: as many bytes, or what came in as many hundredths of a second
TOLD, WINDOW = 100, 0.1  # at most so many in so many seconds: 2 % of a core, 1.5 ms at a time
ETHERTYPE_ARP = 0x0806
PROTOCOLS = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 132: "SCTP"}
EXTENSIONS = (0, 43, 60)  # IPv6 headers that come before the protocol's and tell their own length


class Drop(msgspec.Struct, frozen=True, kw_only=True):
    """`what` and `policies` as in `core/happenings.py`.  Interfaces are indexes, 0 where there is none; the pod is
    behind `outdev` for ingress and for what the node sends, else `indev`.  `untold` is how many came before it and were
    passed over."""

    what: str
    policies: str
    indev: int
    outdev: int
    protocol: str
    source: str = ""
    destination: str = ""
    port: int = 0
    untold: int = 0

    @property
    def interface(self) -> int:
        return self.outdev if self.what == "ingress" or not self.indev else self.indev


class Drops(Listener):
    """`on_drop` is called on the loop, at most TOLD times in a WINDOW, and must be quick."""

    gather = 0.02

    def __init__(self, *, on_drop: Callable[[Drop], None], group: int = NFLOG_GROUP) -> None:
        """KernelRefused if somebody else listens to the group."""
        self._on_drop = on_drop
        self._group = group
        self._next = 0  # number of the drop that is told next, if none is passed over
        self._since, self._told = 0.0, 0  # this window's
        super().__init__()

    def _open(self) -> socket.socket:
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
        try:
            made.settimeout(TIMEOUT)
            self._configure(made, w.attr(CONFIG_COMMAND, bytes([BIND])))
            self._configure(made, w.attr(CONFIG_MODE, struct.pack(">IBx", COPY, COPY_PACKET)))
            self._configure(made, w.attr(CONFIG_ROOM, struct.pack(">I", ROOM)))
            self._configure(made, w.attr(CONFIG_TIMEOUT, struct.pack(">I", SOON)))
            self._configure(made, w.attr(CONFIG_THRESHOLD, struct.pack(">I", ROOM)))  # none but by those two
            self._configure(made, w.attr(CONFIG_FLAGS, struct.pack(">H", NUMBERED)))
            self._next = 0
            made.setblocking(False)
        except BaseException:
            made.close()
            raise
        return made

    def _configure(self, made: socket.socket, attribute: bytes) -> None:
        made.send(w.message(CONFIG, w.NLM_F_ACK, 1, struct.pack(">BBH", 0, 0, self._group) + attribute))
        for kind, _, _, body in w.messages(made.recv(65536)):
            number = -struct.unpack_from("=i", body)[0] if kind == w.NLMSG_ERROR else 0
            if number:
                raise KernelRefused(f"listen to NFLOG group {self._group}: {os.strerror(number)}", errno=number)

    def _take(self, data: bytes) -> None:
        now = time.monotonic()
        if now - self._since >= WINDOW:
            self._since, self._told = now, 0
        for kind, _, _, body in w.messages(data):
            if self._told >= TOLD:
                return  # the next one that is told has a number that says how many were not
            if kind == PACKET:
                self._told += 1
                number, drop = decode(body, since=self._next)
                self._next = number + 1
                self._on_drop(drop)

    def _missed(self) -> None:
        """The kernel counts them all."""


def decode(body: bytes, *, since: int) -> tuple[int, Drop]:
    """A drop and its number; those from `since` on that are missing are untold."""
    a = w.attrs(body, 4)
    number = int.from_bytes(a.get(NUMBER, b""), "big")
    _, what, *policies = w.as_text(a.get(PREFIX, b"flock ?")).split(" ", 2)
    (ethertype,) = struct.unpack_from(">H", a.get(PACKET_HEADER, bytes(2)))
    packet = a.get(PAYLOAD, b"")
    protocol, source, destination, port = _arp(packet) if ethertype == ETHERTYPE_ARP else _ip(packet)
    return number, Drop(
        what=what,
        policies=policies[0] if policies else "",
        indev=int.from_bytes(a.get(INDEV, b""), "big"),
        outdev=int.from_bytes(a.get(OUTDEV, b""), "big"),
        protocol=protocol,
        source=source,
        destination=destination,
        port=port,
        untold=number - since & 0xFFFFFFFF,
    )


def _arp(packet: bytes) -> tuple[str, str, str, int]:
    if len(packet) < 28:
        return "ARP", "", "", 0
    return "ARP", _text(packet[14:18]), _text(packet[24:28]), 0


def _ip(packet: bytes) -> tuple[str, str, str, int]:
    """Protocol, addresses and the port it is for; a packet that is cut short tells as much as it has."""
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= 20:
        source, destination, protocol, offset = packet[12:16], packet[16:20], packet[9], 4 * (packet[0] & 15)
    elif version == 6 and len(packet) >= 40:
        source, destination, protocol, offset = packet[8:24], packet[24:40], packet[6], 40
        while protocol in EXTENSIONS and len(packet) >= offset + 2:
            protocol, offset = packet[offset], offset + 8 * (packet[offset + 1] + 1)
    else:
        return "?", "", "", 0
    port = 0
    if protocol in (6, 17, 132) and len(packet) >= offset + 4:
        (port,) = struct.unpack_from(">H", packet, offset + 2)
    return PROTOCOLS.get(protocol, str(protocol)), _text(source), _text(destination), port


def _text(address: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)
