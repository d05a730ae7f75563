"""What is known of the cluster's objects: one table per kind, fed from one side and read from the other.

Feeders put, drop and refuse objects, and say when all of a kind has been listed; they hear nothing of who reads.  The
tables hold the last good version of everything and are changed only between two turns of the loop, so nobody sees half
of a change.  Who has to know what changed takes a `Reader` and reads at its own pace.  Who only has to look again
subscribes, and is told once per turn of the loop.  Both name the kinds they are concerned with, or what they see of a
kind (`Aspect`): a kubelet writes of each pod again and again, and most of it is news to nobody or to one of them.

Of a kind that costs much (`Kind.partial`) is followed what its reader says it needs, extent by extent.  For the event
loop's thread.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakSet

import msgspec

from flock.core.kinds import ALL, KINDS, Aspect, Extent, Key, Kind

T = TypeVar("T")
ChangeKey = tuple[str, str, str]  # name of the kind, namespace, name
Concern = Kind[Any] | Aspect[Any]


class Problem(msgspec.Struct, frozen=True):
    """An object or file that was refused; its last good version, if any, stays in force (invariant 7)."""

    where: str
    message: str


class Watch(msgspec.Struct, kw_only=True):
    """How one kind of object, or an extent of it, is followed: `heard` is when the other end last said anything (as
    told by `watches`: how many seconds ago), `silences` how often it was given up because it said nothing.  `absent`:
    the other end does not know the kind, and need not."""

    kind: str
    extent: str = ""  # empty: all of it
    up: bool = False
    problem: str = ""
    heard: float
    silences: int = 0
    absent: bool = False


class Cache:
    def __init__(self, *, node: str, kinds: Sequence[Kind[Any]] = KINDS) -> None:
        self.node = node
        self.kinds = kinds
        self._tables: dict[str, dict[Key, Any]] = {kind.name: {} for kind in kinds}
        self._listed: dict[str, set[Extent]] = {kind.name: set() for kind in kinds}
        self._needed: dict[str, dict[Extent, float]] = {kind.name: {} for kind in kinds if kind.partial}  # since when
        # Kinds that are known from an earlier life alone, and what it followed of them.
        self._remembered: dict[str, frozenset[Extent]] = {}
        self._readers: WeakSet[Reader] = WeakSet()
        self._refused: dict[str, dict[Key, str]] = {kind.name: {} for kind in kinds}
        self._complaints: dict[Hashable, tuple[Problem, ...]] = {}
        self.passed_over: dict[str, tuple[str, ...]] = {}  # files, and the nodes whose NodeConfigs are in them
        self.outdated: dict[str, str] = {}  # files that have the own NodeConfig as it was, and why
        self._watches: dict[tuple[str, Extent], Watch] = {}
        self._subscribers: list[_Subscriber] = []
        self._due: set[_Subscriber] = set()  # to be told at the end of this turn of the loop
        self._arrival = asyncio.Event()

    # --- for readers ---

    def table(self, kind: Kind[T]) -> Mapping[Key, T]:
        """The table itself: as current later as it is now."""
        return self._tables[kind.name]

    def own(self, kind: Kind[T]) -> T | None:
        """This node's object of a kind of which each node has one."""
        return self.table(kind).get(("", self.node))

    def reader(self, *concerns: Concern) -> "Reader":
        reader = Reader(self, concerns)
        self._readers.add(reader)
        return reader

    def need(self, kind: Kind[Any], extents: Collection[Extent]) -> None:
        """From now on this much of a partial kind, whatever was needed before; for its one reader."""
        before = self._needed[kind.name]
        if before.keys() != set(extents):
            now = time.monotonic()
            self._needed[kind.name] = {extent: before.get(extent, now) for extent in extents}
            self._tell_soon()

    def lacking(self, kind: Kind[Any]) -> Mapping[Extent, float]:
        """What is needed of a partial kind and not listed yet, and since when."""
        listed = self._listed[kind.name]
        return {} if ALL in listed else {e: since for e, since in self._needed[kind.name].items() if e not in listed}

    def extents(self, kind: Kind[Any]) -> frozenset[Extent]:
        """What of a partial kind is listed, by the server or else by what an earlier life followed."""
        listed = frozenset(self._listed[kind.name])
        remembered = self._remembered.get(kind.name)
        return listed if remembered is None else (listed - {ALL}) | remembered

    def everything(self, kinds: Iterable[str]) -> list[ChangeKey]:
        """For `Reader.changes`."""
        return [(name, *key) for name in kinds for key in self._tables[name]]

    def subscribe(self, callback: Callable[[], None], *, of: Collection[Concern] | None = None) -> None:
        """`callback` runs on the loop after changes `of` these (None: of all), and after those of what is needed,
        listed or wrong; it must not block."""
        self._subscribers.append(_Subscriber(self.kinds if of is None else of, callback))

    async def changed(self) -> None:
        """Returns at the next change."""
        self._arrival.clear()
        await self._arrival.wait()

    @property
    def synced(self) -> bool:
        """True once the first full listing is in; stays True for good."""
        return all(self._listed[kind.name] for kind in self.kinds if not kind.partial)

    @property
    def complete(self) -> bool:
        """True while all that pods wait for has been listed: also what was not needed from the start."""
        return self.synced and not any(self.lacking(kind) for kind in self.kinds if kind.partial and kind.pods_wait)

    @property
    def troubles(self) -> tuple[Problem, ...]:
        """What keeps feeders from reading; no tenant can add to it."""
        found = [problem for problems in self._complaints.values() for problem in problems]
        for kind in self.kinds:
            watches = [watch for (name, _), watch in self._watches.items() if name == kind.name]
            found += (Problem(f"watch of {kind.path}", watch.problem) for watch in watches if watch.problem)
        return _in_order(found)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The same and every object that was refused."""
        return _in_order(
            self.troubles
            + tuple(
                Problem(f"{kind.kind} {'/'.join(filter(None, key))}", why)
                for kind in self.kinds
                for key, why in self._refused[kind.name].items()
            )
        )

    @property
    def watches(self) -> tuple[Watch, ...]:
        """What is followed over a connection that may be lost; not what the other end does not know."""
        now, followed = time.monotonic(), (watch for watch in self._watches.values() if not watch.absent)
        return tuple(msgspec.structs.replace(watch, heard=round(now - watch.heard, 1)) for watch in followed)

    # --- for feeders ---

    def needed(self, kind: Kind[Any]) -> Collection[Extent]:
        """Of a partial kind."""
        return self._needed[kind.name].keys()

    def put(self, kind: Kind[T], key: Key, value: T) -> None:
        """What says nothing new is no change: most of what happens to a pod concerns nobody here."""
        if self._refused[kind.name].pop(key, None) is not None:
            self._tell_soon()
        before = self._tables[kind.name].get(key)
        if before != value:
            self._tables[kind.name][key] = value
            self._change(kind.name, key, before, value)

    def drop(self, kind: Kind[Any], key: Key) -> None:
        if self._refused[kind.name].pop(key, None) is not None:
            self._tell_soon()
        before = self._tables[kind.name].pop(key, None)
        if before is not None:
            self._change(kind.name, key, before, None)

    def refuse(self, kind: Kind[Any], key: Key, why: str) -> None:
        """Its last good version, if there is one, stays; told until the object is put or dropped."""
        self._refused[kind.name][key] = why
        self._tell_soon()

    def known(self, kind: Kind[Any]) -> set[Key]:
        """All that may have to be dropped: what is in the table, and what was refused."""
        return self._tables[kind.name].keys() | self._refused[kind.name].keys()

    def complain(self, about: Hashable, *problems: Problem) -> None:
        """What is wrong with one thing a feeder reads, in place of what was said of it before; nothing ends it."""
        if problems != self._complaints.get(about, ()):
            self._complaints.pop(about, None)
            if problems:
                self._complaints[about] = problems
            self._tell_soon()

    def pass_over(self, file: str, nodes: tuple[str, ...]) -> None:
        """Other nodes' NodeConfigs in a file, in place of what was said of it before: for whoever lacks one."""
        if nodes != self.passed_over.pop(file, ()):
            self._tell_soon()
        if nodes:
            self.passed_over[file] = nodes

    def keep_config(self, file: str, why: str) -> None:
        """The own NodeConfig is there as a file had it earlier, and why; in place of what was said of it before."""
        if why != self.outdated.pop(file, ""):
            self._tell_soon()
        if why:
            self.outdated[file] = why

    def recalled(self, kind: Kind[Any], extents: Collection[Extent]) -> None:
        """What an earlier life knew of a kind has been put, in place of all there is.  It followed these."""
        self.listed(kind)
        self._remembered[kind.name] = frozenset(extents)

    def listed(self, kind: Kind[Any], extent: Extent = ALL) -> None:
        """All there is of a kind, or of an extent of it, has been put."""
        if extent == ALL:
            self._remembered.pop(kind.name, None)
        if extent not in self._listed[kind.name]:
            self._listed[kind.name].add(extent)
            self._tell_soon()

    def unlisted(self, kind: Kind[Any], extent: Extent) -> None:
        """It is not followed any more."""
        self._listed[kind.name].discard(extent)
        if extent == ALL:
            self._remembered.pop(kind.name, None)
        self._watches.pop((kind.name, extent), None)

    def is_told(self, kind: Kind[Any]) -> bool:
        """All of it, in this life, by somebody who knows the kind: what is not there now is gone."""
        absent = (watch.absent for (name, _), watch in self._watches.items() if name == kind.name)
        return self.is_listed(kind) and kind.name not in self._remembered and not any(absent)

    def is_listed(self, kind: Kind[Any], extent: Extent = ALL) -> bool:
        return extent in self._listed[kind.name]

    def watch(self, kind: Kind[Any], extent: Extent = ALL) -> Watch:
        """To be kept up to date by whoever follows it."""
        watch = Watch(kind=kind.name, extent="" if extent.is_all else str(extent), heard=time.monotonic())
        return self._watches.setdefault((kind.name, extent), watch)

    # --- changes ---

    def _change(self, kind: str, key: Key, before: Any, after: Any) -> None:
        for reader in self._readers:
            if reader.is_concerned(kind, before, after):
                reader.note((kind, *key))
        self._tell_soon([one for one in self._subscribers if one.is_concerned(kind, before, after)])

    def _tell_soon(self, concerned: Iterable["_Subscriber"] | None = None) -> None:
        """Many objects may change in one turn of the loop; subscribers hear of it once.  None: it is no object that
        changed, and concerns all."""
        self._arrival.set()
        is_first = not self._due
        self._due.update(self._subscribers if concerned is None else concerned)
        if is_first and self._due:
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        due, self._due = self._due, set()
        for subscriber in self._subscribers:
            if subscriber in due:
                subscriber.callback()


class _Concerned:
    def __init__(self, concerns: Iterable[Concern]) -> None:
        """In the order in which they are named."""
        self._views: dict[str, Callable[[Any], Any] | None] = {}  # None: all of it is seen
        for concern in concerns:
            if isinstance(concern, Aspect):
                self._views[concern.of.name] = concern.view
            else:
                self._views[concern.name] = None

    def is_concerned(self, kind: str, before: Any, after: Any) -> bool:
        if kind not in self._views:
            return False
        view = self._views[kind]
        return view is None or view(before) != view(after)


class _Subscriber(_Concerned):
    def __init__(self, concerns: Iterable[Concern], callback: Callable[[], None]) -> None:
        super().__init__(concerns)
        self.callback = callback


class Reader(_Concerned):
    """What it has not read is kept for it, each object once, however often it changed and however slow the reader is; a
    reader that nobody holds any more is forgotten."""

    def __init__(self, cache: Cache, concerns: Iterable[Concern]) -> None:
        super().__init__(concerns)
        self._cache = cache
        self._unread: dict[ChangeKey, None] | None = None  # None: everything there is

    def note(self, change: ChangeKey) -> None:
        if self._unread is not None:
            self._unread.pop(change, None)
            self._unread[change] = None

    def is_all_of(self, *kinds: Kind[Any]) -> bool:
        """There is something to read, and all of it is of these kinds."""
        return bool(self._unread) and {change[0] for change in self._unread or ()} <= {kind.name for kind in kinds}

    def changes(self) -> list[ChangeKey]:
        """What was put or dropped since the last call, in the order of the last change of each.  The first call tells
        everything there is, by kinds in the order in which they were named."""
        found = self._cache.everything(self._views) if self._unread is None else list(self._unread)
        self._unread = {}
        return found


def _in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.where))
