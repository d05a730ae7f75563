"""The state file on a real file system: what is written, flushes that writers share, one agent for each directory."""

# ruff: noqa: ASYNC240 - looking at a file between two awaits is the point
import asyncio
import os
import stat
from pathlib import Path

import pytest
from store_parts import (
    COOLDOWN,
    armed,
    begun,
    containers,
    entry,
    journal,
    on_disk,
    opened,
    reread,
    shut,
    state_file,
    unread,
)

from flock.core.errors import StoreFailure
from flock.core.model import Released
from harness import recorded
from looping import looped


@pytest.fixture(params=["written whole", "in the journal"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return begun(tmp_path) if request.param == "in the journal" else tmp_path


# --- what is written ---


@looped
async def test_what_was_put_is_on_disk_when_the_call_returns(directory: Path) -> None:
    with opened(directory) as store:
        await store.put(entry("a", ip4="192.0.2.2"))
        assert containers(directory) == ["a"]
        assert store.get("a") == entry("a", ip4="192.0.2.2")
        await store.put(entry("a", ip4="192.0.2.2", state="pending"))
        assert [a["state"] for a in recorded(directory).values()] == ["pending"]
        await store.forget("a", released=[])
        assert containers(directory) == []
    assert reread(directory) == {}


@looped
async def test_every_key_of_ours_survives_a_restart(directory: Path) -> None:
    full = entry(
        "a",
        ip6="2001:db8::2",
        ip4="192.0.2.2",
        anycast=("2001:db8:53::1",),
        addresses=("203.0.113.1", "203.0.113.2"),
        network="flock",
        netns='/run/netns/ä "quoted"\n',
        netns_id="4:99",
        ifname="eth0",
        host_interface="flock01234567",
        mac="0a:00:00:00:00:01",
        mtu=1400,
        annotations={"flock.fritzlab.net/ipv4": "true"},
    )
    with opened(directory) as store:
        await store.put(full)
        await store.put(entry("b"))
        await store.forget("b", released=[Released("192.0.2.9", 1000.5)])
    with opened(directory) as store:
        assert dict(store.entries) == {"a": full}
        assert list(store.released) == [Released("192.0.2.9", 1000.5)]
        await store.put(entry("c"))
    assert reread(directory)["a"] == full


@looped
async def test_both_files_are_for_their_owner_alone_whatever_the_umask_and_whatever_lay_there(tmp_path: Path) -> None:
    for leftover in (tmp_path / "allocations.json.tmp", journal(tmp_path)):
        leftover.write_text("torn")
        leftover.chmod(0o666)
    with opened(tmp_path) as store:
        for umask in (0o000, 0o777):
            previous = os.umask(umask)
            try:
                await store.put(entry("a"))
                await store.fold()
            finally:
                os.umask(previous)
            assert {stat.S_IMODE(file(tmp_path).stat().st_mode) for file in (state_file, journal)} == {0o600}


@looped
async def test_the_file_is_indented_for_humans(directory: Path) -> None:
    with opened(directory) as store:
        await store.put(entry("a"))
        await store.put(entry("b"))
    text = state_file(directory).read_text()
    assert text.startswith(
        '{\n  "version": 1,\n  "node": "node1",\n  "allocations": [\n    {\n      "container_id": "a",\n'
    )


@looped
async def test_forgetting_an_unknown_container_writes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        await store.forget("nobody", released=[Released("192.0.2.2", 1)])
        assert store.flushes == 0
        assert list(tmp_path.iterdir()) == []


@looped
async def test_released_addresses_are_kept_until_they_have_cooled_or_are_held_again(directory: Path) -> None:
    with opened(directory) as store:
        for at, container in enumerate("abc"):
            await store.put(entry(container, ip4=f"192.0.2.{at + 2}"))
            await store.forget(container, released=[Released(f"192.0.2.{at + 2}", float(at))])
        await store.put(entry("d", ip4="192.0.2.3"))
        assert [r.address for r in store.released] == ["192.0.2.2", "192.0.2.4"]
    assert [r["address"] for r in on_disk(directory)["released"]] == ["192.0.2.2", "192.0.2.4"]
    with opened(directory) as store:
        await store.forget("d", released=[Released("192.0.2.3", 2 + COOLDOWN)])
        assert [r.address for r in store.released] == ["192.0.2.3"]
    assert [r["address"] for r in on_disk(directory)["released"]] == ["192.0.2.3"]


@looped
async def test_an_entry_that_cannot_be_encoded_fails_its_own_caller_alone(directory: Path) -> None:
    with opened(directory) as store:
        outcomes = await asyncio.gather(
            store.put(entry("a")), store.put(entry("b", netns="\ud800")), store.put(entry("c")), return_exceptions=True
        )
        assert [type(o) for o in outcomes] == [type(None), StoreFailure, type(None)]
        await store.put(entry("d"))
        assert containers(directory) == ["a", "c", "d"]


# --- many at once ---


@looped
async def test_concurrent_writers_share_flushes(directory: Path) -> None:
    with opened(directory) as store:
        await asyncio.gather(*(store.put(entry(f"c{n}")) for n in range(100)))
        assert store.flushes <= 2
        assert len(containers(directory)) == 100
        before = store.flushes
        await asyncio.gather(*(store.forget(f"c{n}", released=[]) for n in range(100)))
        assert store.flushes - before <= 2
        assert containers(directory) == []


@looped
async def test_callers_that_come_during_a_flush_share_the_next_one(directory: Path) -> None:
    with opened(directory) as store:
        first = asyncio.create_task(store.put(entry("first")))
        await asyncio.sleep(0)  # its flush is under way
        await asyncio.gather(first, *(store.put(entry(f"c{n}")) for n in range(50)))
        assert store.flushes <= 3
        assert len(containers(directory)) == 51


@looped
async def test_a_failed_flush_is_reported_to_every_caller_and_to_nobody_else(directory: Path) -> None:
    with opened(directory) as store:
        await store.put(entry("old"))
        with armed("journal.write=EIO@1,store.sync=EIO@1"):
            outcomes = await asyncio.gather(*(store.put(entry(f"c{n}")) for n in range(20)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {StoreFailure}
        assert set(store.entries) == {"old"}
        await store.put(entry("later"))
        assert containers(directory) == ["old", "later"]


@looped
async def test_readers_see_durable_state_only(directory: Path) -> None:
    with opened(directory) as store:
        putting = asyncio.create_task(store.put(entry("a")))
        while not putting.done():
            assert (store.get("a") is None) or containers(directory) == ["a"]
            await asyncio.sleep(0)
        assert store.get("a") is not None


@looped
async def test_a_caller_that_gives_up_does_not_hold_up_the_others(directory: Path) -> None:
    with opened(directory) as store:
        impatient = asyncio.create_task(store.put(entry("a")))
        await asyncio.sleep(0)
        impatient.cancel()
        await store.put(entry("b"))
        assert "b" in store.entries
        assert set(containers(directory)) == set(store.entries)


# --- one agent per directory ---


@looped
async def test_a_second_agent_on_the_same_directory_is_refused_until_the_first_is_gone(directory: Path) -> None:
    second = unread(directory)
    with opened(directory) as first:
        await first.put(entry("a"))
        for _ in range(2):
            with pytest.raises(StoreFailure, match="another agent"):
                second.load()
        assert dict(second.entries) == {}
    second.load()
    assert list(second.entries) == ["a"]
    shut(second)
