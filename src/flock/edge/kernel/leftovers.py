"""What flock has in a node's kernel beside links, for whoever takes it off the node: routes and next hops.

Ours by protocol number.  BIRD's number is every BIRD's: whoever asks for its routes to go has to know that flock's is
the only one here, which it is as long as it works at all, since two BIRDs remove each other's routes.
"""

import errno

from flock.core.naming import PROTO_ANNOUNCE, PROTO_POD
from flock.edge.kernel import services
from flock.edge.kernel.observe import observe
from flock.edge.netlink import nexthop as n
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w
from flock.edge.netlink.socket import Netlink

PROTO_BIRD = 12  # RTPROT_BIRD
GONE = (errno.ESRCH, errno.ENOENT)


def attached(netlink: Netlink) -> list[str]:
    """The pods' links that are still there, as `ip link` describes them."""
    return sorted(link.alias or name for name, link in observe(netlink).links.items())


def remove(netlink: Netlink, *, of_bird: bool) -> tuple[int, int]:
    """How many routes and next hops there were.  Whatever vanishes meanwhile is gone all the same."""
    protocols = (PROTO_POD, PROTO_ANNOUNCE, *((PROTO_BIRD,) if of_bird else ()))
    routes = [
        route
        for protocol in protocols
        for family in (w.AF_INET6, w.AF_INET)
        for route in netlink.dump(r.dump_routes(family, protocol=protocol), r.Route.decode)
    ] + services.routes(netlink)
    # Without its next hops a route is named well enough, and a multipath one goes as a whole.
    netlink.run([r.delete_route(route._replace(index=0, gateway=b"", nexthop=0)) for route in routes], ignore=GONE)
    nexthops = [x for x in netlink.dump(n.dump_nexthops(), n.Nexthop.decode) if x.protocol == PROTO_ANNOUNCE]
    groups_first = sorted(nexthops, key=lambda x: not x.members)
    netlink.run([n.delete_nexthop(x.id) for x in groups_first], ignore=GONE)
    return len(routes), len(nexthops)
