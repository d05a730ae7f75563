"""The store on disk: <state-dir>/allocations.json, and the journal it goes on in.

Every round of changes has a number, used once.  The file says the last number it has; records in the journal go on from
there without a gap, or are not written.  So whatever dies when, the file and the records that follow it are what was
answered, and at most one round more that was just being written.  A round that failed may be on disk nevertheless: no
record is written after it until a file has been that says its number without its changes.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Sequence
from typing import NamedTuple

from flock.core import journal as records
from flock.core import statefile
from flock.core.model import Allocation
from flock.core.statefile import Change, Content, Continued, Record, Whole
from flock.edge.journal import FILE as JOURNAL
from flock.edge.journal import Journal
from flock.edge.statedir import InDoubt, StateDirectory

log = logging.getLogger("store")

FILE = "allocations.json"


class Place(NamedTuple):
    """Where a change of a round is noted as finished."""

    number: int
    at: int


class OnDisk:
    """`load` first, then `commit` in one thread while others `fold`, `close` last."""

    def __init__(self, directory: StateDirectory, *, node: str) -> None:
        self._directory = directory
        self._node = node
        self._id = os.urandom(8).hex()
        self._through = 0  # the last number in the file; 0: the file, if there is one, knows of no journal
        self._journal = Journal(directory)
        self._alone = threading.Lock()  # for whoever writes the file, or decides whether there is a journal
        self._taken = 0  # the last number that a file has or will have: what it has is finished by another round
        self._finished: dict[str, Allocation] = {}  # noted as finished, until the record says so
        self._behind = False  # the file could not be written when it was due
        self._closed = False
        self.path = directory.path / FILE

    def load(self) -> tuple[Content | None, list[list[Change]], int]:
        """The file, the rounds that its journal adds, and the number of the last.  A journal that is not this file's
        says nothing; without a file none does.  StoreFailure for a file or a journal that lacks or hides something."""
        self._directory.lock()
        raw = self._directory.read(FILE)
        if raw is None:
            return None, [], 0
        content = statefile.decode(raw, where=str(self.path))
        if content.journal is None:
            return content, [], 0
        added = self._directory.read(JOURNAL) or b""
        rounds = list(records.replay(added, after=content.journal, where=str(self._directory.path / JOURNAL)))
        self._id, self._through = content.journal.id, content.journal.through
        return content, rounds, self._through + len(rounds)

    def commit(self, changes: Sequence[Change], *, number: int, record: Record) -> Place | None:
        """Make a round durable; `record` is what was before it.  OSError if that fails: it counts as not written.
        Returns the place of its first change, those of the others follow; None: it is in the file."""
        through, in_doubt = self._through, False
        if not self._behind and number == max(through, self._journal.last) + 1:
            entry = records.encode(changes, owner=self._id, number=number)
            try:
                if (at := self._journal.append(entry, number=number, anew=number == through + 1)) is not None:
                    return Place(number, at)
            except InDoubt as error:
                in_doubt = True
                log.warning("the journal failed, writing the state file instead reason=%s", error.strerror)
        try:
            self._write(self.snapshot(record, number=number, changes=changes), number)
            return None
        except OSError as error:
            in_doubt = in_doubt or isinstance(error, InDoubt)
            with contextlib.suppress(OSError):
                self._write(self.snapshot(record, number=number), number)
                in_doubt = False
            raise (InDoubt if in_doubt else OSError)(error.errno, error.strerror) from None

    def snapshot(self, record: Record, *, number: int, changes: Sequence[Change] = ()) -> Whole:
        """For a file that says `number`, with `changes` over the record.  Waits for whoever notes something, and so for
        the disk."""
        with self._journal.kept:
            return self._snapshot(record, number, changes)

    def snapshot_now(self, record: Record, *, number: int) -> Whole | None:
        """The same, for whoever must not wait.  None: somebody, in the thread that commits, is noting something."""
        if not self._journal.kept.acquire(blocking=False):
            return None
        try:
            return self._snapshot(record, number)
        finally:
            self._journal.kept.release()

    def _snapshot(self, record: Record, number: int, changes: Sequence[Change] = ()) -> Whole:
        self._taken = max(self._taken, number)
        over = [*(Change(*finished) for finished in list(self._finished.items())), *changes]
        return (record.changed_by(over) if over else record).whole()

    def finish(self, place: Place, allocation: Allocation) -> bool:
        """Note that a change which was written ahead is finished, in the thread that wrote it.  That outlives the agent
        and not the machine.  The record is to say so, and then `noted` told.  False: it has to be another change."""
        with self._journal.kept:
            if place.number <= self._taken or not self._journal.finish(place.at):
                return False
            self._finished[allocation.container_id] = allocation
            return True

    def noted(self, container_id: str) -> None:
        self._finished.pop(container_id, None)

    def fold(self, whole: Whole, *, number: int) -> None:
        """Bring the file up to `number`, and let there be a journal.  Until it has succeeded after an OSError, rounds
        are written whole or fail: the file is not left behind for longer than it takes to notice."""
        self._write(whole, number)
        with self._alone:
            needed = self._journal.last > self._through  # records of one that failed, until the file has them
            if self._through and not needed and not self._journal.exists and not self._closed:
                try:
                    self._journal.make()
                except OSError as error:
                    log.warning("no journal, changes are written whole reason=%s", error.strerror)

    def close(self, whole: Whole, *, number: int) -> None:
        """Leaves the file complete and alone.  If it cannot be written, the journal stays for the next start."""
        try:
            self._write(whole, number)
        except OSError as error:
            log.error("left the journal for the next start reason=%s", error.strerror)
        with self._alone:
            self._closed = True
            if 0 < number <= self._through:
                self._journal.remove()
            self._journal.close()
        self._directory.close()

    def _write(self, whole: Whole, number: int) -> None:
        """Never an older state over a newer one."""
        with self._alone:
            if number <= self._through or self._closed:
                return
            content = whole.encode(node=self._node, journal=Continued(id=self._id, through=number))
            try:
                self._directory.replace(FILE, content)
            except OSError:
                self._behind = True
                raise
            self._through, self._behind = number, False
