"""The durable record of who holds which address, and what is on it at the moment.

A change is on disk (`edge/ondisk.py`) before its caller goes on.  Callers that come while changes are being written
share the next round (`edge/batching.py`).  If a round fails, memory keeps the old state and every caller of it gets the
error.  Work that has begun and not ended is noted elsewhere (`edge/halfdone.py`) and lies over the record.  Its outcome
may be written ahead, while it goes on: that says of itself that it is unfinished, and to finish it takes no flush.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from flock.core.errors import StoreFailure
from flock.core.model import Allocation, Released
from flock.core.statefile import Change, Record, completed
from flock.edge.batching import Rounds
from flock.edge.boot import boot_id
from flock.edge.halfdone import HalfDone
from flock.edge.ondisk import OnDisk, Place
from flock.edge.statedir import InDoubt, StateDirectory
from flock.edge.worker import Worker, unheard

log = logging.getLogger("store")


class _Ahead(msgspec.Struct):
    """A change that is written, or on its way, before what it says is true."""

    allocation: Allocation
    written: "asyncio.Future[None]"
    place: Place | None = None  # None: not there yet, or in the file


class Store:
    """For the event loop's thread; changes are written in one thread of its own.

    Readers see durable state, and half-done work over it.  At most one change per container may be under way: the
    verbs' lock sees to it.
    """

    def __init__(self, directory: Path, *, node: str, cooldown: float, half_done: Path) -> None:
        self._disk = OnDisk(StateDirectory(directory), node=node)
        self._half_done = HalfDone(half_done)
        self._marked: dict[str, Allocation] = {}
        self._record = Record(cooldown=cooldown)  # as on disk
        self._view: dict[str, Allocation] = {}  # with half-done work over it
        self._number = 0  # of the last round, failed ones included
        self._doubtful: dict[str, int] = {}  # whose change failed, in which round, and may be on disk all the same
        self._changes = Rounds(self._flush)
        self._ahead: dict[str, _Ahead] = {}
        self._joined: dict[str, asyncio.Future[None]] = {}  # the change that is on its way, by container
        self._worker = Worker("store")
        self._listeners: list[Callable[[], None]] = []
        self.flushes = 0
        self.last_error = ""

    # --- opening ---

    def load(self) -> None:
        """Lock the directory, read what is on disk and make it ready to be written.  A missing file is an empty store;
        anything else that is not readable raises StoreFailure, and is left as it is for a human to look at."""
        content, rounds, number = self._disk.load()
        self._marked = {name: completed(noted) for name, noted in self._half_done.load().items()}
        if content is not None:
            self._record.take(content)
        for changes in rounds:
            self._record.apply(map(_judged, changes))
        self._number = number
        self._view = {**self._record.entries, **self._marked}
        if rounds:
            log.info("found changes in the journal rounds=%d", len(rounds))
        try:
            self._disk.fold(self._disk.snapshot(self._record, number=number), number=number)
        except OSError as error:
            self._failed(error)  # reading is enough for those that run

    def subscribe(self, listener: Callable[[], None]) -> None:
        """`listener` runs when there is something to `fold`."""
        self._listeners.append(listener)

    # --- reading ---

    def get(self, container_id: str) -> Allocation | None:
        return self._view.get(container_id)

    @property
    def entries(self) -> Mapping[str, Allocation]:
        return self._view

    @property
    def released(self) -> Iterable[Released]:
        return self._record.released.values()

    # --- writing ---

    def mark(self, pending: Allocation) -> None:
        """Note that work on a container has begun: survives the agent's death, needs no flush.

        `put` or `forget` ends it.  StoreFailure if it cannot be noted, and then nothing was changed.
        """
        self._half_done.set(pending)
        if (earlier := self._ahead.get(pending.container_id)) is not None and earlier.written.done():
            del self._ahead[pending.container_id]  # of work that failed, and could not be undone
        self._marked[pending.container_id] = pending
        self._show(pending.container_id)

    def _unmark(self, container_id: str) -> None:
        if self._marked.pop(container_id, None) is not None:
            self._half_done.clear(container_id)
            self._show(container_id)

    def _show(self, container_id: str) -> None:
        shown = self._marked.get(container_id) or self._record.entries.get(container_id)
        if shown is None:
            self._view.pop(container_id, None)
        else:
            self._view[container_id] = shown

    async def put(self, allocation: Allocation) -> None:
        """Durable when this returns; StoreFailure if it could not be, and then nothing was changed."""
        ahead = await self._caught_up(allocation.container_id)
        if ahead is None or not await self._finish(ahead, allocation):
            joined = self._join(allocation)
            await asyncio.wait([joined])  # who gives up waiting does not end it, and `forget` waits for it then
            del self._joined[allocation.container_id]
            joined.result()
        self._unmark(allocation.container_id)

    def put_ahead(self, allocation: Allocation) -> None:
        """Begin to write what is not true yet: it is `pending`, here and after a death, until `put` or `forget`, which
        wait for it whatever became of whoever began it.  `put` tells if it failed."""
        with contextlib.suppress(StoreFailure):  # it will say so again
            written = self._join(allocation, unfinished=True)
            self._ahead[allocation.container_id] = _Ahead(allocation, written)

    def _join(self, allocation: Allocation, *, unfinished: bool = False) -> "asyncio.Future[None]":
        try:
            msgspec.json.encode(allocation)  # here, so that what cannot be written fails its own caller alone
        except UnicodeEncodeError as error:
            raise StoreFailure(f"container {allocation.container_id!a} cannot be recorded: {error}") from None
        joined = self._changes.join(Change(allocation.container_id, allocation, unfinished=unfinished))
        joined.add_done_callback(unheard)
        self._joined[allocation.container_id] = joined
        return joined

    async def _caught_up(self, container_id: str) -> _Ahead | None:
        """What was written ahead for it, once that, and whatever else is on its way for it, is done."""
        if (joined := self._joined.get(container_id)) is not None:
            if not joined.done():
                await asyncio.wait([joined])
            self._joined.pop(container_id, None)
        return self._ahead.pop(container_id, None)

    async def _finish(self, ahead: _Ahead, allocation: Allocation) -> bool:
        """Not here: a disk that stands still must hold up nobody else."""
        ahead.written.result()
        if ahead.place is None or ahead.allocation != allocation:
            return False
        finished = self._worker.run(self._disk.finish, ahead.place, allocation)
        finished.add_done_callback(lambda done: self._note_finished(allocation, done))
        await asyncio.wait([finished])
        return finished.result()

    def _note_finished(self, allocation: Allocation, done: "asyncio.Future[bool]") -> None:
        if not done.cancelled() and done.exception() is None and done.result():
            self._record.apply([Change(allocation.container_id, allocation)])
            self._disk.noted(allocation.container_id)
            self._show(allocation.container_id)

    async def forget(self, container_id: str, *, released: Iterable[Released]) -> None:
        """Drop the entry; `released` addresses cool down from now on, across restarts."""
        await self._caught_up(container_id)
        if container_id in self._record.entries or container_id in self._doubtful:
            await self._changes.join(Change(container_id, None, tuple(released)))
        self._unmark(container_id)

    async def fold(self) -> None:
        """Bring the file up to all that was answered until now; StoreFailure if it cannot be.  Slows nobody down."""
        while (whole := self._disk.snapshot_now(self._record, number=(number := self._number))) is None:
            await self._worker.run(_nothing)  # behind whoever is at it
        try:
            await asyncio.to_thread(self._disk.fold, whole, number=number)
        except OSError as error:
            raise self._failed(error) from None
        self._doubtful = {who: failed for who, failed in self._doubtful.items() if failed > number}
        self.last_error = ""

    async def close(self) -> None:
        """The file is complete then, if it can be written."""
        await self._changes.finished()
        self._worker.close()
        self._disk.close(self._disk.snapshot(self._record, number=self._number), number=self._number)

    # --- inside ---

    async def _flush(self, changes: list[Change]) -> None:
        number = self._number + 1
        try:
            place = await self._worker.run(self._disk.commit, changes, number=number, record=self._record)
        except Exception as error:
            if isinstance(error, InDoubt):
                self._doubtful |= {change.container_id: number for change in changes}
            raise self._failed(error) from None
        else:
            self._doubtful.clear()
            self._record.apply(changes)
            for n, change in enumerate(changes):
                self._disk.noted(change.container_id)  # whatever it was, it is older
                self._show(change.container_id)
                if change.unfinished and place is not None:
                    self._ahead[change.container_id].place = Place(place.number, place.at + n)
            self.flushes += 1
            self.last_error = ""
        finally:
            self._number = number
            for listener in self._listeners:
                listener()

    def _failed(self, error: Exception) -> StoreFailure:
        if not isinstance(error, OSError):
            log.error("could not write the state file", exc_info=error)
        reason = error.strerror if isinstance(error, OSError) else None
        self.last_error = f"cannot write {self._disk.path}: {reason or error!r}"
        return StoreFailure(self.last_error, details="the previous state file is intact")


def _nothing() -> None:
    pass


def _judged(change: Change) -> Change:
    """What an earlier life did not finish in this boot is half made.  What is of another boot is dead, finished or not,
    for that was noted without a flush: it stays on record, like all that was answered then."""
    if change.unfinished and change.allocation is not None and change.allocation.boot_id != boot_id():
        return msgspec.structs.replace(change, unfinished=False)
    return change
