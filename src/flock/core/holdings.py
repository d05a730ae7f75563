"""Who has which address: held by one container, or shared by several.

The one record of it, so that whatever else is counted (claims by namespace) cannot drift from it.  In memory; `Ipam`
decides who may have what.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Set
from typing import NamedTuple

from flock.core.facts import Address, Network


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


def _key(address: Address) -> tuple[int, int]:
    return (address.version, int(address))


class Holder(NamedTuple):
    container_id: str
    namespace: str


class Holdings:
    def __init__(self) -> None:
        self.claims = Claims()
        self._holder: dict[Address, Holder] = {}
        self._sharers: dict[Address, dict[str, set[str]]] = {}  # anycast: containers by namespace

    def free(self, address: Address) -> bool:
        return address not in self._holder and address not in self._sharers

    def taken(self) -> Set[Address]:
        return self._holder.keys() | self._sharers.keys()

    def holder(self, address: Address) -> str | None:
        holder = self._holder.get(address)
        return holder.container_id if holder else None

    def sharers(self, address: Address) -> frozenset[str]:
        return frozenset(c for containers in self._sharers.get(address, {}).values() for c in containers)

    def rivals(self, address: Address, *, namespace: str, shares: bool, granted: bool) -> Iterator[str]:
        """The containers that keep a pod of the namespace from having the address.  `granted`: all who are granted
        an anycast address may share it, whatever their namespace."""
        if address in self._holder:
            yield self._holder[address].container_id
        for other, containers in self._sharers.get(address, {}).items():
            if not shares or (other != namespace and not granted):
                yield from containers

    def hold(self, address: Address, holder: Holder, *, by_name: bool) -> None:
        if address in self._holder:
            return
        self._holder[address] = holder
        if by_name:
            self.claims.add(holder.namespace, address)

    def share(self, address: Address, sharer: Holder) -> None:
        containers = self._sharers.setdefault(address, {}).setdefault(sharer.namespace, set())
        if sharer.container_id not in containers:
            containers.add(sharer.container_id)
            self.claims.add(sharer.namespace, address)

    def forget(self, address: Address, container_id: str) -> str | None:
        """The namespace for which the container had the address; None if it had it not."""
        holder = self._holder.get(address)
        namespace = None
        if holder is not None and holder.container_id == container_id:
            del self._holder[address]
            namespace = holder.namespace
            self.claims.discard(namespace, address)
        sharers = self._sharers.get(address, {})
        for shared, containers in list(sharers.items()):
            if container_id not in containers:
                continue
            namespace = shared
            self.claims.discard(shared, address)
            containers.discard(container_id)
            if not containers:
                del sharers[shared]
            if not sharers:
                del self._sharers[address]
        return namespace
