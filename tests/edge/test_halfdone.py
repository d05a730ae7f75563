"""Notes about work that is half done: there in full, or the one before, whatever goes wrong while one is written."""

import os
from pathlib import Path

import msgspec
import pytest

from flock.core.errors import StoreFailure
from flock.core.model import Allocation
from flock.edge.halfdone import HalfDone

FIRST = Allocation(  # on its way in
    container_id="c1",
    namespace="shop",
    pod_name="web-0",
    owner_uid="u",
    ip4="192.0.2.7",
    state="pending",
    allocated_at="",
)
SECOND = msgspec.structs.replace(FIRST, ip4="192.0.2.8")


def next_life(directory: Path) -> dict[str, Allocation]:
    return HalfDone(directory).load()


def half_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full file system takes a part, and says so only by the count."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[: len(data) // 2]))


def test_a_note_is_found_by_the_next_life_until_it_is_cleared(tmp_path: Path) -> None:
    notes = HalfDone(tmp_path)
    notes.set(FIRST)
    assert next_life(tmp_path) == {"c1": FIRST}
    notes.set(SECOND)
    assert next_life(tmp_path) == {"c1": SECOND}
    notes.clear("c1")
    assert next_life(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [0, 1, 40])
def test_half_a_note_is_of_work_that_was_not_begun_and_goes(tmp_path: Path, size: int) -> None:
    HalfDone(tmp_path).set(FIRST)
    (note,) = tmp_path.iterdir()
    note.write_bytes(note.read_bytes()[:size])
    assert next_life(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_a_first_note_that_does_not_fit_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = HalfDone(tmp_path)
    half_written(monkeypatch)
    with pytest.raises(StoreFailure, match="No space"):
        notes.set(FIRST)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("life", ["the same", "the next"])
def test_a_note_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, life: str) -> None:
    notes = HalfDone(tmp_path)
    notes.set(FIRST)
    if life == "the next":
        notes = HalfDone(tmp_path)
        notes.load()
    half_written(monkeypatch)
    with pytest.raises(StoreFailure):
        notes.set(SECOND)
    monkeypatch.undo()
    assert next_life(tmp_path) == {"c1": FIRST}
    assert len(list(tmp_path.iterdir())) == 1


def test_a_note_is_replaced_by_renaming_so_that_a_death_meanwhile_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def die(*_: object) -> None:
        raise Died

    notes = HalfDone(tmp_path)
    notes.set(FIRST)
    monkeypatch.setattr(os, "rename", die)
    with pytest.raises(Died):
        notes.set(SECOND)
    assert next_life(tmp_path) == {"c1": FIRST}
