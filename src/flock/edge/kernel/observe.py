"""Reading back what is ours: one dump per kind, whatever the number of pods."""

from dataclasses import dataclass

from flock.core.faults import Point, faults
from flock.core.naming import PROTO_ANNOUNCE, PROTO_POD, is_host_interface
from flock.edge.kernel.linkmessages import GATEWAY6_BYTES
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w
from flock.edge.netlink.socket import Netlink

OUR_PROTOCOLS = frozenset({PROTO_POD, PROTO_ANNOUNCE})


@dataclass(frozen=True, slots=True)
class Observed:
    """A picture of our part of the kernel.  Links by name, everything else by the link's index."""

    links: dict[str, r.Link]
    routes: dict[int, list[r.Route]]  # on our links, of whatever protocol
    stray_routes: list[r.Route]  # of our protocols, on links that are not ours
    neighbours: dict[int, dict[bytes, bytes]]  # permanent ones: address -> MAC
    gateways: frozenset[int]  # links that carry fe80::1


def observe(netlink: Netlink) -> Observed:
    faults.reach(Point.LOOK)
    links = {x.name: x for x in netlink.dump(r.dump_links(), r.Link.decode) if is_host_interface(x.name)}
    ours = {link.index for link in links.values()}
    routes: dict[int, list[r.Route]] = {}
    strays: list[r.Route] = []
    for family in (w.AF_INET6, w.AF_INET):
        for route in netlink.dump(r.dump_routes(family), r.Route.decode):
            if route.index in ours:
                routes.setdefault(route.index, []).append(route)
            elif route.protocol in OUR_PROTOCOLS and route.table == w.RT_TABLE_MAIN:
                strays.append(route)
    neighbours: dict[int, dict[bytes, bytes]] = {}
    for neighbour in netlink.dump(r.dump_neighbours(), r.Neighbour.decode):
        if neighbour.permanent and neighbour.index in ours:
            neighbours.setdefault(neighbour.index, {})[neighbour.address] = neighbour.mac
    gateways = frozenset(
        a.index for a in netlink.dump(r.dump_addresses(), r.Address.decode) if a.address == GATEWAY6_BYTES
    )
    return Observed(links, routes, strays, neighbours, gateways & ours)
