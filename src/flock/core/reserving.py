"""All that one pod asks for, taken from the address book at once: everything or nothing.  Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from flock.core.claims import Named, excess
from flock.core.errors import TooManyClaims
from flock.core.ipam import Compose, Ipam
from flock.core.nodeconfig import Limits
from flock.core.podrequest import PodRequest
from flock.core.pools import Address


class Reserved(NamedTuple):
    """The primary addresses, empty for a family the pod has none of."""

    ip6: str
    ip4: str
    warning: str = ""


def reserve(
    ipam: Ipam,
    request: PodRequest,
    *,
    container_id: str,
    namespace: str,
    named: Sequence[Named],
    limits: Limits,
    compose: Compose,
    now: float,
) -> Reserved:
    """Raises TooManyClaims, AddressInUse, AnotherNamespaces or PoolExhausted, and then nothing was taken."""
    if reason := excess(ipam.claims, namespace=namespace, wanted=named, limits=limits, aside=ipam.aside):
        raise TooManyClaims(reason, details="ask whoever runs the cluster's NodeConfigs for more")
    taken: list[Address] = []
    warning = ""
    try:
        for one in named:
            if one.kind == "addresses":
                ipam.claim(one.address, container_id, now, namespace=namespace)
            else:
                ipam.share(one.address, container_id, now, namespace=namespace, granted=one.granted)
            taken.append(one.address)
        ip6, ip4 = request.primary6, request.primary4
        if request.ipv6 and ip6 is None:
            ip6, warning = ipam.pick6(
                request.pools6, container_id, now, compose, namespace=namespace, narrowed=request.narrowed6
            )
            taken.append(ip6)
        if request.ipv4 and ip4 is None:
            ip4 = ipam.pick4(request.pools4, container_id, now, namespace=namespace, narrowed=request.narrowed4)
    except BaseException:
        for address in taken:
            ipam.release(address, container_id, cool_since=None)
        raise
    return Reserved(str(ip6 or ""), str(ip4 or ""), warning)
