"""The routes by which the original flock led to its pods' anycast and extra addresses.

    <address> via <the pod's own address> dev flockXXXXXXXX  proto boot          one pod
    <address> proto boot  nexthop via ... dev ...  nexthop via ... dev ...       several

They are recognised exactly: a host route to an address on record, all of whose next hops lead over the links of pods
that have it on record.  Whatever else is `proto boot` is somebody else's.
"""

import errno
import struct
from collections.abc import Collection, Mapping

from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w
from flock.edge.netlink.socket import Netlink

RTA_MULTIPATH = 9
_NEXT_HOP = struct.Struct("=HBBi")  # length, flags, weight, link


def remove_routes(netlink: Netlink, carriers: Mapping[bytes, Collection[int]]) -> list[bytes]:
    """Delete the original's routes to these addresses; `carriers` are the links of the pods that carry each."""
    doomed = [
        route
        for family in (w.AF_INET6, w.AF_INET)
        for route, links in netlink.dump(r.dump_routes(family, protocol=w.RTPROT_BOOT), _decode)
        if route.length == 8 * len(route.dst) and links and links <= set(carriers.get(route.dst, ()))
    ]
    # Without next hops: a route with several goes as a whole.
    requests = [r.delete_route(route._replace(index=0, gateway=b"", onlink=False)) for route in doomed]
    netlink.run(requests, ignore=(errno.ESRCH, errno.ENODEV))
    return [route.dst for route in doomed]


def _decode(body: bytes) -> tuple[r.Route, frozenset[int]]:
    route = r.Route.decode(body)
    several = w.attrs(body, r.ROUTE_HEADER).get(RTA_MULTIPATH, b"")
    links, offset = [route.index] if route.index else [], 0
    while offset + _NEXT_HOP.size <= len(several):
        length, _, _, link = _NEXT_HOP.unpack_from(several, offset)
        links.append(link)
        offset += max(length + 3 & ~3, _NEXT_HOP.size)
    return route, frozenset(links)
