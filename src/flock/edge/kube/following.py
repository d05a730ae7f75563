"""Follows as much of a partial kind as is needed: a reflector for each extent, begun and ended as needs change.

What is newly needed is listed at once.  What is needed no more is let go of late, and never before all that is needed
has been listed: so what is known and needed stays known while watches are regrouped.  Extents beside one that tells
everything go as soon as that has been listed.  LINGER keeps a tenant who needs and needs not, by turns, from having
everything listed again and again: a list of all pods is as long as their changes in that time.  LINGERING keeps one who
needs ever others from having as many watches kept; what names owners never comes back as it was, and does not linger.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from flock.core.kinds import ALL, Extent, Key, Kind
from flock.edge.cache import Cache
from flock.edge.kube.merging import Merged, Part
from flock.edge.kube.reflector import Reflector, Sink

LINGER = 600.0  # seconds
LINGERING = 32  # extents beside ALL

Reflecting = Callable[[Kind[Any], Sink, Extent, Callable[[], None]], Reflector]


class Following:
    def __init__(self, cache: Cache, kind: Kind[Any], reflecting: Reflecting) -> None:
        self.kind = kind
        self._cache = cache
        self._reflecting = reflecting
        self._merged = Merged(cache, kind)
        self._parts: dict[Extent, Part] = {}
        self._tasks: dict[Extent, asyncio.Task[None]] = {}
        self._listed: set[Extent] = set()
        self._idle: dict[Extent, float] = {}  # since when they are not needed
        self._memory: Part | None = None
        self._changed = asyncio.Event()
        cache.subscribe(self._changed.set, of=())

    async def run(self) -> None:
        """Until cancelled.  A reflector that fails ends all of them; begun again, they list; what is known stays."""
        async with asyncio.TaskGroup() as group:
            for extent in self._parts:
                self._reflect(group, extent)
            while True:
                self._changed.clear()
                self._adapt(group)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._patience()):
                        await self._changed.wait()

    def recall(self, known: Mapping[Key, Any], extents: Collection[Extent]) -> None:
        """What an earlier life knew, for as long as nobody tells what is needed.  `extents`: what it followed."""
        self._memory = self._merged.open(ALL)
        for key, value in known.items():
            if key not in self._cache.table(self.kind):
                self._memory.put(key, "", value)
        self._cache.recalled(self.kind, extents)

    def doubt(self) -> None:
        """The server is back: what it tells of policies may need others than an earlier life did."""
        if self._memory is not None and ALL not in self._listed:
            self._cache.unlisted(self.kind, ALL)
        self._changed.set()

    def _adapt(self, group: asyncio.TaskGroup) -> None:
        needed, now = set(self._cache.needed(self.kind)), time.monotonic()
        self._idle = {extent: self._idle.get(extent, now) for extent in self._parts if extent not in needed}
        late = self._late(now)
        if ALL not in self._listed or ALL in late:  # else all of it is told for a while yet
            for extent in sorted(needed - self._parts.keys()):
                self._parts[extent] = self._merged.open(extent)
                self._reflect(group, extent)
        if needed <= self._listed:
            for extent in self._idle if ALL in needed else late:
                self._end(extent)
            if needed and self._memory is not None:
                self._merged.close(self._memory)
                self._memory = None
                if ALL not in needed:
                    self._cache.unlisted(self.kind, ALL)

    def _late(self, now: float) -> set[Extent]:
        """What has lingered long enough."""
        newest = sorted((extent for extent in self._idle if extent != ALL), key=self._idle.__getitem__, reverse=True)
        late = {extent for extent, since in self._idle.items() if since + LINGER <= now or extent.owners}
        return late.union(newest[LINGERING:])

    def _patience(self) -> float | None:
        """Until something has lingered long enough."""
        soonest = min(self._idle.values(), default=None)
        return None if soonest is None else max(1.0, soonest + LINGER - time.monotonic())

    def _reflect(self, group: asyncio.TaskGroup, extent: Extent) -> None:
        part = self._parts[extent]

        def listed() -> None:
            self._listed.add(extent)
            self._cache.listed(self.kind, extent)
            self._changed.set()

        reflector = self._reflecting(self.kind, part, extent, listed)
        self._tasks[extent] = group.create_task(reflector.run())

    def _end(self, extent: Extent) -> None:
        self._tasks.pop(extent).cancel()
        self._listed.discard(extent)
        self._cache.unlisted(self.kind, extent)
        self._merged.close(self._parts.pop(extent))
