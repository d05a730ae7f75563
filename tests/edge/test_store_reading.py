"""What is read from a state file: ours, the original's, and anything else that may lie there."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_parts import entry, on_disk, opened, reread, shut, state_file, unread

from flock.core.errors import Code, StoreFailure
from flock.core.model import Released
from flock.core.naming import host_interface
from looping import looped
from thoroughness import examples

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
    store = unread(tmp_path)
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


def test_an_entry_or_note_without_interfaces_is_completed_when_it_is_read(tmp_path: Path) -> None:
    state_file(tmp_path).write_text(ORIGINAL)
    with opened(tmp_path) as store:
        store.mark(msgspec.structs.replace(entry("noted"), ifname="", host_interface=""))
    assert {name: (a.ifname, a.host_interface) for name, a in reread(tmp_path).items()} == {
        name: ("eth0", host_interface(name)) for name in ("aaa", "bbb", "noted")
    }


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


@settings(max_examples=examples(400), database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | MANGLED_ENTRY | MANGLED_TOP | MANGLED_BYTES)
def test_any_content_is_read_or_refused_and_what_is_read_can_be_written(tmp_path: Path, content: bytes) -> None:
    state_file(tmp_path).write_bytes(content)
    try:
        with opened(tmp_path) as store:
            read = dict(store.entries)
            added = msgspec.structs.replace(entry("added"), ifname="eth0", host_interface="flock00000001")
            asyncio.run(store.put(added))
    except StoreFailure as failure:
        assert failure.msg
        assert state_file(tmp_path).read_bytes() == content
    else:
        assert reread(tmp_path) == {**read, "added": added}
