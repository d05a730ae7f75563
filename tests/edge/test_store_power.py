"""The power is cut: a real file system, of which nothing is left but what was sent to its disk by then."""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_lives import STEPS, finished, lived
from store_parts import begun, containers, entry, in_file, opened, reread, state_file

from flock.core.errors import StoreFailure
from flock.edge import store as store_module
from looping import looped

NEVER = "commit=1000"  # seconds: the file system flushes nothing by itself

pytestmark = pytest.mark.skipif(not Path("/dev/loop-control").exists(), reason="no loop devices here")


class Machine:
    """With an ext4 disk of its own.  What is only in its memory is not on the image."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._image, self.disk = home / "image", home / "disk"
        self._image.touch()
        subprocess.run(["truncate", "-s", "64M", self._image], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", self._image], check=True)
        self.disk.mkdir()

    @contextlib.contextmanager
    def runs(self) -> Iterator[None]:
        with _mounted(self._image, self.disk):
            yield

    def room(self, name: str) -> Path:
        """A directory that is on disk already."""
        room = self.disk / name
        room.mkdir()
        subprocess.run(["sync", "-f", room], check=True)
        return room

    @property
    def ballast(self) -> Path:
        return self.disk / "ballast"

    def fill_up(self) -> None:
        with self.ballast.open("wb", buffering=0) as ballast:
            for size in (1 << 16, 1 << 9):  # to the last block
                with contextlib.suppress(OSError):
                    while ballast.write(bytes(size)):
                        pass
            os.fsync(ballast.fileno())

    @contextlib.contextmanager
    def booted_after_a_power_cut(self) -> Iterator[Path]:
        """The disk as it was when the power went."""
        copy, place = self._home / "copy", self._home / "booted"
        place.mkdir(exist_ok=True)
        subprocess.run(["cp", "--sparse=always", self._image, copy], check=True)
        with _mounted(copy, place):
            yield place
        copy.unlink()


@contextlib.contextmanager
def _mounted(image: Path, place: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", f"loop,{NEVER}", image, place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    with machine.runs():
        yield machine


@looped
async def test_what_was_answered_is_there_after_a_power_cut(machine: Machine) -> None:
    room = machine.room("state")

    def expect_after_a_cut(names: set[str]) -> None:
        with machine.booted_after_a_power_cut() as disk:
            if names or state_file(disk / "state").exists():
                assert set(containers(disk / "state")) == names
            assert set(reread(disk / "state")) == names

    with opened(room) as store:
        expect_after_a_cut(set())
        for n, name in enumerate("abcdef"):
            await store.put(entry(name))
            expect_after_a_cut(set(store.entries))
            if n == 2:
                await store.fold()
                expect_after_a_cut(set("abc"))
        await asyncio.gather(store.forget("a", released=()), store.put(entry("g")))
        expect_after_a_cut(set("bcdefg"))
    expect_after_a_cut(set("bcdefg"))


def test_the_image_lacks_what_nobody_flushed(machine: Machine) -> None:
    """Else the others would prove nothing."""
    room = machine.room("state")
    (room / "unflushed").write_text("x")
    with machine.booted_after_a_power_cut() as disk:
        assert not (disk / "state" / "unflushed").exists()


@pytest.mark.parametrize("point", STEPS)
def test_a_power_cut_at_any_step_loses_nothing_that_was_answered(machine: Machine, point: str) -> None:
    for count in (1, 2, 3):
        name = f"{count}"
        room = begun(machine.room(name))
        subprocess.run(["sync", "-f", room], check=True)
        possible, code = lived(room, f"{point}=kill@{count}")
        assert code in (-9, 0)
        with machine.booted_after_a_power_cut() as disk:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(store_module, "boot_id", lambda: "the next boot")
                with opened(disk / name) as store:
                    assert set(store.entries) == finished(store.entries)
                    assert set(store.entries) in possible
            assert set(in_file(disk / name)) in possible
        shutil.rmtree(room)


@looped
async def test_a_disk_that_fills_up_takes_what_the_journal_has_room_for_and_then_loses_nothing(
    machine: Machine,
) -> None:
    room = machine.room("state")
    with opened(room) as store:
        await store.put(entry("a"))
        await store.fold()
        machine.fill_up()
        await store.put(entry("b"))
        for _ in range(2):
            with pytest.raises(StoreFailure, match="No space"):
                await store.fold()
            with pytest.raises(StoreFailure, match="No space"):
                await store.put(entry("c"))
        assert set(store.entries) == set(containers(room)) == {"a", "b"} and store.last_error
        with machine.booted_after_a_power_cut() as disk:
            assert set(containers(disk / "state")) == {"a", "b"}
        machine.ballast.unlink()
        await store.put(entry("c"))
        assert not store.last_error
    assert set(in_file(room)) == {"a", "b", "c"}
