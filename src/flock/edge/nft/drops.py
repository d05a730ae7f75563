"""Packets our rules dropped, live: the kernel copies their headers to NFLOG group 133, at a limited rate.

Only one process can listen to a group; who asks the agent shares its reader.
"""

import os
import socket
import struct
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import msgspec

from flock.core.errors import KernelRefused
from flock.core.policy.dropping import NFLOG_GROUP
from flock.edge.netlink import wire as w
from flock.edge.netlink.listener import Listener
from flock.edge.nft.socket import NETLINK_NETFILTER, TIMEOUT

PACKET, CONFIG = 4 << 8, 4 << 8 | 1  # NFNL_SUBSYS_ULOG: NFULNL_MSG_PACKET, NFULNL_MSG_CONFIG
CONFIG_COMMAND, CONFIG_MODE, CONFIG_THRESHOLD, BIND, COPY_PACKET = 1, 2, 5, 1, 2
PACKET_HEADER, INDEV, OUTDEV, PAYLOAD, PREFIX = 1, 4, 5, 9, 10
COPY = 96  # bytes: an IPv6 header with extensions and the ports
ETHERTYPE_ARP = 0x0806
PROTOCOLS = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 132: "SCTP"}
EXTENSIONS = (0, 43, 60)  # IPv6 headers that come before the protocol's and tell their own length


class Drop(msgspec.Struct, frozen=True, kw_only=True):
    """`what`: ingress or egress (policy), spoofed (anti-spoofing), walled (never for or from a pod), overfull
    (the pod opened too many connections, or sent too many fragments).  `policies`
    isolate the pod, as in the class's comment.  Interfaces are indexes, 0 where there is none; the pod is behind
    `outdev` for ingress and for what the node sends, else `indev`."""

    what: str
    policies: str
    indev: int
    outdev: int
    protocol: str
    source: IPv4Address | IPv6Address | None = None
    destination: IPv4Address | IPv6Address | None = None
    source_port: int = 0
    port: int = 0

    @property
    def interface(self) -> int:
        return self.outdev if self.what == "ingress" or not self.indev else self.indev


class Drops(Listener):
    """`on_drop` is called on the loop for each drop that the kernel tells, and must be quick."""

    def __init__(self, *, on_drop: Callable[[Drop], None], group: int = NFLOG_GROUP) -> None:
        """KernelRefused if somebody else listens to the group."""
        self._on_drop = on_drop
        self._group = group
        super().__init__()

    def _open(self) -> socket.socket:
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
        try:
            made.settimeout(TIMEOUT)
            self._configure(made, w.attr(CONFIG_COMMAND, bytes([BIND])))
            self._configure(made, w.attr(CONFIG_MODE, struct.pack(">IBx", COPY, COPY_PACKET)))
            self._configure(made, w.attr(CONFIG_THRESHOLD, struct.pack(">I", 1)))  # tell each at once
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
        for kind, _, _, body in w.messages(data):
            if kind == PACKET:
                self._on_drop(decode(body))

    def _missed(self) -> None:
        """The kernel counts them all."""


def decode(body: bytes) -> Drop:
    a = w.attrs(body, 4)
    _, what, *policies = w.as_text(a.get(PREFIX, b"flock ?")).split(" ", 2)
    (ethertype,) = struct.unpack_from(">H", a.get(PACKET_HEADER, bytes(2)))
    packet = a.get(PAYLOAD, b"")
    return Drop(
        what=what,
        policies=policies[0] if policies else "",
        indev=int.from_bytes(a.get(INDEV, b""), "big"),
        outdev=int.from_bytes(a.get(OUTDEV, b""), "big"),
        **(_arp(packet) if ethertype == ETHERTYPE_ARP else _ip(packet)),
    )


def _arp(packet: bytes) -> dict[str, Any]:
    if len(packet) < 28:
        return {"protocol": "ARP"}
    return {"protocol": "ARP", "source": ip_address(packet[14:18]), "destination": ip_address(packet[24:28])}


def _ip(packet: bytes) -> dict[str, Any]:
    """Addresses, protocol and ports; a packet that is cut short tells as much as it has."""
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= 20:
        addresses, protocol, offset = (packet[12:16], packet[16:20]), packet[9], 4 * (packet[0] & 15)
    elif version == 6 and len(packet) >= 40:
        addresses, protocol, offset = (packet[8:24], packet[24:40]), packet[6], 40
        while protocol in EXTENSIONS and len(packet) >= offset + 2:
            protocol, offset = packet[offset], offset + 8 * (packet[offset + 1] + 1)
    else:
        return {"protocol": "?"}
    found: dict[str, Any] = {
        "protocol": PROTOCOLS.get(protocol, str(protocol)),
        "source": ip_address(addresses[0]),
        "destination": ip_address(addresses[1]),
    }
    if protocol in (6, 17, 132) and len(packet) >= offset + 4:
        found["source_port"], found["port"] = struct.unpack_from(">HH", packet, offset)
    return found
