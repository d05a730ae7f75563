"""All that one pod asks for, taken from the address book at once: everything or nothing.  Pure.

Addresses may be asked for by name.  Whether a namespace may have an address at all is the configuration's word
(`nodeconfig.grants`).  What is left to decide depends on who has what: an address that no grant names is one
namespace's at a time, and what a namespace has by name is bounded, so that none can use up a pool by naming all of it.
An address that a pool picked is no claim: there is one for each pod and family, and pods are bounded otherwise.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flock.core.errors import TooManyClaims
from flock.core.facts import Address, Network
from flock.core.holdings import Claims
from flock.core.ipam import Compose, Ipam
from flock.core.nodeconfig import Kind, Limits
from flock.core.podrequest import PodRequest
from flock.core.pools import Pool

# In a pool of a handful of addresses a share is next to nothing, and a set of three with fixed addresses is all the
# node is for.  Up to so many may be named whatever the share is, but never the last one.
FEW = 4


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """One address of a pod's annotations, and by what right the pod may have it."""

    kind: Kind
    address: Address
    granted: bool  # by an `allowed` entry: the namespaces it selects share the address
    pool: Network | None  # the CIDR whose pool has one address less for it


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
        raise TooManyClaims(reason, details="ask whoever writes this node's NodeConfig for more")
    taken: list[Address] = []
    warning = ""
    try:
        for one in named:
            if one.kind == "addresses":
                ipam.claim(one.address, container_id, now, namespace=namespace)
            else:
                ipam.share(one.address, container_id, now, namespace=namespace, granted=one.granted)
            taken.append(one.address)
        ip6: Address | None = request.primary6
        ip4: Address | None = request.primary4
        if request.ipv6 and ip6 is None:
            ip6, warning = ipam.pick(
                request.pools6, container_id, now, compose, namespace=namespace, narrowed=request.narrowed6
            )
            taken.append(ip6)
        if request.ipv4 and ip4 is None:
            ip4, _ = ipam.pick(request.pools4, container_id, now, namespace=namespace, narrowed=request.narrowed4)
    except BaseException:
        for address in taken:
            ipam.release(address, container_id, cool_since=None)
        raise
    return Reserved(str(ip6 or ""), str(ip4 or ""), warning)


def excess(claims: Claims, *, namespace: str, wanted: Sequence[Named], limits: Limits, aside: Sequence[Network]) -> str:
    """Why the namespace cannot have all of `wanted` beside what it has; empty if it can.

    What is set aside for somebody (`aside`) is in no pool and counts towards the whole alone.
    """
    new = {n.address: n.pool for n in wanted if not claims.has(namespace, n.address)}
    had = claims.count(namespace)
    if new and had + len(new) > limits.claims_per_namespace:
        return (
            f"{len(new)} more addresses by name: the namespace has {had} on this node and may have "
            f"{limits.claims_per_namespace} (spec.limits.claimsPerNamespace)"
        )
    for pool in dict.fromkeys(pool for pool in new.values() if pool is not None):
        apart = [network for network in aside if network.network_address in pool]
        most = share(Pool(pool, apart).size, percent=limits.pool_percent_per_namespace)
        had = claims.count(namespace, pool) - sum(claims.count(namespace, network) for network in apart)
        more = sum(other == pool for other in new.values())
        if had + more > most:
            return (
                f"{more} more addresses of {pool} by name: the namespace has {had} and may have {most} "
                f"(spec.limits.poolPercentPerNamespace)"
            )
    return ""


def share(size: int, *, percent: int) -> int:
    """How many addresses of a pool one namespace may name.  The only address of a pool may be named: any pod at all
    would use it up."""
    return max(1, size * percent // 100, min(size - 1, FEW))
