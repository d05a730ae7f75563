"""Keeps one kind of object, or an extent of it, as the API server has it: list, then watch, for ever.

A list is taken page by page and compared with what is known, so deletions that happened while nobody was watching are
found.  A watch goes on from the last resourceVersion (bookmarks move it along) until the server ends it.  410, an error
inside the stream, a broken connection, not even a bookmark for SILENCE: whatever it is, after a pause that grows and is
spread at random, either the watch goes on or, where its place is lost, a new list is taken.  What is known stays in
force all the while.

A server may know an older version of a kind alone, or not how to select what is asked for: then it is asked for less.
Of an optional kind the server may know nothing: then it has none of it, and is asked again.  But a server that has just
started does not know its definitions yet, so what is known of such a kind stays until it has said so for DISBELIEF.

Objects are refused one by one: what one tenant wrote keeps nobody from hearing of the others (invariants 7 and 11).
"""

import asyncio
import contextlib
import logging
import random
import sys
import time
from collections.abc import Awaitable, Callable, Set
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec

from flock.core.decoding import Unreadable, decode, decode_identity
from flock.core.errors import FlockError
from flock.core.kinds import ALL, Extent, Key, Kind
from flock.core.nesting import shallow
from flock.edge.cache import Watch
from flock.edge.kube.client import ApiError, KubeClient, TooLong

log = logging.getLogger("watch")

PAGE = 500  # objects asked for at once; fewer where they are so large that an answer gets too long
WATCH_SECONDS = 290  # the server ends a watch after this long; spread so that nodes do not come back all at once
SILENCE = 150.0  # the server sends a bookmark every minute: two were missed
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
DISBELIEF = 300.0  # a server loads its definitions within seconds, a slow one within a minute or two
STABLE = 10.0  # a watch that held this long was a good one: the next pause is short again

NAMELESS: Key = ("", "?")  # an object that does not even tell its name
S = TypeVar("S")
BAD_REQUEST, ABSENT, GONE = 400, 404, 410


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


class Sink(Protocol):
    """Where a reflector puts what it hears."""

    def begin(self) -> None:
        """A list is about to be asked for."""

    def reach(self, version: str) -> None:
        """All up to this version has been told."""

    def has(self, key: Key, version: str) -> bool:
        """Is this what was put?"""

    def put(self, key: Key, version: str, value: Any) -> None: ...

    def drop(self, key: Key, version: str) -> None:
        """It is not there any more, as of a version of it, or of the whole list."""

    def known(self) -> Set[Key]:
        """All that may have to be dropped: what was put, and what was refused."""

    def refuse(self, key: Key, why: str) -> None: ...


class Reflector:
    """Feeds a sink with one kind.  `on_list` runs after each full list, `on_recovery` when the server answers again
    after trouble, `on_absent` each time it says that it does not know the kind; how it goes is in `state`."""

    def __init__(
        self,
        client: KubeClient,
        kind: Kind[Any],
        sink: Sink,
        state: Watch,
        *,
        node: str,
        extent: Extent = ALL,
        on_list: Callable[[], None],
        on_recovery: Callable[[], None],
        on_absent: Callable[[], Awaitable[None]],
    ) -> None:
        self._client = client
        self._kind = kind
        versions = filter(None, (kind.api_version, kind.older))
        self._namespace = extent.namespace
        self._paths = [kind.path_in(extent.namespace, version=version) for version in versions]  # tried in turn
        self._sink = sink
        self._state = state
        self._on_list = on_list
        self._on_recovery = on_recovery
        self._on_absent = on_absent
        self._absent_since: float | None = None
        self._selectable = kind.selectable
        self._selector = {"fieldSelector": kind.selector.format(node=node)} if kind.selector else {}
        self._selector |= {"labelSelector": extent.labels} if extent.labels else {}
        self._owners = frozenset(extent.owners)
        self._hurried = asyncio.Event()
        self._page_size = PAGE
        self._complaint = ""
        self._version = self._reached = ""  # where the watch goes on; how far anything was told
        self._paged = not extent.labels

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
                status = error.status if isinstance(error, ApiError) else 0
                if isinstance(error, Lost) or status in (ABSENT, GONE):
                    self._version = ""
                if status == ABSENT and self._kind.optional:
                    await self._absent(error)
                elif not self._ask_otherwise(status):
                    self._absent_since, self._state.absent = None, False  # who was away may have started anew
                    self._complain(error)
            finally:
                self._state.up = False
            if time.monotonic() - started > STABLE:
                pause = FIRST_PAUSE
            self._hurried.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):
                    await self._hurried.wait()
            pause = min(pause * 2, LONGEST_PAUSE)

    @property
    def _path(self) -> str:
        return self._paths[0]

    def _ask_otherwise(self, status: int) -> bool:
        """A server that does not know the version, or what to select by, may know less."""
        if status == ABSENT and self._kind.older:
            self._paths.append(self._paths.pop(0))
            return self._path != self._kind.path_in(self._namespace)
        simpler = status == BAD_REQUEST and bool(self._selectable)
        self._selectable = "" if simpler else self._selectable
        return simpler

    def hurry(self) -> None:
        """Others are served again: if this one is waiting to try again, it may do so now."""
        self._hurried.set()

    def _complain(self, error: FlockError) -> None:
        """Once, however often the same is tried again; the kind's `Watch` shows it as long as it lasts."""
        if error.msg != self._complaint:
            log.warning("watch failed path=%s problem=%s", self._path, error.msg)
            before = self._state.problem.rpartition(" (since ")[2]
            since = before or f"{datetime.now(UTC):%H:%M:%S} UTC)"
            self._complaint, self._state.problem = error.msg, f"{error.msg} (since {since}"

    async def _absent(self, error: FlockError) -> None:
        await self._on_absent()
        now = time.monotonic()
        since = self._absent_since = self._absent_since or now
        known = self._sink.known()
        if known and now - since < DISBELIEF:
            self._complain(error)
        else:
            for key in known:
                self._sink.drop(key, "")
            self._served()
            self._state.absent = True
        self._on_list()

    def _served(self) -> None:
        self._state.heard, self._state.absent = time.monotonic(), False
        recovered, self._state.problem, self._complaint = bool(self._state.problem), "", ""
        if recovered:
            self._on_recovery()

    # --- listing ---

    async def _list(self) -> None:
        seen: set[Key] = set()
        self._sink.begin()
        page = await self._page("")
        while True:
            self._state.heard = time.monotonic()
            seen |= {self._take(bytes(item))[0] for item in page.items or ()}
            if not page.metadata.continue_:
                break
            page = await self._page(page.metadata.continue_)
        self._version = self._reached = page.metadata.resourceVersion
        if NAMELESS not in seen:  # else it may be any of those that were not seen
            for key in self._sink.known() - seen:
                self._sink.drop(key, self._version)
        self._sink.reach(self._version)
        self._absent_since = None
        self._served()
        self._on_list()

    async def _page(self, token: str) -> _Page:
        """Few objects by their labels are asked for at once, of what the server has in memory, but nothing older than
        was told: it has no index of labels, and would read all there is from its disk for each such list."""
        paged = {"limit": str(self._page_size)} if self._paged else {"resourceVersion": self._reached or "0"}
        query = {**self._selecting(), **paged} | ({"continue": token} if token else {})
        try:
            return await _understood(await self._client.get(f"{self._path}?{urlencode(query)}"), _Page)
        except TooLong:
            if self._page_size == 1:
                raise
            self._page_size //= 2 if self._paged else 1
            self._paged = True
            return await self._page(token)
        except ApiError as error:
            if error.status == GONE and token:
                raise Lost("the list's continuation expired") from None
            raise

    def _selecting(self) -> dict[str, str]:
        fields = ",".join(filter(None, (self._selector.get("fieldSelector"), self._selectable)))
        return self._selector | ({"fieldSelector": fields} if fields else {})

    # --- watching ---

    async def _watch(self) -> None:
        seconds = random.randint(WATCH_SECONDS // 2, WATCH_SECONDS)
        query = {
            **self._selecting(),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        try:
            async with self._client.stream(f"{self._path}?{urlencode(query)}", read_timeout=SILENCE) as lines:
                self._state.up = True
                self._served()
                async for line in lines:
                    self._state.heard = time.monotonic()
                    self._event(await _understood(line, _Event))
        except ApiError:
            if time.monotonic() - self._state.heard < SILENCE:
                raise
            self._state.silences += 1
            raise ApiError(f"nothing was heard for {SILENCE:.0f} s, not even a bookmark; asking anew") from None

    def _event(self, event: _Event) -> None:
        raw = bytes(event.object)
        if event.type == "ERROR":
            status = decode(raw, _Status)
            raise Lost(f"{status.code} {status.message}")
        if event.type in ("ADDED", "MODIFIED"):
            _, version = self._take(raw)
            self._version = self._reached = version or self._version
            return
        with contextlib.suppress(Unreadable):
            identity = decode_identity(raw)
            if event.type == "DELETED":
                self._sink.drop((identity.namespace, identity.name), identity.resource_version)
            self._version = self._reached = identity.resource_version or self._version
            if event.type == "BOOKMARK":
                self._sink.reach(self._version)

    # --- objects ---

    def _take(self, raw: bytes) -> tuple[Key, str]:
        """Whatever it is, it concerns this object alone; what cannot be taken leaves the last good version in force.
        Returns which it is, and its version if it tells one."""
        key, version = NAMELESS, ""
        try:
            identity = decode_identity(raw)
            key, version = (sys.intern(identity.namespace), sys.intern(identity.name)), identity.resource_version
            if version and self._sink.has(key, version):
                return key, version  # listed again, unchanged
            decoded = self._wanted(self._kind.decode(raw))
        except Exception as error:
            if not isinstance(error, FlockError):
                log.exception("could not read an object path=%s key=%s", self._path, key)
            self._sink.refuse(key, str(error))
            return key, version
        if decoded is None:
            self._sink.drop(key, version)
        else:
            self._sink.put(key, version, decoded)
        return key, version

    def _wanted(self, decoded: Any) -> Any:
        if decoded is not None and self._owners and self._kind.owner and self._kind.owner(decoded) not in self._owners:
            return None
        return decoded


async def _understood(raw: bytes, shape: type[S]) -> S:
    try:
        try:
            return msgspec.json.decode(raw, type=shape)
        except RecursionError:  # beside the loop, for it takes a while
            return decode(await asyncio.to_thread(shallow, raw), shape)
    except (msgspec.DecodeError, UnicodeDecodeError, Unreadable) as error:
        raise ApiError(f"the API server sent something else than expected: {error}") from None
