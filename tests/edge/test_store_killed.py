"""Killed at every step, and refused at every step in any order: what was answered is on disk, and nothing else is."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from store_lives import STEPS, finished, lived
from store_parts import armed, begun, containers, entry, in_file, journal, opened, reread, shut, state_file, unread

from flock.core.errors import StoreFailure
from flock.edge import journal as journal_module
from flock.edge.boot import boot_id
from flock.edge.store import Store
from harness import recorded
from thoroughness import examples, slowly

# --- killed ---


@pytest.mark.parametrize("start", ["on a file", *slowly("anew")])
@pytest.mark.parametrize("point", STEPS)
def test_a_kill_at_any_step_loses_nothing_that_was_answered_and_brings_nothing_back(
    tmp_path: Path, point: str, start: str
) -> None:
    for count in range(1, 40):
        directory = tmp_path / f"{count}"
        directory.mkdir()
        if start == "on a file":
            begun(directory)
        possible, code = lived(directory, f"{point}=kill@{count}")
        if code == 0:
            break
        assert code == -9
        if state_file(directory).exists():
            assert set(containers(directory)) in possible
        with opened(directory) as store:
            assert finished(store.entries) in possible
            asyncio.run(store.put(entry("next")))
        assert "next" in in_file(directory)
        assert [p.name for p in directory.iterdir()] == ["allocations.json"]
    assert count > 1, "the step is reached"


def test_a_machine_that_dies_before_the_directory_is_flushed_has_the_old_file_and_the_journal_for_it(
    tmp_path: Path,
) -> None:
    directory = begun(tmp_path)
    old = state_file(directory).read_bytes()
    possible, code = lived(directory, "store.renamed=kill@1")
    assert code == -9 and state_file(directory).read_bytes() != old
    state_file(directory).write_bytes(old)
    assert finished(reread(directory)) in possible


# --- refused, in any order ---

NAMES = st.sampled_from("abcd")
FAULTY = st.lists(
    st.tuples(st.sampled_from([str(p) for p in STEPS]), st.sampled_from(["EIO", "EIO@1", "ENOSPC@2"])), max_size=3
)
HALF_WRITTEN = [("journal.written", "EIO"), ("store.write", "EIO")]  # the record is there, and nobody may rely on it
PUT = ["put", "put ahead", "put ahead and fold meanwhile"]
DEEDS = st.lists(st.tuples(st.sampled_from([*PUT, "forget", "fold", "die", "stop"]), NAMES, FAULTY), max_size=25)


async def put(store: Store, name: str, how: str) -> None:
    """As whoever attaches does it, who forgets what was written ahead and could not be finished."""
    new = entry(name, boot_id=boot_id(), netns=how)
    try:
        if how != "put":
            store.put_ahead(new)
        if "fold" in how:
            await asyncio.wait([asyncio.create_task(store.fold())])
        await store.put(new)
    except StoreFailure:
        if how != "put":
            await store.forget(name, released=())
        raise


@pytest.fixture(autouse=True)
def small_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "SIZE", 4 * 4096)
    monkeypatch.setattr(journal_module, "RETRY", 0.0)


class Life:
    """A store, moved to another directory when it dies, as its next life would find it."""

    def __init__(self, directory: Path) -> None:
        self._directories: Iterator[Path] = (directory / f"{n}" for n in range(1000))
        self.directory = next(self._directories)
        self.directory.mkdir(parents=True)
        self.store: Store = unread(self.directory)
        self.store.load()

    def next(self, *, stop: bool) -> None:
        if stop:
            shut(self.store)
        left, self.directory = self.directory, next(self._directories)
        shutil.copytree(left, self.directory)
        if not stop:
            shut(self.store)
        self.store = unread(self.directory)
        self.store.load()


@settings(max_examples=examples(150), database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds=DEEDS)
@example(deeds=[("put", "b", []), ("fold", "a", []), ("put", "a", HALF_WRITTEN), ("forget", "a", [])])
@example(deeds=[("put", "b", []), ("fold", "a", []), ("put", "a", HALF_WRITTEN), ("fold", "a", []), ("die", "a", [])])
@example(deeds=[("put", "b", [("store.write", "ENOSPC@2"), ("store.renamed", "EIO")]), ("forget", "a", [])])
def test_whatever_fails_in_whatever_order_what_was_answered_is_found(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[tuple[str, str, list[tuple[str, str]]]]
) -> None:
    life = Life(tmp_path_factory.mktemp("lives"))
    answered: set[str] = set()
    unsure: set[str] = set()  # what a round that failed may have left, until it is asked for or another one succeeds
    for deed, name, faulty in deeds:
        store = life.store
        settled = unsure if deed != "forget" or name in answered else {name}  # else there is no round
        with armed(",".join(f"{point}={how}" for point, how in faulty)):
            try:
                if deed in PUT:
                    asyncio.run(put(store, name, "put" if name in answered else deed))
                    answered |= {name}
                elif deed == "forget":
                    asyncio.run(store.forget(name, released=()))
                    answered -= {name}
                elif deed == "fold":
                    asyncio.run(store.fold())
                else:
                    life.next(stop=deed == "stop")
                    found = finished(life.store.entries)
                    answered = found if found ^ answered <= unsure else answered
                unsure = unsure - settled
            except StoreFailure:
                unsure |= {name} if deed in PUT or deed == "forget" else set()
        assert finished(life.store.entries) == answered, (deed, name, faulty)
        if state_file(life.directory).exists():
            listed = {name for name, found in recorded(life.directory).items() if found["state"] == "committed"}
            assert listed ^ answered <= unsure, (deed, name, faulty)
    shut(life.store)
    assert finished(reread(life.directory)) == answered


def test_the_journal_is_used_by_these_lives(tmp_path: Path) -> None:
    life = Life(tmp_path)
    asyncio.run(life.store.put(entry("a")))
    asyncio.run(life.store.fold())
    asyncio.run(life.store.put(entry("b")))
    assert in_file(life.directory) == ["a"] and journal(life.directory).stat().st_size == 4 * 4096
    life.next(stop=False)
    assert list(life.store.entries) == ["a", "b"]
    shut(life.store)
