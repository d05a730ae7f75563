"""The journal beside the state file: what it costs, when it is folded, what fails, and which file it belongs to."""

# ruff: noqa: ASYNC240 - looking at a file between two awaits is the point
import asyncio
import errno
import json
import os
from pathlib import Path

import pytest
from store_parts import (
    armed,
    begun,
    containers,
    entry,
    in_file,
    journal,
    on_disk,
    opened,
    reread,
    state_file,
    unread,
)

from flock.core.errors import StoreFailure
from flock.core.journal import BLOCK
from flock.core.model import Released
from flock.edge import journal as journal_module
from looping import looped


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where changes go into a journal from the first on."""
    return begun(tmp_path)


# --- what it costs ---


@looped
async def test_a_change_is_one_durable_write_of_its_own_size_however_many_pods_there_are(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, int]] = []
    pwrite = os.pwrite

    def record(fd: int, data: bytes, at: int) -> int:
        assert os.get_blocking(fd) and Path(f"/proc/self/fd/{fd}").readlink() == journal(directory)
        flags = int(Path(f"/proc/self/fdinfo/{fd}").read_text().split("flags:")[1].split()[0], 8)
        assert flags & os.O_DSYNC, "durable when it returns"
        calls.append(("pwrite", len(data)))
        return pwrite(fd, data, at)

    with opened(directory) as store:
        await asyncio.gather(*(store.put(entry(f"old{n}")) for n in range(300)))
        await store.fold()
        monkeypatch.setattr(os, "pwrite", record)
        for name in ("write", "fsync", "fdatasync", "rename", "open", "ftruncate"):
            monkeypatch.setattr(os, name, lambda *_, name=name: calls.append((name, 0)))
        await store.put(entry("new"))
        await store.forget("old7", released=[])
        monkeypatch.undo()
    assert calls == [("pwrite", BLOCK), ("pwrite", BLOCK)]


@looped
async def test_the_journal_does_not_grow(directory: Path) -> None:
    with opened(directory) as store:
        before = journal(directory).stat()
        for n in range(20):
            await store.put(entry(f"c{n}"))
        after = journal(directory).stat()
        assert (before.st_ino, before.st_size, before.st_blocks) == (after.st_ino, after.st_size, after.st_blocks)


# --- folding ---


@looped
async def test_the_file_follows_when_the_journal_is_folded_and_after_every_clean_stop(directory: Path) -> None:
    told: list[bool] = []
    with opened(directory) as store:
        store.subscribe(lambda: told.append(True))
        await store.put(entry("a"))
        assert (in_file(directory), containers(directory), told) == ([], ["a"], [True])
        await store.fold()
        assert in_file(directory) == ["a"]
        await store.put(entry("b"))
        assert in_file(directory) == ["a"]
    assert in_file(directory) == ["a", "b"]
    assert [p.name for p in directory.iterdir()] == ["allocations.json"], "the file is alone after a clean stop"


@looped
async def test_folding_what_is_folded_writes_nothing(directory: Path) -> None:
    with opened(directory) as store:
        await store.put(entry("a"))
        await store.fold()
        before = state_file(directory).stat().st_ino
        await store.fold()
        assert state_file(directory).stat().st_ino == before


@looped
async def test_changes_go_on_while_the_journal_is_folded(directory: Path) -> None:
    with opened(directory) as store:
        for n in range(40):
            folding = asyncio.create_task(store.fold())
            await asyncio.gather(folding, *(store.put(entry(f"c{n}-{k}")) for k in range(3)))
            assert set(containers(directory)) == set(store.entries)
    assert len(in_file(directory)) == 120


@looped
async def test_a_full_journal_is_begun_anew_after_one_whole_write(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "SIZE", 4 * BLOCK)
    seen = []
    with opened(directory) as store:
        for n in range(12):
            await store.put(entry(f"c{n}"))
            seen.append(len(in_file(directory)))
            assert len(containers(directory)) == n + 1
        await store.put(entry("long", netns="/" + "x" * 5 * BLOCK))
        assert in_file(directory)[-1] == "long", "more than a journal holds"
    assert seen == [0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10, 10]


@looped
async def test_a_disk_with_little_room_gets_no_journal(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "SPARE", 1 << 62)
    with opened(directory) as store:
        await store.put(entry("a"))
        assert in_file(directory) == ["a"] and not journal(directory).exists()


# --- what fails ---


@pytest.mark.parametrize("point", ["journal.write", "journal.written"])
@looped
async def test_where_the_journal_fails_the_file_is_written_instead(directory: Path, point: str) -> None:
    with opened(directory) as store:
        await store.put(entry("a"))
        with armed(f"{point}=EIO"):
            await store.put(entry("b"))
        assert in_file(directory) == ["a", "b"] and not store.last_error
        await store.put(entry("c"))
        assert in_file(directory) == ["a", "b", "c"], "one whose flush failed is not used again"
    assert list(reread(directory)) == ["a", "b", "c"]


@pytest.mark.parametrize("point", ["store.write", "store.sync", "store.rename", "store.renamed"])
@pytest.mark.parametrize("written", ["journal.write", "journal.written"])
@looped
async def test_a_round_that_failed_never_comes_back_once_another_has_succeeded(
    directory: Path, written: str, point: str
) -> None:
    """Its addresses may be somebody else's then."""
    with opened(directory) as store:
        await store.put(entry("a"))
        with armed(f"{written}=EIO,{point}=EIO"):
            for _ in range(2):
                with pytest.raises(StoreFailure):
                    await store.put(entry("failed", ip4="192.0.2.2"))
            with pytest.raises(StoreFailure):
                await store.forget("a", released=[])
        assert list(store.entries) == ["a"] and store.last_error
        await store.put(entry("b", ip4="192.0.2.2"))
        assert containers(directory) == ["a", "b"]
        await store.fold()
        await store.put(entry("c"))
        assert containers(directory) == ["a", "b", "c"] and not store.last_error
    assert list(reread(directory)) == ["a", "b", "c"]


@looped
async def test_while_the_file_cannot_be_written_nothing_more_is_promised(directory: Path) -> None:
    """It would fall behind more and more; as it is, it lacks what came since the last second that was good."""
    with opened(directory) as store:
        await store.put(entry("a"))
        with armed("store.write=ENOSPC"):
            with pytest.raises(StoreFailure, match="No space left"):
                await store.fold()
            assert os.strerror(errno.ENOSPC) in store.last_error
            with pytest.raises(StoreFailure, match="No space left"):
                await store.put(entry("b"))
            assert containers(directory) == ["a"]
        await store.fold()
        assert not store.last_error
        before = in_file(directory)
        await store.put(entry("b"))
        assert in_file(directory) == before == ["a"], "the journal is in use again"


@looped
async def test_a_journal_that_cannot_be_made_costs_nothing_but_time(directory: Path) -> None:
    with armed("journal.make=EDQUOT"), opened(directory) as store:
        for name in "ab":
            await store.put(entry(name))
            await store.fold()
        assert in_file(directory) == ["a", "b"] and not store.last_error


def test_a_stop_that_cannot_write_the_file_leaves_the_journal(directory: Path) -> None:
    with opened(directory) as store:
        asyncio.run(store.put(entry("a")))
        with armed("store.write=EIO"):
            with pytest.raises(StopIteration):
                store.close().send(None)
            assert containers(directory) == ["a"]
    assert list(reread(directory)) == ["a"]


def test_a_start_on_a_disk_that_refuses_to_be_written_knows_what_was_answered(directory: Path) -> None:
    leave(directory, "a", "b")
    with armed("store.write=EROFS,journal.make=EROFS"), opened(directory) as store:
        assert list(store.entries) == ["a", "b"] and "Read-only" in store.last_error
        with pytest.raises(StoreFailure):
            asyncio.run(store.put(entry("c")))
        assert containers(directory) == ["a", "b"]


# --- whose journal it is ---


def leave(directory: Path, *names: str) -> bytes:
    """What an agent that was killed leaves: names in the journal and not in the file.  Returns the journal."""
    with opened(directory) as store:
        for name in names:
            asyncio.run(store.put(entry(name)))
        kept = state_file(directory).read_bytes(), journal(directory).read_bytes()
    state_file(directory).write_bytes(kept[0])
    journal(directory).write_bytes(kept[1])
    assert not set(in_file(directory)) & set(names)
    return kept[1]


def change_file(directory: Path, **changes: object) -> None:
    state_file(directory).write_text(json.dumps({**on_disk(directory), **changes}))


def test_a_start_folds_what_it_finds_before_anything_else(directory: Path) -> None:
    leave(directory, "a", "b")
    with opened(directory) as store:
        assert list(store.entries) == in_file(directory) == ["a", "b"]


def test_what_was_released_rests_although_the_agent_was_killed(directory: Path) -> None:
    with opened(directory) as store:
        asyncio.run(store.put(entry("a", ip4="192.0.2.2")))
    with opened(directory) as store:
        asyncio.run(store.forget("a", released=[Released("192.0.2.2", 7.0, "default")]))
        kept = state_file(directory).read_bytes(), journal(directory).read_bytes()
    state_file(directory).write_bytes(kept[0])
    journal(directory).write_bytes(kept[1])
    with opened(directory) as store:
        assert list(store.released) == [Released("192.0.2.2", 7.0, "default")] and not store.entries


def test_a_file_without_a_journal_is_complete(directory: Path) -> None:
    leave(directory, "a")
    journal(directory).unlink()
    assert list(reread(directory)) == []


def test_a_journal_without_its_file_says_nothing(directory: Path) -> None:
    leave(directory, "a")
    state_file(directory).unlink()
    assert list(reread(directory)) == []


@pytest.mark.parametrize("about", [None, {"id": "ffffffffffffffff", "through": 1}])
def test_a_journal_of_another_file_says_nothing_and_is_replaced(directory: Path, about: object) -> None:
    """An older version, or the original, wrote the file since, and knew of no journal."""
    leave(directory, "a")
    change_file(directory, journal=about)
    with opened(directory) as store:
        assert list(store.entries) == []
        asyncio.run(store.put(entry("b")))
        asyncio.run(store.fold())
        assert containers(directory) == ["b"]
    assert list(reread(directory)) == ["b"]


def test_a_journal_over_a_newer_file_is_harmless(directory: Path) -> None:
    """The file was renamed, and the agent died before anything else."""
    left = leave(directory, "a", "b")
    assert list(reread(directory)) == ["a", "b"]
    journal(directory).write_bytes(left)
    assert list(reread(directory)) == ["a", "b"]


def test_a_journal_that_lacks_something_is_an_error_and_both_files_stay_as_they_are(directory: Path) -> None:
    left = bytearray(leave(directory, "a", "b", "c"))
    left[BLOCK + 100] ^= 1
    journal(directory).write_bytes(left)
    before = state_file(directory).read_bytes()
    store = unread(directory)
    for _ in range(2):
        with pytest.raises(StoreFailure, match=r"allocations\.journal is damaged"):
            store.load()
    with pytest.raises(StopIteration):
        store.close().send(None)
    assert (state_file(directory).read_bytes(), journal(directory).read_bytes()) == (before, bytes(left))
    left[BLOCK + 100] ^= 1
    journal(directory).write_bytes(left)
    assert list(reread(directory)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "about", [{}, {"id": "x", "through": 1}, {"id": "0123456789abcdef", "through": 0}, {"id": "0123456789abcdef"}, 5]
)
def test_a_file_that_says_nonsense_of_its_journal_is_an_error(directory: Path, about: object) -> None:
    change_file(directory, journal=about)
    with pytest.raises(StoreFailure, match="cannot parse"), opened(directory):
        pass
