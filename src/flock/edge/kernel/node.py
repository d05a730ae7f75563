"""The node itself: forwarding switched on without losing its own default route, and the facts others need."""

import contextlib
import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path

from flock.core.errors import SHORTAGES, KernelRefused, refusal
from flock.core.facts import HostAddress, NodeFacts, Silent
from flock.core.naming import is_host_interface
from flock.edge.kernel.switches import write_switch
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w
from flock.edge.netlink.socket import Netlink

DEFAULT_MTU = 1500
# What fragments may take while they wait for the rest of their datagram, in bytes and for each family, and how many
# seconds they do so.  The kernel's 4 MiB and 30 or 60 s are used up by 60 a second.  A pod may send 1000 at once and
# 1000 a second (core/policy/walls.py): 4000 of its wait at most, of 2.5 kB each, 4.5 at worst.
FRAGMENT_ROOM = 64 << 20
FRAGMENT_TIME = 3
RT_SCOPE_HOST = 254
# Nothing is sent there.  No table is read for a default route: a router may have filled it with a hundred thousand.
FAR = {family: ipaddress.ip_address(far).packed for family, far in (("ipv6", "2000::1"), ("ipv4", "1.0.0.1"))}


def enable_forwarding(sysctl: Path, *, ipv6: bool, ipv4: bool) -> list[str]:
    """Returns what was changed.

    A node that forwards ignores router advertisements unless accept_ra is 2; set after forwarding it would have
    lost its default route already.  So accept_ra comes first, on every interface that listens to them now, and
    never on pods' links.
    """
    changed: list[str] = []
    if ipv6:
        conf = sysctl / "ipv6" / "conf"
        if not conf.is_dir():
            raise KernelRefused(
                "IPv6 is switched off in this kernel (ipv6.disable=1)",
                details="remove spec.cidr6 from the NodeConfig, or enable IPv6",
            )
        # Where forwarding is on already, who does not accept advertisements now is not to start with it.
        listening = [] if _read(conf / "all" / "forwarding") == "1" else sorted(os.listdir(conf))  # noqa: PTH208
        for interface in listening:
            if interface in ("all", "default", "lo") or is_host_interface(interface):
                continue
            accepts = conf / interface / "accept_ra"
            if _read(accepts) == "1":
                changed += _set(accepts, "2")
        changed += _set(conf / "all" / "forwarding", "1")
    if ipv4:
        changed += _set(sysctl / "ipv4" / "ip_forward", "1")
    for family in ("ipv6", "ipv4"):
        policy = sysctl / family / "fib_multipath_hash_policy"
        # Flows, not hosts, are spread over several next hops: by ports too.  A kernel without it does the rest as well.
        with contextlib.suppress(KernelRefused):
            changed += _set(policy, "1") if policy.exists() else []
    return changed + make_room_for_fragments(sysctl)


def make_room_for_fragments(sysctl: Path) -> list[str]:
    """Returns what was changed.  More room and less time than this are left as they are.  Connection tracking has
    switches of its own for IPv6, which are there from the first rule on that asks for it; a kernel that refuses them
    forwards all the same."""
    changed: list[str] = []
    for prefix, time in (("ipv4/ipfrag_", "time"), ("netfilter/nf_conntrack_frag6_", "timeout")):
        room, wait = sysctl / f"{prefix}high_thresh", sysctl / f"{prefix}{time}"
        with contextlib.suppress(KernelRefused, ValueError):
            if int(_read(room)) < FRAGMENT_ROOM:
                changed += _set(room, str(FRAGMENT_ROOM))
            if int(_read(wait)) > FRAGMENT_TIME:
                changed += _set(wait, str(FRAGMENT_TIME))
    return changed


def forwarding_off(sysctl: Path, *, ipv6: bool, ipv4: bool) -> list[str]:
    """The switches that are not as `enable_forwarding` leaves them."""
    switches = [sysctl / "ipv6" / "conf" / "all" / "forwarding"] if ipv6 else []
    switches += [sysctl / "ipv4" / "ip_forward"] if ipv4 else []
    return [str(switch.relative_to(sysctl)) for switch in switches if _read(switch) != "1"]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        if error.errno in SHORTAGES:
            raise refusal(f"cannot read {path}", error) from None
        return ""  # an interface that has just gone


def _set(path: Path, value: str) -> list[str]:
    if _read(path) == value:
        return []
    write_switch(str(path), value)
    return [f"{path}={value}"]


def read_facts(netlink: Netlink, node: str) -> NodeFacts:
    names = {link.index: link.name for link in netlink.dump(r.dump_links(), r.Link.decode)}
    found = []
    for a in netlink.dump(r.dump_addresses(), r.Address.decode):
        name = names.get(a.index)  # None: its link came between the dumps, and whose it is the next look tells
        if name is None or not a.address or is_host_interface(name) or (a.scope == RT_SCOPE_HOST and name == "lo"):
            continue
        own = ipaddress.ip_interface((a.address, a.length))
        # Of IPv4 the same bit means another address of its network.
        found.append(HostAddress(name, own, temporary=own.version == 6 and bool(a.flags & w.IFA_F_TEMPORARY)))
    return NodeFacts(node=node, addresses=tuple(sorted(found, key=lambda h: (h.interface, str(h.address)))))


def uplink_mtu(netlink: Netlink, peers: Iterable[bytes]) -> int:
    """The smallest MTU among the interfaces towards `peers`, else of the default route's, else 1500.

    `peers` are packed addresses; one the kernel has no route to is passed over, and so is a pod's own link.
    """
    links = {link.index: link for link in netlink.dump(r.dump_links(), r.Link.decode)}

    def mtu(index: int) -> int | None:
        link = links.get(index)
        return None if link is None or link.loopback or is_host_interface(link.name) else link.mtu

    towards_peers = [mtu(way_to(netlink, peer)) for peer in peers]
    defaults = [
        mtu(route.index)
        for family in (w.AF_INET6, w.AF_INET)
        for route in netlink.dump(r.dump_routes(family), r.Route.decode)
        if route.length == 0
    ]
    for candidates in (towards_peers, defaults):
        known = [m for m in candidates if m]
        if known:
            return min(known)
    return DEFAULT_MTU


def ways_out() -> frozenset[str]:
    """The families of which the kernel knows a way to anywhere, in the network namespace of the calling thread."""
    with contextlib.suppress(OSError), Netlink() as netlink:
        return frozenset(family for family, far in FAR.items() if way_to(netlink, far))
    return frozenset()


def unanswered() -> frozenset[Silent]:
    """Addresses that neighbours were asked for in vain, in the network namespace of the calling thread."""
    with contextlib.suppress(OSError, KernelRefused), Netlink() as netlink:
        asked = [n for n in netlink.dump(r.dump_neighbours(), r.Neighbour.decode) if n.silent and n.address]
        names = {link.index: link.name for link in netlink.dump(r.dump_links(), r.Link.decode)} if asked else {}
        return frozenset((names.get(n.index, ""), ipaddress.ip_address(n.address)) for n in asked)
    return frozenset()


def way_to(netlink: Netlink, peer: bytes) -> int:
    try:
        return r.Route.decode(netlink.get(r.get_route(peer))).index
    except KernelRefused:
        return 0
