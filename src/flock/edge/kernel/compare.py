"""Store against kernel: what our host sides should show and do not, with the repair for each.

A pure function of the allocations and one observation.  The healer applies the repairs, CHECK and `flockctl check`
print them.  What is not ours is not looked at: links by their name, routes by protocol number, and on our own links
only routes to the pod's own addresses.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address, ip_network

from flock.core.facts import Network
from flock.core.model import Allocation
from flock.core.naming import GATEWAY6, HOST_MAC, PROTO_POD, alias, format_mac
from flock.edge.kernel.linkmessages import gateway, host_routes, packed, primaries, to_link_local
from flock.edge.kernel.observe import OUR_PROTOCOLS, Observed
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w

BLACKHOLE_METRIC = 1024  # whatever else leads to exactly that prefix is better


class Kind(StrEnum):
    LINK_MISSING = "link missing"
    LINK = "link changed"
    SWITCH = "IPv6 switch off"
    LISTENS = "host side listens to routers"
    GATEWAY = "gateway address missing"
    ROUTE = "host route missing"
    FOREIGN_ROUTE = "host route of another owner"
    NEIGHBOUR = "neighbour missing"
    AGGREGATE = "blackhole route of an aggregate missing"
    ORPHAN_LINK = "link without allocation"
    UNRECORDED = "link of a pod that is not on record"
    ORPHAN_ROUTE = "route without allocation"


@dataclass(frozen=True, slots=True)
class Difference:
    kind: Kind
    what: str  # as `ip` would print it
    container_id: str = ""
    pod: str = ""
    repair: tuple[r.Request, ...] = ()
    link_index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}" + (f" (pod {self.pod})" if self.pod else "")


def compare(
    allocations: Iterable[Allocation],
    observed: Observed,
    *,
    announced: Callable[[Allocation], Iterable[str]],
) -> list[Difference]:
    """Losses of committed allocations.  Repairs are in the order in which they have to be applied."""
    found: list[Difference] = []
    for allocation in allocations:
        if allocation.state == "committed":
            found += _losses(allocation, observed, frozenset(announced(allocation)))
    return found


def _losses(allocation: Allocation, observed: Observed, announced: frozenset[str]) -> list[Difference]:
    name = allocation.host_interface
    link = observed.links.get(name)

    def lost(kind: Kind, what: str, *repair: r.Request) -> Difference:
        return Difference(kind, what, allocation.container_id, allocation.pod, repair, link.index if link else 0)

    if link is None:
        return [lost(Kind.LINK_MISSING, name)]
    found = []
    if allocation.mac and link.mac != HOST_MAC:
        found.append(lost(Kind.LINK, f"{name} has MAC {format_mac(link.mac)}", r.set_mac(link.index, HOST_MAC)))
    label = alias(pod=allocation.pod, container_id=allocation.container_id, ifname=allocation.ifname)
    if link.alias != label:
        found.append(lost(Kind.LINK, f"{name} has another alias", r.set_alias(link.index, label)))
    if not link.forwards:
        found.append(lost(Kind.LINK, f"{name} does not forward IPv4", r.set_ipv4_switches(link.index)))
    if link.heeds_redirects:
        found.append(lost(Kind.LINK, f"{name} heeds redirects", r.set_ipv4_switches(link.index)))
    if link.heeds_routers:
        found.append(lost(Kind.LISTENS, f"dev {name}"))
    if not link.up:
        found.append(lost(Kind.LINK, f"{name} is down", r.set_up(link.index)))
    if allocation.ip6 and not link.forwards6:
        found.append(lost(Kind.SWITCH, f"forwarding dev {name}"))
    if allocation.ip6 and link.index not in observed.gateways:
        found.append(lost(Kind.GATEWAY, f"{GATEWAY6} dev {name}", gateway(link.index, allocation)))

    have = observed.routes.get(link.index, [])
    nearby = to_link_local(link.index, allocation) if not any(map(_leads_to_all_nearby, have)) else []
    for wanted in (*nearby, *host_routes(link.index, allocation, announced)):
        if not any(_same(route, wanted) for route in have):
            found.append(lost(Kind.ROUTE, f"{_text(wanted)} dev {name}", r.add_route(wanted)))
    mine = {packed(a) for a in primaries(allocation)}
    for route in have:
        if route.dst in mine and route.protocol == w.RTPROT_BOOT:  # the original's, beside which ours stands now
            found.append(lost(Kind.FOREIGN_ROUTE, f"{_text(route)} dev {name}", r.delete_route(route)))
    if allocation.mac:
        mac = bytes.fromhex(allocation.mac.replace(":", ""))
        entries = observed.neighbours.get(link.index, {})
        for address in mine:
            if entries.get(address) != mac:
                what = f"{ip_address(address)} dev {name}"
                found.append(lost(Kind.NEIGHBOUR, what, r.add_neighbour(link.index, address, mac)))
    return found


def orphans(
    observed: Observed, *, owner: Callable[[str], Allocation | None], busy: Callable[[str], bool]
) -> list[Difference]:
    """Leftovers of ours.  `busy(name)`: an ADD or DEL is at work on that link, so it says nothing yet."""
    found = []
    for name, link in observed.links.items():
        if busy(name):
            continue
        allocation = owner(name)
        if allocation is None:
            kind = Kind.ORPHAN_LINK if link.peer_netns < 0 else Kind.UNRECORDED
            found.append(Difference(kind, name, link_index=link.index))
            continue
        mine = {packed(a) for a in (*primaries(allocation), *allocation.addresses, *allocation.anycast)}
        for route in observed.routes.get(link.index, []):
            if route.protocol in OUR_PROTOCOLS and not route.nexthop and route.dst not in mine:
                what = f"{_text(route)} dev {name}"
                found.append(Difference(Kind.ORPHAN_ROUTE, what, repair=(r.delete_route(route),)))
    for route in observed.stray_routes:
        if route.protocol == PROTO_POD and route.kind == w.RTN_UNICAST and not route.nexthop:
            found.append(Difference(Kind.ORPHAN_ROUTE, _text(route), repair=(r.delete_route(route),)))
    return found


def aggregate_differences(aggregates: Iterable[Network], observed: Observed) -> list[Difference]:
    """Aggregates end in a blackhole: a packet to an address nobody has must not leave by the default route again."""
    wanted = {_blackhole(n) for n in aggregates}
    have = {route for route in observed.stray_routes if route.kind == w.RTN_BLACKHOLE}
    seen = {(x.dst, x.length, x.family) for x in have}
    missing = [x for x in wanted if (x.dst, x.length, x.family) not in seen]
    keys = {(x.dst, x.length, x.family) for x in wanted}
    surplus = [x for x in have if (x.dst, x.length, x.family) not in keys]
    return [
        *(Difference(Kind.AGGREGATE, _text(x), repair=(r.add_route(x),)) for x in missing),
        *(Difference(Kind.ORPHAN_ROUTE, f"blackhole {_text(x)}", repair=(r.delete_route(x),)) for x in surplus),
    ]


def blackholed(observed: Observed) -> list[Network]:
    """Aggregates as an earlier life of the agent left them in the kernel."""
    found = (route for route in observed.stray_routes if route.kind == w.RTN_BLACKHOLE and route.dst)
    return [ip_network((route.dst, route.length)) for route in found]


def _blackhole(network: Network) -> r.Route:
    dst = network.network_address.packed
    family = r.family(dst)
    return r.Route(family, dst, network.prefixlen, protocol=PROTO_POD, metric=BLACKHOLE_METRIC, kind=w.RTN_BLACKHOLE)


def _same(route: r.Route, wanted: r.Route) -> bool:
    return (route.dst, route.length, route.protocol, route.metric) == (
        wanted.dst,
        wanted.length,
        wanted.protocol,
        wanted.metric,
    )


def _leads_to_all_nearby(route: r.Route) -> bool:
    """As links have it that an earlier version made."""
    return route.length == 64 and ip_address(route.dst).is_link_local


def _text(route: r.Route) -> str:
    return f"{ip_address(route.dst)}/{route.length}" if route.dst else "default"
