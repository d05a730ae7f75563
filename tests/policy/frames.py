"""Ethernet frames by hand: what a pod's kernel would not send, its tenant may."""

import socket
import struct
from ipaddress import ip_address

from arriving import Place
from playground import HOST_MAC, Playground, mac

ARP, IPV4, IPV6 = 0x0806, 0x0800, 0x86DD
ICMP, TCP, UDP, ICMPV6, OSPF = 1, 6, 17, 58, 89
HOP_BY_HOP, FRAGMENT, DESTINATION_OPTIONS = 0, 44, 60


def send_frame(ground: Playground, who: int, ethertype: int, payload: bytes) -> None:
    emit(ground.place(who), ethertype, payload, source=mac(who))


def emit(place: Place, ethertype: int, payload: bytes, *, source: str, interface: str = "eth0") -> None:
    with place.inside():
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with raw:
        raw.bind((interface, ethertype))
        raw.send(mac_bytes(HOST_MAC) + mac_bytes(source) + struct.pack(">H", ethertype) + payload)


def mac_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def link_local(who: int) -> str:
    """What the kernel derives from `playground.mac`."""
    return f"fe80::800:ff:fe00:{who:x}"


# --- packets ----------------------------------------------------------------------------------------------------


def ipv4(
    source: str, to: str, protocol: int, payload: bytes, *, ttl: int = 255, ident: int = 1, fragment: int = 0
) -> bytes:
    """`fragment`: the field of its flags and offset."""
    addresses = ip_address(source).packed + ip_address(to).packed
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), ident, fragment, ttl, protocol, 0)
    return head[:10] + checksum(head + addresses) + addresses + payload


def ipv6(source: str, to: str, protocol: int, payload: bytes, *, hops: int = 255) -> bytes:
    addresses = ip_address(source).packed + ip_address(to).packed
    return struct.pack(">IHBB", 6 << 28, len(payload), protocol, hops) + addresses + payload


def packet(source: str, to: str, protocol: int, payload: bytes) -> tuple[int, bytes]:
    """(ethertype, packet) of whichever family the addresses are."""
    if ":" in to:
        return IPV6, ipv6(source, to, protocol, payload)
    return IPV4, ipv4(source, to, protocol, payload)


def udp(source: str, to: str, port: int, data: bytes = b"x", *, sport: int = 49152) -> bytes:
    head = struct.pack(">HHHH", sport, port, 8 + len(data), 0)
    return head[:6] + transport_checksum(source, to, UDP, head + data) + data


def icmpv6(kind: int, body: bytes, *, source: str, to: str, code: int = 0) -> bytes:
    message = struct.pack(">BBH", kind, code, 0) + body
    return message[:2] + transport_checksum(source, to, ICMPV6, message) + message[4:]


def neighbour_message(kind: int, *, source: str, target: str, to: str, option: bytes = b"") -> bytes:
    body = bytes(4) + ip_address(target).packed + option
    return ipv6(source, to, ICMPV6, icmpv6(kind, body, source=source, to=to))


def source_mac_option(mac: str) -> bytes:
    return b"\x01\x01" + mac_bytes(mac)


def router_advertisement(*, source: str, to: str = "ff02::1") -> bytes:
    """The ICMPv6 part: a default route for half an hour, and an on-link prefix to make an address from."""
    prefix = struct.pack(">BBBBIII", 3, 4, 64, 0xC0, 86400, 14400, 0) + ip_address("2001:db8:bad::").packed
    return icmpv6(134, struct.pack(">BBHII", 64, 0, 1800, 0, 0) + prefix, source=source, to=to)


def redirect(*, source: str, to: str, target: str, destination: str) -> bytes:
    body = bytes(4) + ip_address(target).packed + ip_address(destination).packed
    return icmpv6(137, body, source=source, to=to)


def redirect4(*, gateway: str, about: bytes) -> bytes:
    message = struct.pack(">BBH", 5, 1, 0) + ip_address(gateway).packed + about[:28]
    return message[:2] + checksum(message) + message[4:]


def unreachable(*, sender: str, to: str, about: bytes) -> tuple[int, bytes]:
    """(ethertype, packet): the port of `about`, a packet from `to`, is unreachable."""
    if ":" in to:
        return packet(sender, to, ICMPV6, icmpv6(1, bytes(4) + about, source=sender, to=to, code=4))
    message = struct.pack(">BBHI", 3, 3, 0, 0) + about[:28]
    return packet(sender, to, ICMP, message[:2] + checksum(message) + message[4:])


def options(following: int, payload: bytes) -> bytes:
    """An extension header of padding, hop-by-hop or destination options alike."""
    return struct.pack(">BBBB4x", following, 0, 1, 4) + payload


def fragments(following: int, payload: bytes, *, size: int) -> list[bytes]:
    parts = [payload[at : at + size] for at in range(0, len(payload), size)]
    return [
        struct.pack(">BBHI", following, 0, number * size | (number + 1 < len(parts)), 77) + part
        for number, part in enumerate(parts)
    ]


def in_fragments(source: str, to: str, payload: bytes, *, size: int, ident: int = 77) -> list[tuple[int, bytes]]:
    """(ethertype, packet) of each part of a UDP packet."""
    if ":" in to:
        parts = fragments(UDP, payload, size=size)
        return [(IPV6, ipv6(source, to, FRAGMENT, part[:4] + struct.pack(">I", ident) + part[8:])) for part in parts]
    found = []
    for at in range(0, len(payload), size):
        part, more = payload[at : at + size], at + size < len(payload)
        found.append((IPV4, ipv4(source, to, UDP, part, ident=ident, fragment=more << 13 | at // 8)))
    return found


def checksum(data: bytes) -> bytes:
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack(">H", ~total & 0xFFFF)


def transport_checksum(source: str, to: str, protocol: int, segment: bytes) -> bytes:
    pseudo = ip_address(source).packed + ip_address(to).packed + struct.pack(">II", len(segment), protocol)
    if ":" not in to:
        pseudo = ip_address(source).packed + ip_address(to).packed + struct.pack(">HH", protocol, len(segment))
    return checksum(pseudo + segment)
