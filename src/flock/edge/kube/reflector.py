"""Keeps one kind of object as the API server has it: list, then watch, for ever.

A list is taken page by page and compared with what is known, so deletions that happened while nobody was watching are
found.  A watch goes on from the last resourceVersion (bookmarks move it along) until the server ends it.  410, an error
inside the stream, a broken connection, not even a bookmark for SILENCE: whatever it is, after a pause that grows and is
spread at random, either the watch goes on or, where its place is lost, a new list is taken.  What is known stays in
force all the while.

Objects are refused one by one: what one tenant wrote keeps nobody from hearing of the others (invariants 7 and 11).
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from flock.core.decoding import Unreadable, decode, decode_identity
from flock.core.errors import FlockError
from flock.core.nesting import shallow
from flock.edge.kube.client import ApiError, KubeClient, TooLong

log = logging.getLogger("watch")

PAGE = 500  # objects asked for at once; fewer where they are so large that an answer gets too long
WATCH_SECONDS = 290  # the server ends a watch after this long; spread so that nodes do not come back all at once
SILENCE = 150.0  # the server sends a bookmark every minute: two were missed
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
STABLE = 10.0  # a watch that held this long was a good one: the next pause is short again

Key = tuple[str, str]  # namespace, name
NAMELESS: Key = ("", "?")  # an object that does not even tell its name
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


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""


class Lost(FlockError):
    """The place in the stream is lost: list again."""


class Reflector(Generic[T]):
    """`objects` is the last good state, changed only between two turns of the loop.  `changed(key)` runs for each
    object that was added, changed or removed, `refused(key, why)` for each that cannot be read (and again, without a
    reason, when that is over), `on_sync` after the first full list, `on_recovery` when the server answers again after
    trouble; `healthy` while a watch is established.  `problem` is why it is not, and since when."""

    def __init__(
        self,
        client: KubeClient,
        path: str,
        decode: Callable[[bytes], T],
        *,
        changed: Callable[[Key], None],
        on_sync: Callable[[], None],
        on_recovery: Callable[[], None],
        refused: Callable[[Key, str], None],
        selector: Mapping[str, str] | None = None,
    ) -> None:
        self.objects: dict[Key, T] = {}
        self.synced = asyncio.Event()
        self.healthy = False
        self.problem = ""
        self.lists = 0
        self.silences = 0  # watches given up because nothing was heard
        self.heard = time.monotonic()  # when the server last said anything about this kind
        self.path = path
        self._client = client
        self._decode = decode
        self._changed = changed
        self._on_sync = on_sync
        self._on_recovery = on_recovery
        self._hurried = asyncio.Event()
        self._refused = refused
        self._selector = dict(selector or {})
        self._page_size = PAGE
        self._complaint = ""
        self._version = ""
        self._versions: dict[Key, str] = {}
        self._unreadable: set[Key] = set()  # their last good version, if there was one, is in `objects`

    async def run(self) -> None:
        """Until cancelled.  Started again, it trusts no place in the stream and lists."""
        pause, self._version = FIRST_PAUSE, ""
        while True:
            started = time.monotonic()
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except FlockError as error:
                if isinstance(error, Lost) or (isinstance(error, ApiError) and error.status == GONE):
                    self._version = ""
                self._complain(error)
            finally:
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

    def _complain(self, error: FlockError) -> None:
        """Once, however often the same is tried again; `problem` shows it as long as it lasts."""
        if error.msg != self._complaint:
            log.warning("watch failed path=%s problem=%s", self.path, error.msg)
            since = self.problem.rpartition(" (since ")[2] if self.problem else f"{datetime.now(UTC):%H:%M:%S} UTC)"
            self._complaint, self.problem = error.msg, f"{error.msg} (since {since}"

    def _served(self) -> None:
        self.heard = time.monotonic()
        recovered, self.problem, self._complaint = bool(self.problem), "", ""
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
        page = await self._page("")
        while True:
            self.heard = time.monotonic()
            seen |= {self._take(bytes(item)) for item in page.items or ()}
            if not page.metadata.continue_:
                break
            page = await self._page(page.metadata.continue_)
        if NAMELESS not in seen:  # else it may be any of those that were not seen
            for key in [key for key in (*self.objects, *self._unreadable) if key not in seen]:
                self._remove(key)
        self._version = page.metadata.resourceVersion
        self.lists += 1
        self._served()
        if not self.synced.is_set():
            self.synced.set()
            self._on_sync()

    async def _page(self, token: str) -> _Page:
        query = {**self._selector, "limit": str(self._page_size)} | ({"continue": token} if token else {})
        try:
            return await _understood(await self._client.get(f"{self.path}?{urlencode(query)}"), _Page)
        except TooLong:
            if self._page_size == 1:
                raise
            self._page_size //= 2
            return await self._page(token)
        except ApiError as error:
            if error.status == GONE and token:
                raise Lost("the list's continuation expired") from None
            raise

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
        try:
            async with self._client.stream(f"{self.path}?{urlencode(query)}", read_timeout=SILENCE) as lines:
                self.healthy = True
                self._served()
                async for line in lines:
                    self.heard = time.monotonic()
                    self._event(await _understood(line, _Event))
        except ApiError:
            if time.monotonic() - self.heard < SILENCE:
                raise
            self.silences += 1
            raise ApiError(f"nothing was heard for {SILENCE:.0f} s, not even a bookmark; asking anew") from None

    def _event(self, event: _Event) -> None:
        raw = bytes(event.object)
        if event.type == "ERROR":
            status = decode(raw, _Status)
            raise Lost(f"{status.code} {status.message}")
        if event.type in ("ADDED", "MODIFIED"):
            self._take(raw)
        with contextlib.suppress(Unreadable):  # one that was taken has been refused by now
            identity = decode_identity(raw)
            if event.type == "DELETED":
                self._remove((identity.namespace, identity.name))
            self._version = identity.resource_version or self._version

    # --- objects ---

    def _take(self, raw: bytes) -> Key:
        """Whatever it is, it concerns this object alone; what cannot be taken leaves the last good version in force."""
        key = NAMELESS
        try:
            identity = decode_identity(raw)
            key = (identity.namespace, identity.name)
            if identity.resource_version and self._versions.get(key) == identity.resource_version:
                return key  # listed again, unchanged
            decoded = self._decode(raw)
        except Exception as error:
            if not isinstance(error, FlockError):
                log.exception("could not read an object path=%s key=%s", self.path, key)
            self._unreadable.add(key)
            self._refused(key, str(error))
            return key
        self._readable(key)
        self._versions[key] = identity.resource_version
        self.objects[key] = decoded
        self._changed(key)
        return key

    def _readable(self, key: Key) -> None:
        if key in self._unreadable:
            self._unreadable.remove(key)
            self._refused(key, "")

    def _remove(self, key: Key) -> None:
        self._readable(key)
        if self.objects.pop(key, None) is not None:
            self._versions.pop(key, None)
            self._changed(key)


S = TypeVar("S")


async def _understood(raw: bytes, shape: type[S]) -> S:
    try:
        try:
            return msgspec.json.decode(raw, type=shape)
        except RecursionError:  # beside the loop, for it takes a while
            return decode(await asyncio.to_thread(shallow, raw), shape)
    except (msgspec.DecodeError, UnicodeDecodeError, Unreadable) as error:
        raise ApiError(f"the API server sent something else than expected: {error}") from None
