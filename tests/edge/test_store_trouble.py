"""A store whose disk fails, or stands still, in the middle of things: nothing that was answered is lost, and whoever
has nothing to do with the disk goes on."""

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from store_parts import armed, begun, opened
from test_store_ahead import after_a_death, ahead, made
from test_store_power import Machine, machine  # noqa: F401 - a fixture

from flock.core.journal import BLOCK, FINISHED, encode, finishing_at, replay
from flock.core.statefile import Change, Continued
from flock.edge import journal as journal_module
from flock.edge import statedir
from flock.edge.store import Store
from looping import looped

OWNER = "0123456789abcdef"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return begun(tmp_path / "state")


def is_writer() -> bool:
    return threading.current_thread().name == "store"


class Trouble:
    """A fold stands still in its flush until it is let go; then neither journal nor file takes a round."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store, self._monkeypatch = store, monkeypatch
        self._let_go, self._reached, self._refused = threading.Event(), threading.Event(), threading.Event()
        self._fsync: Callable[[int], None] = os.fsync
        monkeypatch.setattr(statedir.os, "fsync", self._slow)

    def _slow(self, fd: int) -> None:
        if not is_writer():
            self._reached.set()
            self._let_go.wait(60)
        self._fsync(fd)

    async def fold_stands_still(self) -> "asyncio.Task[None]":
        folding = asyncio.create_task(self._store.fold())
        await asyncio.to_thread(self._reached.wait, 60)
        return folding

    def refuse_rounds(self) -> None:
        directory, pwrite = self._store._disk._directory, os.pwrite
        replace = directory.replace

        def refused(*args: object) -> None:
            if is_writer():
                raise OSError(5, "Input/output error")
            replace(*args)  # type: ignore[arg-type]

        def bad(fd: int, data: bytes, at: int) -> int:
            if len(data) > len(FINISHED):
                self._refused.set()
                raise OSError(5, "Input/output error")
            return pwrite(fd, data, at)

        self._monkeypatch.setattr(directory, "replace", refused)
        self._monkeypatch.setattr(os, "pwrite", bad)

    async def let_go(self) -> None:
        """Once a round was refused."""
        await asyncio.to_thread(self._refused.wait, 60)
        await asyncio.sleep(0.1)  # it waits for the file
        self._let_go.set()


@pytest.mark.parametrize("answered", ["put", "forget"])
@looped
async def test_no_journal_is_made_over_records_that_the_file_has_not(
    directory: Path, monkeypatch: pytest.MonkeyPatch, answered: str
) -> None:
    """The file is being brought up to a number, a later round is answered from the journal, and the journal fails."""
    monkeypatch.setattr(journal_module, "RETRY", 0.0)
    with opened(directory) as store:
        await store.put(made("old"))
        trouble = Trouble(store, monkeypatch)
        folding = await trouble.fold_stands_still()
        await (store.put(made("new")) if answered == "put" else store.forget("old", released=[]))
        trouble.refuse_rounds()
        failing = asyncio.create_task(store.put(made("fails")))
        await trouble.let_go()
        await asyncio.wait([folding, failing])
        assert failing.exception() is not None
        assert sorted(after_a_death(directory)) == sorted(store.entries)
        monkeypatch.undo()


@looped
async def test_who_gave_up_waiting_for_a_record_and_forgets_it_leaves_none(directory: Path) -> None:
    with opened(directory) as store:
        store.mark(made("a", state="pending"))
        adding = asyncio.create_task(store.put(made("a")))
        for _ in range(2):
            await asyncio.sleep(0)
        adding.cancel()
        await store.forget("a", released=[])
        await store._changes.finished()
        assert not store.entries and after_a_death(directory) == {}


@looped
async def test_work_that_begins_anew_hears_nothing_of_what_failed_before(directory: Path) -> None:
    """The record of the first attempt could not be written, and the attempt not be undone."""
    with opened(directory) as store:
        store.mark(made("a", state="pending"))
        with armed("store.write=ENOSPC,journal.make=ENOSPC,journal.write=ENOSPC"):
            await ahead(store, made("a"))
        store.mark(made("a", state="pending"))
        await store.put(made("a"))
        assert after_a_death(directory)["a"] == made("a")


@looped
async def test_a_journal_that_cannot_be_closed_is_not_written_to(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be another file's by then."""
    with opened(directory) as store:
        await ahead(store, made("a"))
        ends = store._disk._journal._fd, store._disk._journal._unflushed
        close, left = os.close, list(ends)

        def refused(fd: int) -> None:
            close(fd)
            if fd in left:
                left.remove(fd)
                raise OSError(5, "Input/output error")

        with armed("journal.write=EIO@1"), monkeypatch.context() as patched:
            patched.setattr(journal_module.os, "close", refused)
            await store.put(made("b"))
        others = [os.open(tmp_path / f"{n}", os.O_RDWR | os.O_CREAT) for n in range(4)]
        assert set(ends) & set(others)
        await store.put(made("c"))
        assert [os.fstat(fd).st_size for fd in others] == [0] * 4
        assert sorted(after_a_death(directory)) == ["a", "b", "c"]
        for fd in others:
            close(fd)


def test_a_record_of_which_the_last_block_is_an_older_ones_is_not_finished_by_that() -> None:
    """A process that is killed while it writes leaves whole blocks of what it wrote."""
    for length in range(BLOCK - 700, BLOCK + 100):
        older, newer = (
            encode([Change(name, made(name, annotations={"x": "y" * length}), unfinished=True)], owner=OWNER, number=n)
            for name, n in (("a", 2), ("b", 3))
        )
        at = finishing_at(older)
        older = older[:at] + FINISHED + older[at + 1 :]
        for cut in range(BLOCK, len(newer) + 1, BLOCK):
            found = list(replay(newer[:cut] + older[cut:], after=Continued(OWNER, 2), where=""))
            assert all(change.unfinished for [change] in found)


FOR_A_WHILE = 'fsfreeze -f "$0" && echo frozen && sleep 2; fsfreeze -u "$0"'  # whatever becomes of the test


@looped
async def test_a_disk_that_stands_still_holds_up_only_those_who_write_to_it(machine: Machine) -> None:  # noqa: F811
    """As one does while a snapshot of it is taken."""
    with opened(begun(machine.room("state"))) as store:
        await ahead(store, made("a"))
        frozen = await asyncio.create_subprocess_exec("sh", "-c", FOR_A_WHILE, machine.disk, stdout=subprocess.PIPE)
        assert frozen.stdout is not None and await frozen.stdout.readline() == b"frozen\n"
        putting = asyncio.create_task(store.put(made("a")))
        folding = asyncio.create_task(store.fold())
        turns = 0
        while frozen.returncode is None:
            await asyncio.sleep(0.01)
            turns += not putting.done()
        await asyncio.wait_for(asyncio.gather(putting, folding), 60)
        assert turns > 20 and store.entries["a"].state == "committed"
