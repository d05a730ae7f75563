"""A pod's link as messages to the kernel: what each of its ends needs, in this order."""

import socket
from collections.abc import Collection

from flock.core.naming import GATEWAY4, GATEWAY6, HOST_MAC, PROTO_ANNOUNCE, PROTO_POD, ROUTE_METRIC, alias, link_local
from flock.core.wiring import Wired
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w

LOOPBACK_INDEX = 1  # in every namespace

Announced = Collection[str]


def packed(address: str) -> bytes:
    """A canonical address as bytes.  Not by `ipaddress`, which takes ten times as long."""
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


GATEWAY6_BYTES, GATEWAY4_BYTES = packed(GATEWAY6), packed(GATEWAY4)


def primaries(wired: Wired) -> list[str]:
    return [a for a in (wired.ip6, wired.ip4) if a]


def host_side(link: r.Link, wired: Wired, announced: Announced) -> list[r.Request]:
    index = link.index
    label = alias(pod=wired.pod, container_id=wired.container_id, ifname=wired.ifname)
    requests = [r.describe_host_side(index, alias=label, has_ipv6=link.has_ipv6)]
    if wired.ip6:
        requests.append(gateway(index, wired))
    requests.append(r.set_up(index))
    if wired.ip6:
        requests.append(r.make_local(index, GATEWAY6_BYTES))
    requests += map(r.add_route, (*to_link_local(index, wired), *host_routes(index, wired, announced)))
    requests += host_neighbours(index, wired)
    return requests


def gateway(index: int, wired: Wired) -> r.Request:
    """By itself: with a prefix the kernel would add two routes that all links share, and go through all for each.  Only
    where we do not know what the pod's own is, `to_link_local` cannot take its place."""
    return r.add_address(index, GATEWAY6_BYTES, 128 if wired.mac else 64)


def to_link_local(index: int, wired: Wired) -> list[r.Route]:
    """So that the node answers who pings his gateway from there.  Like what comes with an address, it is the kernel's:
    nobody announces it.  Two pods may be told to have one MAC, and one route would take the other's place: routes of
    different metrics stand beside each other, and who asks from a link is answered on that one."""
    if not (wired.ip6 and wired.mac):
        return []
    address = link_local(wired.mac).packed
    return [r.host_route(address, index=index, protocol=w.RTPROT_KERNEL, metric=index)]


def host_routes(index: int, wired: Wired, announced: Announced) -> list[r.Route]:
    return [
        r.host_route(
            packed(address),
            index=index,
            protocol=PROTO_ANNOUNCE if address in announced else PROTO_POD,
            metric=ROUTE_METRIC,
        )
        for address in primaries(wired)
    ]


def host_neighbours(index: int, wired: Wired) -> list[r.Request]:
    if not wired.mac:  # set up by the original: its pods resolve, and their addresses are not known to us
        return []
    mac = bytes.fromhex(wired.mac.replace(":", ""))
    return [r.add_neighbour(index, packed(address), mac) for address in primaries(wired)]


def pod_side(index: int, wired: Wired) -> list[r.Request]:
    requests = [r.set_up(LOOPBACK_INDEX), r.set_up(index)]
    on_eth0 = dict.fromkeys((*primaries(wired), *wired.addresses))
    requests += [r.add_address(index, a, 8 * len(a)) for a in map(packed, on_eth0)]
    requests += [r.make_local(index, packed(a)) for a in on_eth0 if ":" in a]
    requests += [r.add_address(LOOPBACK_INDEX, a, 8 * len(a)) for a in map(packed, wired.anycast)]
    for gateway, fam, wanted in (
        (GATEWAY6_BYTES, w.AF_INET6, wired.ip6),
        (GATEWAY4_BYTES, w.AF_INET, wired.ip4),
    ):
        if wanted:
            requests.append(r.add_neighbour(index, gateway, HOST_MAC))
            default = r.Route(fam, b"", 0, index=index, gateway=gateway, onlink=True)
            requests.append(r.add_route(default))
    return requests
