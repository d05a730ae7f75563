"""The state file on a real file system: durable, shared flushes, never torn, readable by the original."""
# ruff: noqa: ASYNC240 - looking at a file between two awaits is the point

import asyncio
import errno
import functools
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flock.core.errors import Code, StoreFailure
from flock.core.faults import Faults
from flock.core.model import Allocation, Released
from flock.edge import store as store_module
from flock.edge.store import Store

PATIENCE = 20  # seconds until a test that waits gives up
COOLDOWN = 120.0
ORIGINAL_KEYS = ["container_id", "namespace", "pod_name", "owner_uid"]
ORIGINAL_KEYS += ["ip6", "ip4", "anycast", "addresses", "state", "allocated_at"]
# As the original writes it: two spaces, optional keys left out when empty.
ORIGINAL = """{
  "version": 1,
  "node": "node1",
  "allocations": [
    {
      "container_id": "aaa",
      "namespace": "shop",
      "pod_name": "web-0",
      "owner_uid": "5f1c",
      "ip6": "2001:db8:1::a",
      "ip4": "192.0.2.10",
      "anycast": [
        "2001:db8:53::1"
      ],
      "state": "committed",
      "allocated_at": "2024-05-01T10:20:30.123456789Z"
    },
    {
      "container_id": "bbb",
      "namespace": "shop",
      "pod_name": "web-1",
      "owner_uid": "",
      "ip6": "2001:db8:1::b",
      "state": "pending",
      "allocated_at": "2024-05-01T10:20:31Z"
    }
  ]
}"""


def looped(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE))

    return run


def entry(container: str, **fields: Any) -> Allocation:
    given = {"namespace": "default", "pod_name": container, "owner_uid": "u", "state": "committed"}
    return Allocation(container_id=container, allocated_at="2024-01-01T00:00:00Z", **{**given, **fields})


@contextmanager
def opened(directory: Path) -> Iterator[Store]:
    store = Store(
        directory, node="node1", cooldown=COOLDOWN, half_done=directory.with_name("notes-of-" + directory.name)
    )
    try:
        store.load()
        yield store
    finally:
        shut(store)


def shut(store: Store) -> None:
    """Close a store that is idle, from inside or outside a loop."""
    with pytest.raises(StopIteration):
        store.close().send(None)


@contextmanager
def armed(text: str) -> Iterator[None]:
    faults = Faults()
    faults.arm(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "faults", faults)
        yield


def state_file(directory: Path) -> Path:
    return directory / "allocations.json"


def on_disk(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(state_file(directory).read_text())
    return content


def containers(directory: Path) -> list[str]:
    return [a["container_id"] for a in on_disk(directory)["allocations"]]


def reread(directory: Path) -> dict[str, Allocation]:
    with opened(directory) as store:
        return dict(store.entries)


# --- what is written ---


@looped
async def test_what_was_put_is_on_disk_when_the_call_returns(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        await store.put(entry("a", ip4="192.0.2.2"))
        assert containers(tmp_path) == ["a"]
        assert store.get("a") == entry("a", ip4="192.0.2.2")
        await store.put(entry("a", ip4="192.0.2.2", state="pending"))
        assert [a["state"] for a in on_disk(tmp_path)["allocations"]] == ["pending"]
        await store.forget("a", released=[])
        assert on_disk(tmp_path)["allocations"] == []
    assert reread(tmp_path) == {}


@looped
async def test_every_key_of_ours_survives_a_restart(tmp_path: Path) -> None:
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
    with opened(tmp_path) as store:
        await store.put(full)
        await store.put(entry("b"))
        await store.forget("b", released=[Released("192.0.2.9", 1000.5)])
    with opened(tmp_path) as store:
        assert dict(store.entries) == {"a": full}
        assert list(store.released) == [Released("192.0.2.9", 1000.5)]
        await store.put(entry("c"))
    assert reread(tmp_path)["a"] == full


@looped
async def test_the_file_is_for_its_owner_alone_whatever_the_umask_and_whatever_lay_there(tmp_path: Path) -> None:
    leftover = tmp_path / "allocations.json.tmp"
    leftover.write_text("torn")
    leftover.chmod(0o666)
    with opened(tmp_path) as store:
        for umask in (0o000, 0o777):
            previous = os.umask(umask)
            try:
                await store.put(entry("a"))
            finally:
                os.umask(previous)
            assert stat.S_IMODE(state_file(tmp_path).stat().st_mode) == 0o600


@looped
async def test_the_file_is_indented_for_humans(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        await store.put(entry("a"))
        await store.put(entry("b"))
    text = state_file(tmp_path).read_text()
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
async def test_released_addresses_are_kept_until_they_have_cooled_or_are_held_again(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for at, container in enumerate("abc"):
            await store.put(entry(container, ip4=f"192.0.2.{at + 2}"))
            await store.forget(container, released=[Released(f"192.0.2.{at + 2}", float(at))])
        await store.put(entry("d", ip4="192.0.2.3"))
        assert [r["address"] for r in on_disk(tmp_path)["released"]] == ["192.0.2.2", "192.0.2.4"]
        await store.forget("d", released=[Released("192.0.2.3", 2 + COOLDOWN)])
        assert [r["address"] for r in on_disk(tmp_path)["released"]] == ["192.0.2.3"]


@looped
async def test_an_entry_that_cannot_be_encoded_fails_its_own_caller_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        outcomes = await asyncio.gather(
            store.put(entry("a")), store.put(entry("b", netns="\ud800")), store.put(entry("c")), return_exceptions=True
        )
        assert [type(o) for o in outcomes] == [type(None), StoreFailure, type(None)]
        await store.put(entry("d"))
        assert containers(tmp_path) == ["a", "c", "d"]


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
        before = on_disk(tmp_path)
        with armed(f"{point}={how}"), pytest.raises(StoreFailure) as caught:
            await store.put(entry("new"))
        assert caught.value.code == Code.IO_FAILURE
        assert str(tmp_path) in caught.value.msg
        assert os.strerror(getattr(errno, how.partition("@")[0])) in caught.value.msg
        with armed(f"{point}={how}"), pytest.raises(StoreFailure):
            await store.forget("gone", released=[Released("192.0.2.3", 1)])
        assert set(store.entries) == {"kept", "gone"}
        assert list(store.released) == []
        assert on_disk(tmp_path) == before
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
store.load()
faults.arm(sys.argv[2])
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


# --- many at once ---


@looped
async def test_concurrent_writers_share_flushes(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        await asyncio.gather(*(store.put(entry(f"c{n}")) for n in range(100)))
        assert store.flushes <= 2
        assert len(containers(tmp_path)) == 100
        before = store.flushes
        await asyncio.gather(*(store.forget(f"c{n}", released=[]) for n in range(100)))
        assert store.flushes - before <= 2
        assert containers(tmp_path) == []


@looped
async def test_callers_that_come_during_a_flush_share_the_next_one(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        first = asyncio.create_task(store.put(entry("first")))
        await asyncio.sleep(0)  # its flush is under way
        await asyncio.gather(first, *(store.put(entry(f"c{n}")) for n in range(50)))
        assert store.flushes <= 3
        assert len(containers(tmp_path)) == 51


@looped
async def test_a_failed_flush_is_reported_to_every_caller_and_to_nobody_else(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        await store.put(entry("old"))
        with armed("store.sync=EIO@1"):
            outcomes = await asyncio.gather(*(store.put(entry(f"c{n}")) for n in range(20)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {StoreFailure}
        assert set(store.entries) == {"old"}
        await store.put(entry("later"))
        assert containers(tmp_path) == ["old", "later"]


@looped
async def test_readers_see_durable_state_only(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        putting = asyncio.create_task(store.put(entry("a")))
        while not putting.done():
            assert (store.get("a") is None) or containers(tmp_path) == ["a"]
            await asyncio.sleep(0)
        assert store.get("a") is not None


@looped
async def test_a_caller_that_gives_up_does_not_hold_up_the_others(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        impatient = asyncio.create_task(store.put(entry("a")))
        await asyncio.sleep(0)
        impatient.cancel()
        await store.put(entry("b"))
        assert "b" in store.entries
        assert set(containers(tmp_path)) == set(store.entries)


# --- what is read ---


def load_failure(directory: Path, content: bytes) -> StoreFailure:
    state_file(directory).write_bytes(content)
    with pytest.raises(StoreFailure) as caught, opened(directory):
        pass
    assert state_file(directory).read_bytes() == content, "the file is left for a human to look at"
    assert str(directory) in caught.value.msg
    return caught.value


def original_with(**changes: Any) -> bytes:
    content = json.loads(ORIGINAL)
    content["allocations"][0].update(changes)
    return json.dumps(content).encode()


def test_a_missing_file_is_an_empty_store(tmp_path: Path) -> None:
    assert reread(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreFailure, match="No such file"), opened(tmp_path / "absent"):
        pass
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"{}", ORIGINAL.encode()[:-20]])
def test_an_unparsable_file_is_an_error_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    assert load_failure(tmp_path, content).code == Code.IO_FAILURE


def test_a_deeply_nested_file_is_an_error(tmp_path: Path) -> None:
    load_failure(tmp_path, b'{"version": 1, "x": ' + b"[" * 100_000)


@pytest.mark.parametrize("version", [0, 2, -1, 10**30])
def test_another_version_is_an_error_that_names_it(tmp_path: Path, version: int) -> None:
    assert f"version {version}" in load_failure(tmp_path, b'{"version": %d, "allocations": []}' % version).msg


def test_a_container_listed_twice_is_an_error(tmp_path: Path) -> None:
    assert "twice" in load_failure(tmp_path, original_with(container_id="bbb")).msg


@pytest.mark.parametrize(
    "changes",
    [
        {"ip6": "2001:db8::zz"},
        {"ip6": "192.0.2.1"},
        {"ip4": "192.0.2.256"},
        {"ip4": "2001:db8::1"},
        {"anycast": ["2001:db8::/64"]},
        {"addresses": ["192.0.2.1", ""]},
    ],
)
def test_a_bad_address_is_an_error_that_names_the_container(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert "aaa" in load_failure(tmp_path, original_with(**changes)).msg


def test_a_bad_released_address_is_an_error(tmp_path: Path) -> None:
    content = b'{"version": 1, "allocations": [], "released": [{"address": "nowhere", "at": 1}]}'
    assert "nowhere" in load_failure(tmp_path, content).msg


@pytest.mark.parametrize("changes", [{"state": "done"}, {"container_id": 5}, {"anycast": "2001:db8::1"}])
def test_a_field_of_the_wrong_type_or_value_is_an_error(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert next(iter(changes)) in load_failure(tmp_path, original_with(**changes)).msg


def test_a_repaired_file_is_read_by_the_same_store(tmp_path: Path) -> None:
    state_file(tmp_path).write_text("{")
    store = Store(tmp_path, node="node1", cooldown=COOLDOWN, half_done=tmp_path.with_name("notes-of-" + tmp_path.name))
    with pytest.raises(StoreFailure):
        store.load()
    state_file(tmp_path).write_text(ORIGINAL)
    store.load()
    assert list(store.entries) == ["aaa", "bbb"]
    shut(store)


def test_the_original_s_file_is_read(tmp_path: Path) -> None:
    state_file(tmp_path).write_text(ORIGINAL)
    first, second = reread(tmp_path).values()
    assert (first.pod, first.ip6, first.ip4, first.anycast, first.addresses, first.state) == (
        "shop/web-0",
        "2001:db8:1::a",
        "192.0.2.10",
        ("2001:db8:53::1",),
        (),
        "committed",
    )
    assert (second.ip4, second.state, second.mac) == ("", "pending", "")


@pytest.mark.parametrize("content", ['{"version":1,"node":"n","allocations":null}', '{"version":1}'])
def test_the_original_s_empty_file_is_read(tmp_path: Path, content: str) -> None:
    state_file(tmp_path).write_text(content)
    assert reread(tmp_path) == {}


@looped
async def test_what_we_write_is_readable_by_the_original_s_rules(tmp_path: Path) -> None:
    state_file(tmp_path).write_text(ORIGINAL)
    with opened(tmp_path) as store:
        await store.put(entry("ccc", ip6="2001:db8:1::c", addresses=("203.0.113.1",), netns="/run/netns/c", mtu=1500))
        await store.put(entry("ddd", ip4="192.0.2.4"))
        await store.forget("ddd", released=[Released("192.0.2.4", 1.5)])
    content = on_disk(tmp_path)
    assert (content["version"], content["node"]) == (1, "node1")
    theirs = [{key: a[key] for key in ORIGINAL_KEYS if key in a} for a in content["allocations"]]
    assert theirs[:2] == json.loads(ORIGINAL)["allocations"]
    assert theirs[2] == {
        "container_id": "ccc",
        "namespace": "default",
        "pod_name": "ccc",
        "owner_uid": "u",
        "ip6": "2001:db8:1::c",
        "addresses": ["203.0.113.1"],
        "state": "committed",
        "allocated_at": "2024-01-01T00:00:00Z",
    }
    for allocation in content["allocations"]:
        assert [key for key in allocation if key in ORIGINAL_KEYS] == [
            key for key in ORIGINAL_KEYS if key in allocation
        ]


def test_keys_nobody_knows_are_no_reason_to_refuse_a_file(tmp_path: Path) -> None:
    state_file(tmp_path).write_bytes(original_with(colour="blue", shape={"corners": [1, 2]}))
    assert list(reread(tmp_path)) == ["aaa", "bbb"]


@looped
async def test_every_address_has_one_spelling_whoever_wrote_it(tmp_path: Path) -> None:
    content = json.loads(original_with(ip6="2001:0DB8:1:0:0::000A", anycast=["2001:db8:53:0::0001"]))
    content["released"] = [{"address": "2001:DB8::0099", "at": 2}, {"address": "2001:db8:0::98", "at": 1}]
    state_file(tmp_path).write_text(json.dumps(content))
    with opened(tmp_path) as store:
        assert store.entries["aaa"].ip6 == "2001:db8:1::a"
        assert store.entries["aaa"].anycast == ("2001:db8:53::1",)
        assert list(store.released) == [Released("2001:db8::98", 1), Released("2001:db8::99", 2)]
        await store.put(entry("x", ip6="2001:db8::99"))
        assert list(store.released) == [Released("2001:db8::98", 1)]


# --- one agent per directory ---


@looped
async def test_a_second_agent_on_the_same_directory_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    second = Store(tmp_path, node="node1", cooldown=COOLDOWN, half_done=tmp_path.with_name("notes-of-" + tmp_path.name))
    with opened(tmp_path) as first:
        await first.put(entry("a"))
        for _ in range(2):
            with pytest.raises(StoreFailure, match="another agent"):
                second.load()
        assert dict(second.entries) == {}
    second.load()
    assert list(second.entries) == ["a"]
    shut(second)


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


# --- any content at all ---

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["192.0.2.1", "::1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
MANGLED_ENTRY = st.dictionaries(st.sampled_from([*ORIGINAL_KEYS, "mtu", "annotations"]), VALUES, max_size=4).map(
    lambda changes: original_with(**changes)
)
MANGLED_TOP = st.dictionaries(st.sampled_from(["version", "node", "allocations", "released"]), VALUES, max_size=2).map(
    lambda changes: json.dumps({**json.loads(ORIGINAL), **changes}).encode()
)
MANGLED_BYTES = st.tuples(st.integers(0, len(ORIGINAL)), st.integers(0, len(ORIGINAL)), st.binary(max_size=6)).map(
    lambda cut: ORIGINAL.encode()[: min(cut[:2])] + cut[2] + ORIGINAL.encode()[max(cut[:2]) :]
)


@settings(max_examples=400, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | MANGLED_ENTRY | MANGLED_TOP | MANGLED_BYTES)
def test_any_content_is_read_or_refused_and_what_is_read_can_be_written(tmp_path: Path, content: bytes) -> None:
    state_file(tmp_path).write_bytes(content)
    try:
        with opened(tmp_path) as store:
            read = dict(store.entries)
            added = msgspec.structs.replace(entry("added"), host_interface="flock00000001")
            asyncio.run(store.put(added))
    except StoreFailure as failure:
        assert failure.msg
        assert state_file(tmp_path).read_bytes() == content
    else:
        assert reread(tmp_path) == {**read, "added": added}
