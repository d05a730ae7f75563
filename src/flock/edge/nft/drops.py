"""Packets our rules dropped, or would drop, live: the kernel copies their headers to an NFLOG group, at a limited rate.

Only one process can listen to a group; who asks the agent shares its reader.  However many there are (each place that
drops has a rate of its own), a bounded share of the loop goes into them: the kernel hands them over in bulk, and beyond
TOLD in a WINDOW they are only counted, by the kernel's own numbers.
"""

import os
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

from flock.core.errors import KernelRefused
from flock.core.happenings import Dropped, WouldDrop
from flock.core.policy.dropping import AUDIT_GROUP, NFLOG_GROUP
from flock.edge.netlink import wire as w
from flock.edge.netlink.listener import Listener
from flock.edge.netlink.socket import NETLINK_NETFILTER, TIMEOUT

PACKET, CONFIG = 4 << 8, 4 << 8 | 1  # NFNL_SUBSYS_ULOG: NFULNL_MSG_PACKET, NFULNL_MSG_CONFIG
CONFIG_COMMAND, CONFIG_MODE, CONFIG_ROOM, CONFIG_TIMEOUT, CONFIG_THRESHOLD, CONFIG_FLAGS = 1, 2, 3, 4, 5, 6
BIND, COPY_PACKET, NUMBERED = 1, 2, 1
PACKET_HEADER, INDEV, OUTDEV, PAYLOAD, PREFIX, NUMBER = 1, 4, 5, 9, 10, 12
COPY = 96  # bytes: an IPv6 header with extensions and the ports
ROOM, SOON = 65536, 1  # the kernel hands over so many bytes at once, or what came in so many hundredths of a second
TOLD, WINDOW = 100, 0.1  # at most so many in so many seconds: 2 % of a core, 1.5 ms at a time
ETHERTYPE_ARP = 0x0806
PROTOCOLS = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 132: "SCTP"}
EXTENSIONS = (0, 43, 60)  # IPv6 headers that come before the protocol's and tell their own length


class Drops(Listener):
    """`on_drop` is called on the loop, at most TOLD times in a WINDOW, and must be quick: with a drop, and how many
    were passed over before it.  `pod_at` names the pod behind an interface, given by its index, at once: it may be gone
    when somebody asks."""

    gather = 0.02

    def __init__(
        self, *, on_drop: Callable[[Dropped, int], None], pod_at: Callable[[int], str], group: int = NFLOG_GROUP
    ) -> None:
        """KernelRefused if somebody else listens to the group."""
        self._group = group
        self._kind = WouldDrop if group == AUDIT_GROUP else Dropped
        self._on_drop = on_drop
        self._pod_at = pod_at
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
                attributes = w.attrs(body, 4)
                number = int.from_bytes(attributes.get(NUMBER, b""), "big")
                untold, self._next = number - self._next & 0xFFFFFFFF, number + 1
                self._on_drop(self._kind(**_decoded(attributes, self._pod_at)), untold)

    def _missed(self) -> None:
        """The kernel counts them all."""


def _decoded(a: Mapping[int, bytes], pod_at: Callable[[int], str]) -> dict[str, Any]:
    """The pod is behind where the packet goes for ingress and for what the node sends, else where it came from."""
    _, what, *policies = w.as_text(a.get(PREFIX, b"flock ?")).split(" ", 2)
    what = what.removeprefix("audit-")
    (ethertype,) = struct.unpack_from(">H", a.get(PACKET_HEADER, bytes(2)))
    packet = a.get(PAYLOAD, b"")
    protocol, source, destination, port = _arp(packet) if ethertype == ETHERTYPE_ARP else _ip(packet)
    interface = OUTDEV if what == "ingress" or INDEV not in a else INDEV
    return {
        "what": what,
        "pod": pod_at(int.from_bytes(a.get(interface, b""), "big")),
        "source": source,
        "destination": destination,
        "protocol": protocol,
        "port": port,
        "policies": policies[0] if policies else "",
    }


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
