"""Whose a connection is that was made on this machine: asked of the kernel's table of sockets, for this one alone."""

import socket
import struct

from flock.core.errors import KernelRefused
from flock.edge.netlink.route import Request
from flock.edge.netlink.socket import NetlinkSocket

SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
ESTABLISHED = 1 << 1
NO_COOKIE = b"\xff" * 8
UID = 4 + 48 + 12  # where it is in struct inet_diag_msg


def owner(connection: socket.socket) -> int | None:
    """The user whose process is at the other end; None where that is not known, as for one on another machine."""
    try:
        ours, theirs = connection.getsockname(), connection.getpeername()
        sides = [socket.inet_pton(connection.family, side[0].partition("%")[0]) for side in (theirs, ours)]
        ports = struct.pack(">HH", theirs[1], ours[1])
        named = ports + b"".join(side.ljust(16, b"\0") for side in sides) + bytes(4) + NO_COOKIE
        body = struct.pack("=BBxxI", connection.family, socket.IPPROTO_TCP, ESTABLISHED) + named
        with NetlinkSocket(SOCK_DIAG) as kernel:
            found = kernel.get(Request("whose is a connection", SOCK_DIAG_BY_FAMILY, 0, body))
        return int(struct.unpack_from("=I", found, UID)[0])
    except (KernelRefused, OSError, struct.error):
        return None
