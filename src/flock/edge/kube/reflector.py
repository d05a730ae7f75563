"""Keeps one kind of object as the API server has it: list, then watch, for ever.

A list is taken page by page and compared with what is known, so deletions that happened while nobody was watching are
found.  A watch goes on from the last resourceVersion (bookmarks move it along) until the server ends it.  410, an error
inside the stream, a broken connection: whatever it is, after a pause that grows and is spread at random, either the
watch goes on or, where its place is lost, a new list is taken.  What is known stays in force all the while.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from flock.core.errors import FlockError
from flock.edge.kube.client import ApiError, KubeClient

log = logging.getLogger("watch")

PAGE = 500
WATCH_SECONDS = 290  # the server ends a watch after this long; spread so that nodes do not come back all at once
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
STABLE = 10.0  # a watch that held this long was a good one: the next pause is short again

Key = tuple[str, str]  # namespace, name
T = TypeVar("T")
GONE = 410


class _ListMeta(msgspec.Struct, frozen=True):
    resourceVersion: str = ""  # noqa: N815 - the API's spelling
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    resourceVersion: str = ""  # noqa: N815


class _Identity(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""


class Lost(Exception):
    """The place in the stream is lost: list again."""


class Reflector(Generic[T]):
    """`objects` is the last good state, changed only between two turns of the loop.  `changed(key)` runs for each
    object that was added, changed or removed, `on_sync` after the first full list, `on_recovery` when the server
    answers again after trouble; `healthy` while a watch is established."""

    def __init__(
        self,
        client: KubeClient,
        path: str,
        decode: Callable[[bytes], T],
        *,
        changed: Callable[[Key], None],
        on_sync: Callable[[], None],
        on_recovery: Callable[[], None],
        selector: Mapping[str, str] | None = None,
        refused: Callable[[Key, str], None] | None = None,
    ) -> None:
        self.objects: dict[Key, T] = {}
        self.synced = asyncio.Event()
        self.healthy = False
        self.problem = ""
        self.lists = 0
        self.path = path
        self._client = client
        self._decode = decode
        self._changed = changed
        self._on_sync = on_sync
        self._on_recovery = on_recovery
        self._hurried = asyncio.Event()
        self._refused = refused
        self._selector = dict(selector or {})
        self._version = ""
        self._versions: dict[Key, str] = {}
        self._unreadable: set[Key] = set()  # their last good version, if there was one, is in `objects`

    async def run(self) -> None:
        """Until cancelled."""
        pause = FIRST_PAUSE
        while True:
            started = time.monotonic()
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except Lost as lost:
                log.info("listing again path=%s reason=%s", self.path, lost)
                self._version = ""
            except FlockError as error:
                if str(error) != self.problem:
                    log.warning("watch failed path=%s problem=%s", self.path, error)
                self.problem = str(error)
                if isinstance(error, ApiError) and error.status == GONE:
                    self._version = ""
            self.healthy = False
            if time.monotonic() - started > STABLE:
                pause = FIRST_PAUSE
            self._hurried.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):
                    await self._hurried.wait()
            pause = min(pause * 2, LONGEST_PAUSE)

    def hurry(self) -> None:
        """Others are served again: if this one is waiting to try again, it may do so now."""
        self._hurried.set()

    def _served(self) -> None:
        recovered, self.problem = bool(self.problem), ""
        if recovered:
            self._on_recovery()

    def restore(self, objects: Mapping[Key, T]) -> None:
        """Start from what was known in an earlier life; the first list, whenever it succeeds, corrects it."""
        if self.synced.is_set():
            return
        self.objects.update(objects)
        for key in objects:
            self._changed(key)
        self.synced.set()
        self._on_sync()

    # --- listing ---

    async def _list(self) -> None:
        seen: set[Key] = set()
        token, version = "", ""
        while True:
            query = {**self._selector, "limit": str(PAGE)} | ({"continue": token} if token else {})
            try:
                raw = await self._client.get(f"{self.path}?{urlencode(query)}")
            except ApiError as error:
                if error.status == GONE and token:
                    raise Lost("the list's continuation expired") from None
                raise
            page = _understood(raw, _Page)
            for item in page.items or ():
                key = self._take(item)
                if key is not None:
                    seen.add(key)
            version = page.metadata.resourceVersion
            token = page.metadata.continue_
            if not token:
                break
        for key in [key for key in (*self.objects, *self._unreadable) if key not in seen]:
            self._remove(key)
        self._version = version
        self.lists += 1
        self._served()
        if not self.synced.is_set():
            self.synced.set()
            self._on_sync()

    # --- watching ---

    async def _watch(self) -> None:
        seconds = random.randint(WATCH_SECONDS // 2, WATCH_SECONDS)
        query = {
            **self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        async with self._client.stream(f"{self.path}?{urlencode(query)}", read_timeout=seconds + 15.0) as lines:
            self.healthy = True
            self._served()
            async for line in lines:
                self._event(_understood(line, _Event))

    def _event(self, event: _Event) -> None:
        raw = bytes(event.object)
        if event.type == "ERROR":
            status = _understood(raw, _Status)
            raise Lost(f"{status.code} {status.message}")
        identity = _understood(raw, _Identity).metadata
        if event.type in ("ADDED", "MODIFIED"):
            self._take(event.object)
        elif event.type == "DELETED":
            self._remove((identity.namespace, identity.name))
        self._version = identity.resourceVersion or self._version

    # --- objects ---

    def _take(self, raw: msgspec.Raw) -> Key | None:
        identity = _understood(bytes(raw), _Identity).metadata
        key = (identity.namespace, identity.name)
        if self._versions.get(key) == identity.resourceVersion:
            return key  # listed again, unchanged
        try:
            decoded = self._decode(bytes(raw))
        except (msgspec.DecodeError, FlockError) as error:
            # The last good version stays in force (invariant 7).
            self._unreadable.add(key)
            if self._refused is not None:
                self._refused(key, str(error))
            return key
        self._readable(key)
        self._versions[key] = identity.resourceVersion
        self.objects[key] = decoded
        self._changed(key)
        return key

    def _readable(self, key: Key) -> None:
        if key in self._unreadable:
            self._unreadable.remove(key)
            if self._refused is not None:
                self._refused(key, "")

    def _remove(self, key: Key) -> None:
        self._readable(key)
        if self.objects.pop(key, None) is not None:
            self._versions.pop(key, None)
            self._changed(key)


S = TypeVar("S")


def _understood(raw: bytes, shape: type[S]) -> S:
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(f"the API server sent something else than expected: {error}") from None
