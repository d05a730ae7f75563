"""How far this node sees into the cluster: what of other nodes' pods, and of Nodes, is followed and listed, of all that
policies of the pods here mean.

What comes to be needed is listed within moments, and waited for that long.  A listing that fails is given up after
PATIENCE, until it succeeds: nobody waits for it any more, and what depends on it is closed.
"""

import asyncio
import contextlib
import time
from collections.abc import Collection, Iterable

from flock.core.kinds import ALL, CLUSTER_NODES, CLUSTER_PODS, Extent
from flock.core.policy.compiled import NODES
from flock.core.policy.reach import Reach, extents, own_extents
from flock.edge.cache import Cache

PATIENCE = 3.0  # of an ADD, and of a policy that is to be replaced, for peers elsewhere to be listed
NAMED = 5  # extents in a message
ALL_NODES = Extent(NODES)  # all there are, or none, are followed

Lacking = dict[Extent, float]


class Outlook:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lacked: frozenset[Extent] = frozenset()  # what was not listed when this was last looked at
        self._given_up: frozenset[Extent] = frozenset()
        self._known: tuple[frozenset[Extent], ...] = ()  # extents of pods and of Nodes

    def need(self, reaches: Collection[Reach], *, namespaces: int) -> None:
        """From now on what is within these, in a cluster with so many namespaces."""
        pods = [reach for reach in reaches if NODES not in (reach.namespaces or ())]
        before = self._cache.needed(CLUSTER_PODS)
        self._cache.need(CLUSTER_PODS, extents(pods, namespaces=namespaces, before=before))
        self._cache.need(CLUSTER_NODES, [ALL] if len(pods) < len(reaches) else [])
        self._lacked |= self._lacking().keys()

    def look(self) -> tuple[bool, bool]:
        """Whether more is listed than when this was last asked, and whether `sees` answers otherwise."""
        lacking, now = self._lacking(), time.monotonic()
        more = bool(self._lacked - lacking.keys())
        given_up = frozenset(extent for extent, since in lacking.items() if now - since >= PATIENCE)
        known = tuple(self._cache.extents(kind) for kind in (CLUSTER_PODS, CLUSTER_NODES))
        turned = given_up != self._given_up or known != self._known
        self._lacked, self._given_up, self._known = frozenset(lacking), given_up, known
        return more, turned

    def sees(self, reach: Reach) -> bool:
        """All within it, or will soon; as of the last look.  Not by the memory of an earlier life that did not."""
        if self._is_listed(reach):
            nodes = NODES in (reach.namespaces or ())
            known = self._cache.extents(CLUSTER_NODES if nodes else CLUSTER_PODS)
            return ALL in known or (not nodes and own_extents(reach) <= known)
        return self._given_up.isdisjoint(_telling(reach))

    def awaits(self, reaches: Iterable[Reach]) -> bool:
        """Is something within these that is not listed, and soon may be?"""
        lacking, now = self._lacking(), time.monotonic()
        for reach in reaches:
            if not self._is_listed(reach):
                ages = [now - since for extent, since in lacking.items() if extent in _telling(reach)]
                if min(ages, default=0.0) < PATIENCE:
                    return True
        return False

    @property
    def lacking(self) -> str:
        """What is needed and not listed yet, in words."""
        return ", ".join("Nodes" if extent == ALL_NODES else str(extent) for extent in sorted(self._lacking())[:NAMED])

    @property
    def awaited(self) -> list[float]:
        """For how many seconds by now, of what is not listed yet and soon may be."""
        now = time.monotonic()
        return [now - since for since in self._lacking().values() if now - since < PATIENCE]

    async def more_is_known(self) -> bool:
        """Once what only just became needed is listed; False if nothing did.  A pod that comes up without it is closed
        to it until then: for a listing that fails, nobody waits longer than PATIENCE."""
        waited = False
        with contextlib.suppress(TimeoutError):
            while awaited := self.awaited:
                waited = True
                async with asyncio.timeout(PATIENCE - min(awaited)):
                    await self._cache.changed()
        return waited

    def _lacking(self) -> Lacking:
        """And since when."""
        nodes = self._cache.lacking(CLUSTER_NODES)
        return {**self._cache.lacking(CLUSTER_PODS), **({ALL_NODES: nodes[ALL]} if nodes else {})}

    def _is_listed(self, reach: Reach) -> bool:
        if NODES in (reach.namespaces or ()):
            return self._cache.is_listed(CLUSTER_NODES)
        own = own_extents(reach)
        return self._cache.is_listed(CLUSTER_PODS) or all(self._cache.is_listed(CLUSTER_PODS, e) for e in own)


def _telling(reach: Reach) -> frozenset[Extent]:
    """Extents that tell of it, in part or all of it."""
    return own_extents(reach) | (frozenset() if NODES in (reach.namespaces or ()) else {ALL})
