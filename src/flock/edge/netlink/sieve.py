"""What a netlink socket is not even woken up for: a filter in the kernel that looks at the first message's header."""

import ctypes
import socket
import struct
from collections.abc import Collection

SO_ATTACH_FILTER = 26
# Where a field of the header is, and how it is loaded: which is big-endian, while the header is in host order.
TYPE, PORT = (0x28, 4), (0x20, 12)
_JUMP_EQUAL, _ACCEPT, _DROP = 0x15, (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0)


def only_types(sock: socket.socket, types: Collection[int]) -> None:
    _attach(sock, TYPE, [socket.htons(kind) for kind in types], equal=_ACCEPT, other=_DROP)


def not_from(sock: socket.socket, ports: Collection[int]) -> None:
    """Nothing that the sockets with these ports did.  A datagram tells of one sender's doing."""
    _attach(sock, PORT, [socket.htonl(port) for port in ports], equal=_DROP, other=_ACCEPT)


def _attach(
    sock: socket.socket,
    field: tuple[int, int],
    values: list[int],
    *,
    equal: tuple[int, int, int, int],
    other: tuple[int, int, int, int],
) -> None:
    """Classic BPF."""
    load, offset = field
    jumps = [(_JUMP_EQUAL, len(values) - position, 0, value) for position, value in enumerate(values)]
    program = [(load, 0, 0, offset), *jumps, other, equal]
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code)
    described = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, described)
