"""Pods that run and are not on record: the state directory was emptied, or is another one.

The node's side of a pod tells nearly all of its entry, and nothing there can be written by the pod: the link's alias
says whose it is, host routes and permanent neighbours its primary addresses and MAC, the rules in force what else it
may send from.  Only where the rest stands is read inside the pod: on `lo` anycast, else `addresses`.  And whether it is
whole: one that fills its namespace, or changes it without end, is taken for it, so that it holds up nobody's start.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import msgspec

from flock.core.errors import SHORTAGES, FieldError, FlockError, KernelRefused
from flock.core.model import Allocation
from flock.core.naming import POD_INTERFACE, format_mac, host_interface
from flock.core.whose import Identity
from flock.edge.boot import boot_id
from flock.edge.kernel.linkmessages import LOOPBACK_INDEX, packed
from flock.edge.kernel.netns import open_netns
from flock.edge.kernel.observe import OUR_PROTOCOLS, Observed, observe
from flock.edge.kernel.podlink import PodLinks
from flock.edge.kernel.podnetns import entered, number_of
from flock.edge.netlink import route as r
from flock.edge.netlink.socket import Netlink

NAMESPACES = Path("/run/netns")  # where runtimes keep pods' namespaces
ATTEMPTS = 16  # at a host interface's name; more than a handful never collide
_ALIAS = re.compile(r"flock pod=(?:([^/\s]+)/)?(\S+) container=(\S+)(?: interface=(\S+))?")

Sources = Callable[[], Mapping[str, Collection[str]]]  # addresses each link's pod may send from


class _Place(NamedTuple):
    """The pod's side of a link."""

    path: str
    netns: Identity
    addresses: frozenset[bytes] | None  # None: more than can be told
    on_loopback: frozenset[bytes]


def unrecorded(links: PodLinks, *, recorded: Collection[str], sources: Sources, now: str) -> list[Allocation]:
    """Entries for links of ours whose other end lives elsewhere and whose name is not `recorded`.

    A link that cannot be told whose it is is left out, and left alone."""
    observed = observe(links.host)
    strange = [x for x in observed.links.values() if x.name not in recorded and x.peer_netns >= 0]
    if not strange:
        return []
    allowed, paths = sources(), _paths(links.host)
    found = [_entry(x, observed, allowed.get(x.name, ()), _place(links, x, paths), now) for x in strange]
    return [entry for entry in found if entry is not None]


def placed(links: PodLinks, recorded: Iterable[Allocation]) -> list[Allocation]:
    """Entries that do not say which namespace of this boot is the pod's, with what does: a link of its name that leads
    there proves it.  Earlier versions recorded the inode alone; and a boot has two names where the agent is moved into
    or out of a container of a host that is a container itself.  What cannot be looked at is left as it is."""
    found = []
    for entry in recorded:
        if entry.state != "committed" or not entry.netns_id or entry.boot_id == boot_id():
            continue
        with contextlib.suppress(FlockError), entered(entry.netns, home=links.home) as place:
            if place.identity.netns_id == entry.netns_id and links.leads_to(entry, place):
                found.append(msgspec.structs.replace(entry, **place.identity._asdict()))
    return found


def _entry(
    link: r.Link, observed: Observed, allowed: Collection[str], place: _Place | None, now: str
) -> Allocation | None:
    told = _ALIAS.fullmatch(link.alias)
    if told is None:
        return None
    namespace, pod, container_id, ifname = told.groups()
    primaries = {
        len(route.dst): str(ip_address(route.dst))
        for route in observed.routes.get(link.index, ())
        if route.protocol in OUR_PROTOCOLS and not route.nexthop and route.length == 8 * len(route.dst)
    }
    if not primaries or link.name not in {host_interface(container_id, n) for n in range(ATTEMPTS)}:
        return None
    there = None if place is None else place.addresses
    if there is not None and not {packed(a) for a in primaries.values()} <= there:
        return None  # half made, and its note is lost: a repeated ADD makes it anew
    macs = {observed.neighbours.get(link.index, {}).get(packed(a), b"") for a in primaries.values()} - {b""}
    more = [a for a in allowed if a not in primaries.values() and not ip_address(a).is_link_local]
    anycast = {a for a in more if place is None or there is None or packed(a) in place.on_loopback}
    return Allocation(
        container_id=container_id,
        namespace=namespace or "",
        pod_name=pod if namespace else "",
        owner_uid="",
        ip6=primaries.get(16, ""),
        ip4=primaries.get(4, ""),
        anycast=tuple(sorted(anycast)),
        addresses=tuple(sorted(set(more) - anycast)),
        state="committed",
        allocated_at=now,
        netns=place.path if place else "",
        **(place.netns._asdict() if place else {}),
        ifname=ifname or POD_INTERFACE,
        host_interface=link.name,
        mac=format_mac(macs.pop()) if macs else "",
        mtu=link.mtu,
    )


def _paths(host: Netlink) -> dict[int, str]:
    """Pods' namespaces by the number the node's has for them."""
    found = {}
    for path in sorted(NAMESPACES.iterdir()) if NAMESPACES.is_dir() else ():
        try:
            namespace = open_netns(str(path))
        except FieldError:
            continue
        try:
            found[number_of(namespace, seen_by=host)] = str(path)
        except KernelRefused as refused:
            if refused.errno in SHORTAGES:
                raise
            continue
        finally:
            namespace.close()
    return found


def _place(links: PodLinks, link: r.Link, paths: Mapping[int, str]) -> _Place | None:
    path = paths.get(link.peer_netns)
    if path is None:
        return None
    try:
        with entered(path, home=links.home) as found:
            if found.socket.link(link.peer_index) is None:
                return None
            on_link = found.glimpse(r.dump_addresses(link.peer_index), r.Address.decode)
            on_loopback = found.glimpse(r.dump_addresses(LOOPBACK_INDEX), r.Address.decode)
    except FieldError:
        return None
    except KernelRefused as refused:
        if refused.errno in SHORTAGES:
            raise
        return None  # its link went elsewhere meanwhile
    seen = frozenset(a.address for listed in (on_link, on_loopback) for a in listed.seen)
    whole = on_link.whole and on_loopback.whole
    return _Place(path, found.identity, seen if whole else None, frozenset(a.address for a in on_loopback.seen))
