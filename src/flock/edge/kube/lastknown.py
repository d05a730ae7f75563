"""The last known state of the cluster, on disk: a node that boots while the API server is away still isolates.

Written some seconds after a change and at the end, never in the way of anything; read only if the API server does not
answer at start, or does not know a kind that it may not have loaded yet.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flock.core.errors import FlockError
from flock.core.kinds import ALL, NODE_CONFIGS, TEMPLATES, Extent, Key, Kind
from flock.edge.cache import Cache, Problem
from flock.edge.kube.following import Following
from flock.edge.placing import place

log = logging.getLogger("memory")

FILE = "cluster.json"
RECALL_AFTER = 10.0  # an API server that restarts with us is back by then
SAVE_AFTER = 5.0  # gathers changes: a write in this long at most
SAVE_RATE = 200  # and so many objects a second at most: pods of a large cluster change all the time
AWAY = Problem("the API server", "away since this agent started; the last known state is in force")

TOLD = Extent("/")  # among what was followed, to tell nothing from not told; no namespace has that name

Objects = Mapping[Key, Any]


class _Remembered(msgspec.Struct, frozen=True):
    kind: str
    namespace: str
    name: str
    object: msgspec.Raw


class LastKnown:
    """`followings`: who takes what was known of partial kinds."""

    def __init__(self, directory: Path, cache: Cache, followings: Sequence[Following]) -> None:
        self._followings = followings
        self._path = directory / FILE
        self._cache = cache
        self._recalled: set[str] = set()  # kinds that are known from an earlier life alone
        self._unsaved = asyncio.Event()
        cache.subscribe(self._unsaved.set)

    async def run(self) -> None:
        """Until cancelled; what was not saved is then."""
        try:
            await asyncio.sleep(RECALL_AFTER)
            if not self._cache.synced:
                self._recall_all(await asyncio.to_thread(self._load))
            while True:
                await self._unsaved.wait()
                size = sum(len(self._cache.table(kind)) for kind in self._cache.kinds)
                await asyncio.sleep(max(SAVE_AFTER, size / SAVE_RATE))
                self._unsaved.clear()
                if kept := self._kept():
                    await asyncio.to_thread(self._save, kept)
        finally:
            if self._unsaved.is_set() and (kept := self._kept()):
                self._save(kept)

    def _kept(self) -> dict[str, Objects]:
        """All that is to be remembered; nothing while some of it is a memory itself."""
        if not self._cache.synced or self._recalled:
            return {}
        kept: dict[str, Objects] = {
            kind.name: dict(self._cache.table(kind)) for kind in self._cache.kinds if kind.remembered
        }
        for kind in (following.kind for following in self._followings):
            extents = (TOLD, *self._cache.extents(kind))
            kept[_followed(kind)] = {(extent.namespace, extent.labels): None for extent in extents}
        return kept

    async def recall(self, kind: Kind[Any]) -> None:
        """What an earlier life knew of a kind that the server does not know now, unless it has told it in this one."""
        if not self._cache.is_listed(kind):
            for key, value in (await asyncio.to_thread(self._load)).get(kind.name, {}).items():
                self._cache.put(kind, key, value)

    def listed(self, kind: Kind[Any]) -> None:
        """The API server has told all of a kind: nothing of it is a memory any more."""
        self._recalled.discard(kind.name)
        if not self._recalled:
            self._cache.complain(self)
            for following in self._followings:
                following.doubt()

    def _recall_all(self, known: Mapping[str, Objects]) -> None:
        """Go on with what was known before; the first list of each kind, whenever it succeeds, corrects it."""
        if not known.get(NODE_CONFIGS.name) and not known.get(TEMPLATES.name):
            return
        for kind in self._cache.kinds:
            if not kind.partial and not self._cache.is_listed(kind):
                for key, value in known.get(kind.name, {}).items():
                    self._cache.put(kind, key, value)
                self._recalled.add(kind.name)
                self._cache.recalled(kind, [ALL])
        for following in self._followings:
            extents = known.get(_followed(following.kind)) or {("", ""): None}  # an older one did not tell
            following.recall(known.get(following.kind.name, {}), [Extent(*extent) for extent in extents])
        if self._recalled:
            self._cache.complain(self, AWAY)

    def _save(self, kinds: Mapping[str, Objects]) -> None:
        """Best effort: without it only a boot without the API server is worse off."""
        content = [
            {"kind": kind, "namespace": key[0], "name": key[1], "object": value}
            for kind, objects in kinds.items()
            for key, value in objects.items()
        ]
        try:
            place(self._path, msgspec.json.encode(content), mode=0o600)
        except FlockError as error:
            log.warning("could not keep the last known state problem=%s", error)

    def _load(self) -> dict[str, dict[Key, Any]]:
        """By kind.  What cannot be read is as good as not there."""
        decoders: dict[str, Callable[[bytes], Any]] = {k.name: k.decode for k in self._cache.kinds if k.remembered}
        decoders |= {_followed(following.kind): lambda _: None for following in self._followings}
        found: dict[str, dict[Key, Any]] = {name: {} for name in decoders}
        try:
            entries = msgspec.json.decode(self._path.read_bytes(), type=list[_Remembered])
            for entry in entries:
                if entry.kind in decoders:
                    found[entry.kind][entry.namespace, entry.name] = decoders[entry.kind](bytes(entry.object))
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            log.warning("could not read the last known state file=%s problem=%s", self._path, error)
        return found


def _followed(kind: Kind[Any]) -> str:
    """In the place of a kind: extents of a partial one, as objects whose namespace and labels they are."""
    return f"{kind.name}/followed"
