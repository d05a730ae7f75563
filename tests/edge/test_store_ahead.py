"""What is written ahead: pending until it is finished, which takes no flush, and found again whatever comes between."""

import asyncio
import gc
import os
import shutil
from pathlib import Path

import msgspec
import pytest
from store_parts import armed, begun, containers, entry, in_file, journal, on_disk, opened, reread

from flock.core.errors import StoreFailure
from flock.core.journal import BLOCK
from flock.core.model import Allocation, Released
from flock.core.naming import host_interface
from flock.edge import journal as journal_module
from flock.edge import store as store_module
from flock.edge.boot import boot_id
from flock.edge.store import Store
from looping import looped


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return begun(tmp_path / "state")


def made(container: str, **fields: str) -> Allocation:
    """As it is recorded of a pod of this boot."""
    ends = {"ifname": "eth0", "host_interface": host_interface(container)}
    where = {"netns": "/run/netns/x", "netns_id": "4:7", "netns_cookie": 9, "boot_id": boot_id()}
    return entry(container, **ends, **where, **fields)


async def ahead(store: Store, allocation: Allocation) -> None:
    """On disk, and not finished."""
    done = asyncio.Event()
    store.subscribe(done.set)
    store.put_ahead(allocation)
    await done.wait()


def after_a_death(directory: Path) -> dict[str, Allocation]:
    """What the next life finds, if this one is killed now; its notes are lost."""
    left = directory.with_name("left")
    shutil.copytree(directory, left)
    try:
        return reread(left)
    finally:
        shutil.rmtree(left)


@looped
async def test_it_is_pending_until_it_is_put_over_a_death_too_though_no_note_says_so(directory: Path) -> None:
    with opened(directory) as store:
        await ahead(store, made("a"))
        pending = msgspec.structs.replace(made("a"), state="pending", netns_id="", netns_cookie=0, boot_id="")
        assert store.entries["a"] == after_a_death(directory)["a"] == pending
        assert containers(directory) == []
        await store.put(made("a"))
        assert store.entries["a"] == after_a_death(directory)["a"] == made("a")
    assert reread(directory)["a"] == made("a")


@looped
async def test_finishing_it_is_one_byte_that_nobody_flushes(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[int, bool]] = []
    pwrite = os.pwrite

    def record(fd: int, data: bytes, at: int) -> int:
        flags = int(Path(f"/proc/self/fdinfo/{fd}").read_text().split("flags:")[1].split()[0], 8)
        written.append((len(data), bool(flags & os.O_DSYNC)))
        return pwrite(fd, data, at)

    with opened(directory) as store:
        monkeypatch.setattr(os, "pwrite", record)
        store.put_ahead(made("a"))
        await store.put(made("a"))
        monkeypatch.undo()
        assert (written, store.flushes) == ([(BLOCK, True), (1, False)], 1)


@looped
async def test_those_of_one_round_are_finished_one_by_one(directory: Path) -> None:
    with opened(directory) as store:
        for name in "abc":
            store.put_ahead(made(name))
        await store.put(made("b"))
        assert store.flushes == 1 and containers(directory) == ["b"]
        states = {name: found.state for name, found in after_a_death(directory).items()}
        assert states == {"a": "pending", "b": "committed", "c": "pending"}
        await store.put(made("c"))
        await store.put(made("a"))
        assert store.flushes == 1 and sorted(containers(directory)) == ["a", "b", "c"]


@looped
async def test_what_the_file_has_unfinished_is_finished_by_a_round_of_its_own(directory: Path) -> None:
    with opened(directory) as store:
        await ahead(store, made("a"))
        await store.fold()
        [listed] = on_disk(directory)["allocations"]
        assert listed["state"] == "pending" and "netns_id" not in listed, "as earlier versions know it"
        await store.put(made("a"))
        assert store.flushes == 2 and after_a_death(directory)["a"] == made("a")


@looped
async def test_folding_at_any_moment_loses_nothing_that_was_finished(directory: Path) -> None:
    with opened(directory) as store:
        for n in range(40):
            store.put_ahead(made(f"{n}"))
            for _ in range(n % 7):
                await asyncio.sleep(0)
            folding = asyncio.create_task(store.fold())
            for _ in range(n % 5):
                await asyncio.sleep(0)
            await store.put(made(f"{n}"))
            assert len(containers(directory)) == n + 1
            await folding
            assert after_a_death(directory)[f"{n}"].state == "committed"


@looped
async def test_a_journal_that_is_begun_anew_meanwhile_loses_nothing_that_was_finished(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "SIZE", 3 * BLOCK)
    with opened(directory) as store:
        for n in range(12):
            await ahead(store, made(f"slow{n}"))
            for other in range(n):
                await store.put(made(f"{n}-{other}"))
            await store.put(made(f"slow{n}"))
            found = after_a_death(directory)
            assert found == dict(store.entries) and {a.state for a in found.values()} == {"committed"}


@pytest.mark.parametrize("how", ["EIO", "ENOSPC@1"])
@looped
async def test_what_cannot_be_noted_as_finished_is_written_again(directory: Path, how: str) -> None:
    with opened(directory) as store:
        with armed(f"journal.finish={how}"):
            store.put_ahead(made("a"))
            await store.put(made("a"))
        assert store.flushes == 2 and after_a_death(directory)["a"] == made("a")


@looped
async def test_what_is_put_in_the_end_counts_not_what_was_written_ahead(directory: Path) -> None:
    with opened(directory) as store:
        store.put_ahead(made("a", ip4="192.0.2.1"))
        await store.put(made("a", ip4="192.0.2.2"))
        assert store.entries["a"] == after_a_death(directory)["a"] == made("a", ip4="192.0.2.2")


@looped
async def test_of_another_boot_it_is_dead_and_stays_on_record_finished_or_not(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it was finished may be lost with the machine; then nobody knows whether it was answered."""
    with opened(directory) as store:
        await ahead(store, made("a"))
        monkeypatch.setattr(store_module, "boot_id", lambda: "the next boot")
        assert after_a_death(directory)["a"] == made("a")


@looped
async def test_it_is_taken_back_whoever_began_it_and_gave_up(directory: Path) -> None:
    with opened(directory) as store:
        store.mark(made("a", state="pending"))
        store.put_ahead(made("a"))
        adding = asyncio.create_task(store.put(made("a")))
        await asyncio.sleep(0)
        adding.cancel()
        await store.forget("a", released=[])
        assert after_a_death(directory) == {} and not store.entries
    assert reread(directory) == {}


@looped
async def test_an_address_that_rests_goes_on_resting_when_it_is_taken_back(directory: Path) -> None:
    resting = Released("192.0.2.1", 7.0, "default")
    with opened(directory) as store:
        await store.put(made("old", ip4=resting.address))
        await store.forget("old", released=[resting])
        await ahead(store, made("a", ip4=resting.address))
        await store.forget("a", released=[])
        assert list(store.released) == [resting]
        store.put_ahead(made("b", ip4=resting.address))
        await store.put(made("b", ip4=resting.address))
        assert list(store.released) == []


@looped
async def test_one_that_fails_is_told_to_whoever_puts_it_and_else_to_nobody(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(directory) as store:
        for heard in (True, False):
            with armed("store.write=ENOSPC,journal.make=ENOSPC,journal.write=ENOSPC"):
                await ahead(store, made("a"))
                if heard:
                    with pytest.raises(StoreFailure):
                        await store.put(made("a"))
            await store.forget("a", released=[])
            await store.fold()
            gc.collect()
            assert not store.entries and in_file(directory) == []
    assert "never retrieved" not in caplog.text


@looped
async def test_what_no_file_can_say_is_an_error_when_it_is_put(directory: Path) -> None:
    with opened(directory) as store:
        odd = made("a", pod_name="\udcff")
        store.put_ahead(odd)
        with pytest.raises(StoreFailure, match="cannot be recorded"):
            await store.put(odd)
        assert not store.entries and journal(directory).read_bytes().count(b"container_id") == 0
