"""Addresses that pods ask for by name: by what right, how many, and why not.  Pure.

Whether a namespace may have an address at all is the configuration's word (`nodeconfig.grants`).  What is left to
decide depends on who has what: an address that no grant names is one namespace's at a time, and what a namespace has
by name is bounded, so that none can use up a pool by naming all of it.  An address that a pool picked is no claim:
there is one for each pod and family, and pods are bounded otherwise.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

import msgspec

from flock.core.nodeconfig.grants import Kind
from flock.core.nodeconfig.shape import Limits
from flock.core.pools import Address, Network, Pool

# In a pool of a handful of addresses a share is next to nothing, and a set of three with fixed addresses is all the
# node is for.  Up to so many may be named whatever the share is, but never the last one.
FEW = 4


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """One address of a pod's annotations, and by what right the pod may have it."""

    kind: Kind
    address: Address
    granted: bool  # by an `allowed` entry: the namespaces it selects share the address
    pool: Network | None  # the CIDR whose pool has one address less for it


class Claims:
    """What each namespace's pods have by name, counted as they come and go.  A shared address counts once.

    Counting within a network takes two binary searches, however many addresses there are.
    """

    def __init__(self) -> None:
        self._pods: dict[str, dict[Address, int]] = {}  # by namespace: how many pods have it
        self._sorted: dict[str, list[tuple[int, int]]] = {}

    def add(self, namespace: str, address: Address) -> None:
        pods = self._pods.setdefault(namespace, {})
        if address not in pods:
            insort(self._sorted.setdefault(namespace, []), _key(address))
        pods[address] = pods.get(address, 0) + 1

    def discard(self, namespace: str, address: Address) -> None:
        """One pod less; an address the namespace has not by name is none of ours."""
        pods = self._pods.get(namespace, {})
        if address not in pods:
            return
        pods[address] -= 1
        if not pods[address]:
            del pods[address]
            ordered = self._sorted[namespace]
            del ordered[bisect_left(ordered, _key(address))]
        if not pods:
            del self._pods[namespace], self._sorted[namespace]

    def has(self, namespace: str, address: Address) -> bool:
        return address in self._pods.get(namespace, ())

    def count(self, namespace: str, within: Network | None = None) -> int:
        ordered = self._sorted.get(namespace, [])
        if within is None:
            return len(ordered)
        return bisect_left(ordered, (within.version, int(within[-1]) + 1)) - bisect_left(ordered, _key(within[0]))


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


def _key(address: Address) -> tuple[int, int]:
    return (address.version, int(address))
