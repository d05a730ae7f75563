"""Announced addresses in the kernel: a host route each, to a resilient group of the pods that carry it.

Desired, observed, diff, apply.  What is observed comes from the kernel every time, never from memory, so routes that
a killed agent left behind are found and removed like any other difference.  Ours are the nexthop objects and routes
with the announcing protocol number; primary addresses outside the aggregates have that number too but lead straight
over a link, without a nexthop object, and are not touched here.

The group exists from the first pod on: turning a plain route into a group when a second pod joins would move flows.
A pod that leaves while others stay keeps the flows it is in the middle of for a moment: `leaving`.
"""

import errno
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from flock.core.announcing import Via
from flock.core.errors import KernelRefused
from flock.core.naming import PROTO_ANNOUNCE, PROTO_POD, ROUTE_METRIC
from flock.edge.kernel.linkmessages import packed
from flock.edge.netlink import nexthop as n
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w
from flock.edge.netlink.socket import Netlink

# Where our nexthop ids start; a full dump tells which are taken, whoever made them.
FIRST_ID = 0x0F10C000
GONE = (errno.ENOENT, errno.ESRCH, errno.ENODEV)


@dataclass(slots=True)
class Changes:
    """What one pass did, by address as text."""

    announced: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)  # of those: what members had at once goes to others
    withdrawn: list[bytes] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # interface the kernel takes no next hop on -> why


def announce(
    netlink: Netlink,
    desired: Mapping[str, tuple[Via, ...]],
    *,
    leaving: Mapping[str, tuple[Via, ...]],
    indexes: Mapping[str, int],
    lingers: Callable[[bytes], bool],
) -> Changes:
    """Make the kernel announce exactly `desired`.  `indexes` are the links' by name; a via without one is skipped.

    So is one the kernel refuses, because its pod took the link down: the other pods do not wait for it.
    What is withdrawn is delivered for a while longer, as long as `lingers(address)`: packets that routers sent before
    they heard of it must not come back to them over the default route."""
    nexthops = {x.id: x for x in netlink.dump(n.dump_nexthops(), n.Nexthop.decode)}
    ours = {x.id: x for x in nexthops.values() if x.protocol == PROTO_ANNOUNCE}
    announced, lingering = _routes(netlink, PROTO_ANNOUNCE), _routes(netlink, PROTO_POD)
    plan = _Plan(taken=set(nexthops), singles={(x.index, x.gateway): x.id for x in ours.values() if not x.members})
    everybody = {via for vias in desired.values() for via in vias}
    changes = Changes(refused=_make_next_hops(netlink, plan, everybody, indexes))
    for address, vias in desired.items():
        usable = [via for via in vias if via.interface in indexes and via.interface not in changes.refused]
        staying = [plan.use(indexes[via.interface], packed(via.gateway)) for via in usable]
        if staying:
            dst = packed(address)
            known = _Known(announced.pop(dst, None), lingering.pop(dst, None))
            group = known.group(ours)
            going = plan.still_in(group, [(indexes.get(v.interface, 0), v.gateway) for v in leaving.get(address, ())])
            members = _members(netlink, group, staying, going)
            _announce_one(plan, changes, address, members, known.announced, group)
    for dst, route in announced.items():
        changes.withdrawn.append(dst)
        plan.keep_or_remove(route, ours, keep=True)
    for dst, route in lingering.items():
        plan.keep_or_remove(route, ours, keep=lingers(dst))
    plan.removals += [n.delete_nexthop(x.id) for x in ours.values() if x.members and x.id not in plan.used]
    plan.removals += [n.delete_nexthop(x.id) for x in ours.values() if not x.members and x.id not in plan.used]
    try:
        netlink.run(plan.additions)
    finally:  # what is withdrawn does not wait for what cannot be announced
        _withdraw(netlink, plan)
    return changes


def announced(netlink: Netlink) -> dict[bytes, frozenset[tuple[int, bytes]]]:
    """What the kernel announces: the next hops, as link and gateway, by address."""
    nexthops = {x.id: x for x in netlink.dump(n.dump_nexthops(), n.Nexthop.decode)}
    groups = {dst: nexthops.get(route.nexthop) for dst, route in _routes(netlink, PROTO_ANNOUNCE).items()}
    return {
        dst: frozenset((nexthops[m].index, nexthops[m].gateway) for m in group.members if m in nexthops)
        for dst, group in groups.items()
        if group is not None
    }


def _withdraw(netlink: Netlink, plan: "_Plan") -> None:
    try:
        netlink.run(list(plan.kept.values()))
    except KernelRefused:  # the pods went meanwhile and took their next hops along: there is nobody to deliver to
        netlink.run([_delete(dst, protocol=PROTO_ANNOUNCE, metric=ROUTE_METRIC) for dst in plan.kept], ignore=GONE)
    netlink.run(plan.removals, ignore=GONE)


def _make_next_hops(netlink: Netlink, plan: "_Plan", vias: Set[Via], indexes: Mapping[str, int]) -> dict[str, str]:
    """Those that are missing.  Returns the interfaces that were refused, with the reason."""
    missing = {
        via: plan.new_single(indexes[via.interface], packed(via.gateway))
        for via in sorted(vias)
        if via.interface in indexes and (indexes[via.interface], packed(via.gateway)) not in plan.singles
    }
    try:
        netlink.run(list(missing.values()))
        return {}
    except KernelRefused:
        return {via.interface: reason for via, request in missing.items() if (reason := _refusal(netlink, request))}


def _refusal(netlink: Netlink, request: r.Request) -> str:
    """The batch made all it could; tried again one by one, what is there is fine."""
    try:
        netlink.run([request], ignore=(errno.EEXIST,))
    except KernelRefused as refused:
        return refused.msg
    return ""


def _members(netlink: Netlink, group: n.Nexthop | None, staying: list[int], going: list[int]) -> Mapping[int, int]:
    """The group's members with their weights."""
    if group is None or not going:
        return dict.fromkeys(staying, 1)
    gently = any(weight > 1 for weight in group.members.values())
    under_way = {member for member in going if gently and group.members[member] == 1}
    if group.members.keys() == {*staying, *under_way}:
        return group.members
    buckets = Counter(netlink.dump(n.dump_buckets(group.id), n.decode_bucket))
    return n.weights(staying, [m for m in going if m in under_way or buckets[m] > n.FEW], buckets)


def _announce_one(
    plan: "_Plan",
    changes: Changes,
    address: str,
    members: Mapping[int, int],
    announced: r.Route | None,
    group: n.Nexthop | None,
) -> None:
    identifier = plan.fresh_id() if group is None else group.id
    plan.used.add(identifier)
    if group is None or group.members != members:
        gently = any(weight > 1 for weight in members.values())
        timer = n.LEAVING_IDLE_TIMER if gently else n.IDLE_TIMER
        plan.additions.append(n.set_group(identifier, members, protocol=PROTO_ANNOUNCE, idle_timer=timer))
    if group is None or announced is None or announced.metric != ROUTE_METRIC:
        plan.additions.append(r.add_route(_route(packed(address), group=identifier, protocol=PROTO_ANNOUNCE)))
        changes.announced.append(address)
    elif group.members != members:
        changes.changed.append(address)
        if group.members.keys() != members.keys():
            changes.moved.append(address)


class _Known(NamedTuple):
    """What the kernel has for an address that is to be announced."""

    announced: r.Route | None
    lingering: r.Route | None

    def group(self, ours: Mapping[int, n.Nexthop]) -> n.Nexthop | None:
        route = self.announced or self.lingering
        return ours.get(route.nexthop) if route is not None else None


def _routes(netlink: Netlink, protocol: int) -> dict[bytes, r.Route]:
    """Ours that lead to a group, by destination."""
    return {
        route.dst: route
        for family in (w.AF_INET6, w.AF_INET)
        for route in netlink.dump(r.dump_routes(family, protocol=protocol), r.Route.decode)
        if route.nexthop
    }


@dataclass(slots=True)
class _Plan:
    taken: set[int]  # ids in use, whoever uses them
    singles: dict[tuple[int, bytes], int]
    used: set[int] = field(default_factory=set)
    additions: list[r.Request] = field(default_factory=list)
    kept: dict[bytes, r.Request] = field(default_factory=dict)  # withdrawn, but still delivered
    removals: list[r.Request] = field(default_factory=list)
    next_id: int = FIRST_ID

    def fresh_id(self) -> int:
        while self.next_id in self.taken:
            self.next_id += 1
        self.taken.add(self.next_id)
        return self.next_id

    def new_single(self, index: int, gateway: bytes) -> r.Request:
        identifier = self.singles[index, gateway] = self.fresh_id()
        return n.add_nexthop(identifier, index=index, gateway=gateway, protocol=PROTO_ANNOUNCE)

    def keep_or_remove(self, route: r.Route, ours: Mapping[int, n.Nexthop], *, keep: bool) -> None:
        """A route that is not to be announced: `keep` it under the number that is not announced, or remove it."""
        group = ours.get(route.nexthop)
        if group is None or not keep or route.metric != ROUTE_METRIC:
            self.removals.append(_delete(route.dst, protocol=route.protocol, metric=route.metric))
            return
        self.used.update((group.id, *group.members))
        if route.protocol != PROTO_POD:
            self.kept[route.dst] = r.add_route(_route(route.dst, group=group.id, protocol=PROTO_POD))

    def still_in(self, group: n.Nexthop | None, leaving: Iterable[tuple[int, str]]) -> list[int]:
        """The next hops to pods that leave, as far as they are in the group; nobody joins in order to leave."""
        known = (self.singles.get((index, packed(gateway))) for index, gateway in leaving)
        found = [identifier for identifier in known if identifier is not None and group and identifier in group.members]
        self.used.update(found)
        return found

    def use(self, index: int, gateway: bytes) -> int:
        """The next hop to a pod."""
        identifier = self.singles[index, gateway]
        self.used.add(identifier)
        return identifier


def _route(address: bytes, *, group: int, protocol: int) -> r.Route:
    return r.Route(
        family=r.family(address),
        dst=address,
        length=8 * len(address),
        protocol=protocol,
        metric=ROUTE_METRIC,
        nexthop=group,
    )


def _delete(address: bytes, *, protocol: int, metric: int) -> r.Request:
    """Names no next hops: were these gone already, the kernel would call the request invalid."""
    return r.delete_route(_route(address, group=0, protocol=protocol)._replace(metric=metric))
