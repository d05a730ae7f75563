"""Announced addresses of Services in the kernel: a blackhole each, in a table of their own.

No rule consults that table: in the main one, a route to the address would keep the node's own packets to it from ever
reaching kube-proxy's rules.  BIRD learns from it, and so do we, after whatever killed an earlier life.
"""

import errno
from collections.abc import Iterable

from flock.core.naming import PROTO_ANNOUNCE, ROUTE_METRIC, SERVICE_TABLE
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w
from flock.edge.netlink.socket import Netlink

GONE = (errno.ESRCH, errno.ENOENT)


def routes(netlink: Netlink) -> list[r.Route]:
    """Ours in that table; what others put there is theirs."""
    return [
        route
        for family in (w.AF_INET6, w.AF_INET)
        for route in netlink.dump(r.dump_routes(family, protocol=PROTO_ANNOUNCE, table=SERVICE_TABLE), r.Route.decode)
    ]


def announced(netlink: Netlink) -> frozenset[bytes]:
    return frozenset(route.dst for route in routes(netlink) if route.length == 8 * len(route.dst))


def change(netlink: Netlink, *, announce: Iterable[bytes], withdraw: Iterable[bytes]) -> None:
    """Whatever of it is so already stays so.  What is withdrawn does not wait for what cannot be announced."""
    try:
        netlink.run([r.delete_route(_route(address)) for address in withdraw], ignore=GONE)
    finally:
        netlink.run([r.add_route(_route(address)) for address in announce])


def _route(address: bytes) -> r.Route:
    return r.Route(
        family=r.family(address),
        dst=address,
        length=8 * len(address),
        protocol=PROTO_ANNOUNCE,
        metric=ROUTE_METRIC,
        kind=w.RTN_BLACKHOLE,
        table=SERVICE_TABLE,
    )
