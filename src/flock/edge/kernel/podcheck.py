"""What a pod's side should look like and does not, in words.  For CHECK and `flockctl check`.

A pod's namespace is its tenant's, who may put a million addresses and routes there, and change them without end.  So of
each list only a bounded part is looked at, and what is not seen in a part is not called missing.
"""

import ipaddress

from flock.core.errors import SHORTAGES, FieldError, KernelRefused
from flock.core.model import Allocation
from flock.core.naming import GATEWAY4, GATEWAY6, HOST_MAC, format_mac
from flock.core.whose import Whose, whose
from flock.edge.kernel.linkmessages import GATEWAY4_BYTES, GATEWAY6_BYTES, LOOPBACK_INDEX, packed, primaries
from flock.edge.kernel.podlink import PodLinks
from flock.edge.kernel.podnetns import Entered, entered
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w


def pod_differences(links: PodLinks, allocation: Allocation, netns: str) -> list[str]:
    """Empty if the pod side is as it was set up.  TryAgain if that cannot be told now."""
    said: list[str] = []
    try:
        with entered(netns, home=links.home) as found:
            if whose(allocation, found.identity) is Whose.ANOTHERS:
                said.append(f"pod namespace: {netns} is not the one the pod was attached to")
            return said + _inside_pod(found, links, allocation)
    except FieldError as error:
        return [f"pod namespace: {error.msg}"]
    except KernelRefused as error:
        if error.errno in SHORTAGES:
            raise
        return [*said, f"pod namespace: {error.msg}"]


def _inside_pod(pod: Entered, links: PodLinks, allocation: Allocation) -> list[str]:
    name = allocation.ifname
    link = pod.socket.link(name)
    if link is None:
        return [f"pod interface {name}: missing"]
    found = []
    host = links.host.link(allocation.host_interface)
    if host is not None and not links.is_pair(host, link, pod.namespace):
        found.append(f"pod interface {name}: is not the other end of {host.name}")
    if not link.up:
        found.append(f"pod interface {name}: is down")
    if allocation.mac and format_mac(link.mac) != allocation.mac:
        found.append(f"pod interface {name}: has MAC {format_mac(link.mac)}, expected {allocation.mac}")
    if allocation.mtu and link.mtu != allocation.mtu:
        found.append(f"pod interface {name}: has MTU {link.mtu}, expected {allocation.mtu}")
    return found + _addresses(pod, link, allocation) + _gateways(pod, link, allocation)


def _addresses(pod: Entered, link: r.Link, allocation: Allocation) -> list[str]:
    found = []
    for index, name, wanted in (
        (link.index, link.name, dict.fromkeys((*primaries(allocation), *allocation.addresses))),
        (LOOPBACK_INDEX, "lo", dict.fromkeys(allocation.anycast)),
    ):
        if not wanted:
            continue
        listed = pod.glimpse(r.dump_addresses(index), r.Address.decode)
        have = {a.address: a for a in listed.seen}
        for text in wanted:
            present = have.get(packed(text))
            if present is None and listed.whole:
                found.append(f"pod address {text}: missing on {name}")
            elif present is not None and present.flags & (w.IFA_F_TENTATIVE | w.IFA_F_DADFAILED):
                found.append(f"pod address {text}: not usable on {name}")
    return found


def _gateways(pod: Entered, link: r.Link, allocation: Allocation) -> list[str]:
    found = []
    listed = pod.glimpse(r.dump_neighbours(link.index), r.Neighbour.decode)
    neighbours = {n.address: n.mac for n in listed.seen if n.permanent}
    for family, wanted, gateway, packed_gateway in (
        (w.AF_INET6, allocation.ip6, GATEWAY6, GATEWAY6_BYTES),
        (w.AF_INET, allocation.ip4, GATEWAY4, GATEWAY4_BYTES),
    ):
        if not wanted:
            continue
        routes = pod.glimpse(r.dump_routes(family, index=link.index), r.Route.decode)
        defaults = [x for x in routes.seen if x.length == 0 and x.index == link.index and x.gateway == packed_gateway]
        if not defaults and routes.whole:
            found.append(f"pod default route via {gateway}: missing")
        unseen = packed_gateway not in neighbours and not listed.whole
        if allocation.mac and neighbours.get(packed_gateway) != HOST_MAC and not unseen:
            found.append(f"pod neighbour {ipaddress.ip_address(packed_gateway)}: missing or wrong")
    return found
