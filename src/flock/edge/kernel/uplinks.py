"""By which links what is beyond this host is reached: asked of the kernel's routes, with two addresses as an example.

Nothing is sent there.  A host with a full table has a million routes, so that they are not listed: the kernel finds the
one it would take, with all of its next hops.
"""

import socket
import struct
from contextlib import suppress
from ipaddress import ip_address

from flock.core.errors import KernelRefused
from flock.core.foreign.packet import Link
from flock.core.naming import is_host_interface
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w
from flock.edge.netlink.socket import Netlink

FAR = {4: ip_address("8.8.8.8").packed, 6: ip_address("2001:4860:4860::8888").packed}
_RTMSG_SIZE = 12
_NEXTHOP = struct.Struct("=HBBi")


def uplinks() -> dict[int, list[Link]]:
    """By version, none where no route leads that far; in the network namespace of the calling thread."""
    with Netlink() as netlink:
        return {version: _named(_ways(netlink, far)) for version, far in FAR.items()}


def _named(indexes: list[int]) -> list[Link]:
    links = []
    for index in dict.fromkeys(indexes):
        with suppress(OSError):  # it has gone, or is none: a route with several next hops has no link of its own
            links.append(Link(socket.if_indextoname(index), index))
    return [link for link in links if link.name != "lo" and not is_host_interface(link.name)]


def _ways(netlink: Netlink, far: bytes) -> list[int]:
    """Of the route as it is configured: with all its next hops."""
    try:
        body = netlink.get(r.get_route(far, configured=True))
    except KernelRefused:
        return []
    route = r.Route.decode(body)
    return [route.index, *_multipath(body)] if route.kind == w.RTN_UNICAST else []


def _multipath(body: bytes) -> list[int]:
    """The links of a route's next hops, if it has several."""
    found, data, offset = [], w.attrs(body, _RTMSG_SIZE).get(w.RTA_MULTIPATH, b""), 0
    while offset + _NEXTHOP.size <= len(data):
        size, _, _, index = _NEXTHOP.unpack_from(data, offset)
        found.append(index)
        offset += max(_NEXTHOP.size, size + 3 & ~3)
    return found
