"""The state file is written durably: whatever fails or dies at whatever step, the old state or the new one is there."""

# ruff: noqa: ASYNC240 - looking at a file between two awaits is the point
import asyncio
import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_parts import armed, containers, entry, on_disk, opened, reread, state_file

from flock.core.errors import Code, StoreFailure
from flock.core.model import Released
from flock.edge.store import Store
from looping import PATIENCE, looped

# --- the durable protocol ---


@looped
async def test_each_flush_syncs_the_new_file_renames_it_and_syncs_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, os.rename

    def record_sync(fd: int) -> None:
        steps.append(f"fsync {Path(f'/proc/self/fd/{fd}').readlink().name}")
        fsync(fd)

    def record_rename(old: str, new: str) -> None:
        assert json.loads(Path(old).read_text())["allocations"], "renamed before it was written"
        steps.append(f"rename {Path(old).name} {Path(new).name}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "rename", record_rename)
    with opened(tmp_path) as store:
        await store.put(entry("a"))
    assert steps == [
        "fsync allocations.json.tmp",
        "rename allocations.json.tmp allocations.json",
        f"fsync {tmp_path.name}",
    ]


POINTS = ["store.write", "store.sync", "store.rename", "store.renamed"]


@pytest.mark.parametrize("how", ["ENOSPC", "EIO", "EIO@1", "EROFS"])
@pytest.mark.parametrize("point", POINTS)
@looped
async def test_a_failure_at_any_step_changes_neither_memory_nor_file(tmp_path: Path, point: str, how: str) -> None:
    with opened(tmp_path) as store:
        await store.put(entry("kept", ip4="192.0.2.2"))
        await store.put(entry("gone", ip4="192.0.2.3"))
        before = on_disk(tmp_path)["allocations"]
        with armed(f"{point}={how}"), pytest.raises(StoreFailure) as caught:
            await store.put(entry("new"))
        assert caught.value.code == Code.IO_FAILURE
        assert str(tmp_path) in caught.value.msg
        assert os.strerror(getattr(errno, how.partition("@")[0])) in caught.value.msg
        with armed(f"{point}={how}"), pytest.raises(StoreFailure):
            await store.forget("gone", released=[Released("192.0.2.3", 1)])
        assert set(store.entries) == {"kept", "gone"}
        assert list(store.released) == []
        assert on_disk(tmp_path)["allocations"] == before
        assert [p.name for p in tmp_path.iterdir()] == ["allocations.json"]
        assert store.last_error
        await store.put(entry("new"))
        assert containers(tmp_path) == ["kept", "gone", "new"]
        assert not store.last_error


@pytest.mark.parametrize("point", POINTS)
@looped
async def test_a_failed_first_flush_leaves_an_empty_store(tmp_path: Path, point: str) -> None:
    with opened(tmp_path) as store, armed(f"{point}=EIO"), pytest.raises(StoreFailure):
        await store.put(entry("a"))
    assert reread(tmp_path) == {}


DYING = """
import asyncio, sys
from pathlib import Path
from flock.core.faults import faults
from flock.core.model import Allocation
from flock.edge.store import Store
store = Store(Path(sys.argv[1]), node="node1", cooldown=120, half_done=Path(sys.argv[1]).with_name("half-done"))
faults.arm("journal.make=EIO," + sys.argv[2])
store.load()
entry = dict(namespace="", pod_name="", owner_uid="", state="pending", allocated_at="")
asyncio.run(store.put(Allocation(container_id="new", **entry)))
"""


@pytest.mark.parametrize(
    ("point", "survivors", "leftover"),
    [
        ("store.write", ["old"], False),
        ("store.sync", ["old"], True),
        ("store.rename", ["old"], True),
        ("store.renamed", ["old", "new"], False),
    ],
)
def test_a_kill_at_any_step_leaves_the_old_or_the_new_state(
    tmp_path: Path, point: str, survivors: list[str], leftover: bool
) -> None:
    with opened(tmp_path) as store:
        asyncio.run(store.put(entry("old")))
    died = subprocess.run([sys.executable, "-c", DYING, tmp_path, f"{point}=kill"], timeout=PATIENCE, check=False)
    assert died.returncode == -9
    assert (tmp_path / "allocations.json.tmp").exists() is leftover
    assert containers(tmp_path) == survivors
    with opened(tmp_path) as store:
        assert list(store.entries) == survivors
        asyncio.run(store.put(entry("next")))
    assert [p.name for p in tmp_path.iterdir()] == ["allocations.json"]


def test_a_torn_temporary_file_is_ignored(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        asyncio.run(store.put(entry("a")))
    (tmp_path / "allocations.json.tmp").write_bytes(state_file(tmp_path).read_bytes()[:40])
    assert list(reread(tmp_path)) == ["a"]


# --- real disks that are full or read-only ---


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "flock-test", mount_point], check=True)
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", mount_point], check=True)


def remount(mount_point: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", mount_point], check=True)


def test_a_full_disk_loses_nothing_and_heals(small_disk: Path) -> None:
    async def fill(store: Store) -> list[str]:
        for n in range(64):
            try:
                await store.put(entry(f"c{n}", netns="/" + "x" * 4000))
            except StoreFailure as failure:
                assert "No space left" in failure.msg
                return [f"c{k}" for k in range(n)]
        raise AssertionError("the disk never filled up")

    with opened(small_disk) as store:
        written = asyncio.run(fill(store))
        assert written
        assert list(store.entries) == containers(small_disk) == written
        assert [p.name for p in small_disk.iterdir()] == ["allocations.json"]
        asyncio.run(store.forget("c0", released=[]))
        assert containers(small_disk) == written[1:]
        remount(small_disk, "size=1m")
        asyncio.run(store.put(entry("late", netns="/" + "x" * 40000)))
    assert list(reread(small_disk)) == [*written[1:], "late"]


def test_a_read_only_disk_loses_nothing_and_heals(small_disk: Path) -> None:
    with opened(small_disk) as store:
        asyncio.run(store.put(entry("a")))
        remount(small_disk, "ro")
        for _ in range(2):
            with pytest.raises(StoreFailure, match="Read-only file system"):
                asyncio.run(store.put(entry("b")))
        assert list(store.entries) == containers(small_disk) == ["a"]
        remount(small_disk, "rw")
        asyncio.run(store.put(entry("b")))
        assert containers(small_disk) == ["a", "b"]
