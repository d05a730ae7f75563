"""What a pod's side should look like and does not, in words.  For CHECK and `flockctl check`."""

import ipaddress

from flock.core.errors import FieldError
from flock.core.model import Allocation
from flock.core.naming import GATEWAY4, GATEWAY6, HOST_MAC, format_mac
from flock.core.whose import Whose, whose
from flock.edge.kernel.podlink import (
    GATEWAY4_BYTES,
    GATEWAY6_BYTES,
    LOOPBACK_INDEX,
    PodLinks,
    packed,
    primaries,
)
from flock.edge.kernel.podnetns import Entered, entered
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w
from flock.edge.netlink.socket import Netlink


def pod_differences(links: PodLinks, allocation: Allocation, netns: str) -> list[str]:
    """Empty if the pod side is as it was set up.  TryAgain if that cannot be told now."""
    try:
        with entered(netns, home=links.home) as found:
            differences = _inside_pod(found, links, allocation)
            if whose(allocation, found.identity) is Whose.ANOTHERS:
                return [f"pod namespace: {netns} is not the one the pod was attached to", *differences]
            return differences
    except FieldError as error:
        return [f"pod namespace: {error.msg}"]


def _inside_pod(inside: Entered, links: PodLinks, allocation: Allocation) -> list[str]:
    name, pod = allocation.ifname, inside.socket
    link = pod.link(name)
    if link is None:
        return [f"pod interface {name}: missing"]
    found = []
    host = links.host.link(allocation.host_interface)
    if host is not None and not links.is_pair(host, link, inside.namespace):
        found.append(f"pod interface {name}: is not the other end of {host.name}")
    if not link.up:
        found.append(f"pod interface {name}: is down")
    if allocation.mac and format_mac(link.mac) != allocation.mac:
        found.append(f"pod interface {name}: has MAC {format_mac(link.mac)}, expected {allocation.mac}")
    if allocation.mtu and link.mtu != allocation.mtu:
        found.append(f"pod interface {name}: has MTU {link.mtu}, expected {allocation.mtu}")
    return found + _addresses(pod, link, allocation) + _gateways(pod, link, allocation)


def _addresses(pod: Netlink, link: r.Link, allocation: Allocation) -> list[str]:
    found = []
    have: dict[int, dict[bytes, r.Address]] = {}
    for address in pod.dump(r.dump_addresses(), r.Address.decode):
        have.setdefault(address.index, {})[address.address] = address
    wanted = [(link.index, link.name, a) for a in dict.fromkeys((*primaries(allocation), *allocation.addresses))]
    wanted += [(LOOPBACK_INDEX, "lo", a) for a in allocation.anycast]
    for index, name, text in wanted:
        present = have.get(index, {}).get(packed(text))
        if present is None:
            found.append(f"pod address {text}: missing on {name}")
        elif present.flags & (w.IFA_F_TENTATIVE | w.IFA_F_DADFAILED):
            found.append(f"pod address {text}: not usable on {name}")
    return found


def _gateways(pod: Netlink, link: r.Link, allocation: Allocation) -> list[str]:
    found = []
    neighbours = {
        n.address: n.mac
        for n in pod.dump(r.dump_neighbours(), r.Neighbour.decode)
        if n.permanent and n.index == link.index
    }
    for family, wanted, gateway, packed_gateway in (
        (w.AF_INET6, allocation.ip6, GATEWAY6, GATEWAY6_BYTES),
        (w.AF_INET, allocation.ip4, GATEWAY4, GATEWAY4_BYTES),
    ):
        if not wanted:
            continue
        routes = pod.dump(r.dump_routes(family), r.Route.decode)
        defaults = [x for x in routes if x.length == 0 and x.index == link.index and x.gateway == packed_gateway]
        if not defaults:
            found.append(f"pod default route via {gateway}: missing")
        if allocation.mac and neighbours.get(packed_gateway) != HOST_MAC:
            found.append(f"pod neighbour {ipaddress.ip_address(packed_gateway)}: missing or wrong")
    return found
