"""What reflectors hear, into the cache: of a whole kind from one, or of a partial kind from several that overlap.

Several watches are never at the same place: what one tells of an object may be older than what another has told.  So
the newest version counts, whoever tells it, and who tells of an object's end is believed at once (not so a watch by
labels: the object may only have lost them).  The version with which it ended is kept until all that could still speak
of it are past that.  An object leaves the cache when it is gone, or when nobody follows it any more.  So watches may
come and go, and nobody who reads sees anything but the newest that is known.
"""

from collections.abc import Set
from typing import Any

from flock.core.kinds import Extent, Key, Kind
from flock.edge.cache import Cache


class Whole:
    """The sink of a kind that one reflector tells."""

    def __init__(self, cache: Cache, kind: Kind[Any]) -> None:
        self._cache, self._kind = cache, kind
        self._versions: dict[Key, str] = {}

    def begin(self) -> None: ...

    def reach(self, version: str) -> None: ...

    def has(self, key: Key, version: str) -> bool:
        return self._versions.get(key) == version

    def put(self, key: Key, version: str, value: Any) -> None:
        self._versions[key] = version
        self._cache.put(self._kind, key, value)

    def drop(self, key: Key, version: str) -> None:
        self._versions.pop(key, None)
        self._cache.drop(self._kind, key)

    def known(self) -> Set[Key]:
        return self._cache.known(self._kind)

    def refuse(self, key: Key, why: str) -> None:
        self._cache.refuse(self._kind, key, why)


class Merged:
    """A partial kind, told in parts."""

    def __init__(self, cache: Cache, kind: Kind[Any]) -> None:
        self.cache, self.kind = cache, kind
        self.versions: dict[Key, int] = {}  # the newest known, or with which it ended
        self._parts: list[Part] = []
        self._ended: set[Key] = set()

    def open(self, extent: Extent) -> "Part":
        part = Part(self, extent)
        self._parts.append(part)
        return part

    def close(self, part: "Part") -> None:
        """Nobody tells of it any more: what no other part holds is forgotten."""
        self._parts.remove(part)
        for key in part.keys:
            self.let_go(key)
        self.sweep()

    def end(self, key: Key, version: int) -> None:
        """The object is gone, whoever still holds it."""
        self.versions[key] = version
        self.cache.drop(self.kind, key)
        self._ended.add(key)
        self._forget_end(key)

    def let_go(self, key: Key) -> None:
        """One part less holds it."""
        if key in self._ended:
            self._forget_end(key)
        elif not any(key in part.keys for part in self._tellers(key)):
            self.cache.drop(self.kind, key)
            self.versions.pop(key, None)

    def sweep(self) -> None:
        """Some part is further than it was."""
        for key in list(self._ended):
            self._forget_end(key)

    def begins_again(self, key: Key) -> None:
        """A namesake of what ended."""
        self._ended.discard(key)

    def _forget_end(self, key: Key) -> None:
        """Unless somebody may still tell of what was before it."""
        if not any(key in part.keys or part.place < self.versions[key] for part in self._tellers(key)):
            self._ended.discard(key)
            del self.versions[key]

    def _tellers(self, key: Key) -> list["Part"]:
        return [part for part in self._parts if part.extent.namespace in ("", key[0])]


class Part:
    """The sink of a reflector that tells an extent."""

    def __init__(self, merged: Merged, extent: Extent) -> None:
        self.extent = extent
        self.keys: set[Key] = set()
        self.place = 0  # the version up to which everything has been told
        self._merged = merged
        self._refused: set[Key] = set()

    def begin(self) -> None:
        self.place = 0

    def reach(self, version: str) -> None:
        self.place = _number(version)
        self._merged.sweep()

    def has(self, key: Key, version: str) -> bool:
        return key in self.keys and self._merged.versions.get(key) == _number(version)

    def put(self, key: Key, version: str, value: Any) -> None:
        merged, number = self._merged, _number(version)
        self.keys.add(key)
        self._refused.discard(key)
        if not number or number > merged.versions.get(key, -1):
            merged.versions[key] = number
            merged.begins_again(key)
            merged.cache.put(merged.kind, key, value)

    def drop(self, key: Key, version: str) -> None:
        merged, number = self._merged, _number(version)
        self.keys.discard(key)
        self._refused.discard(key)
        self.place = max(self.place, number)
        if not self.extent.labels and (not number or number >= merged.versions.get(key, -1)):
            merged.end(key, number)
        else:
            merged.let_go(key)

    def known(self) -> Set[Key]:
        return self.keys | self._refused

    def refuse(self, key: Key, why: str) -> None:
        self._refused.add(key)
        self._merged.cache.refuse(self._merged.kind, key, why)


def _number(version: str) -> int:
    """Versions of one kind of object count up; zero for what is none."""
    return int(version) if version.isdigit() else 0
