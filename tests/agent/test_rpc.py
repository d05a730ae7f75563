"""The agent's socket under bad callers: that connection ends, nothing else does.  (Invariant 7.)"""

import base64
import contextlib
import json
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from looking import addresses_of, assert_sound, failure, pod_side

from flock.core.errors import FlockError, StoreFailure
from flock.edge.ondisk import FILE
from flock.edge.store import Store
from harness import Node, eventually, run
from thoroughness import examples

CONF: dict[str, Any] = {"cniVersion": "1.1.0", "name": "flock", "type": "flock"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node for all of them: each test leaves it as it was."""
    with Node(tmp_path_factory.mktemp("rpc")) as node:
        node.ip("addr", "add", "198.18.0.1/32", "dev", "lo")
        node.start()
        node.pod("kept")
        yield node
        assert "Traceback" not in node.log.read_text()


@pytest.fixture(autouse=True)
def unharmed(shared: Node) -> Iterator[None]:
    yield
    assert shared.is_ready()
    assert set(shared.allocations()) == {"kept"}
    assert_sound(shared)
    assert all(map(shared.ping, addresses_of(shared.cni("ADD", "kept"))))


def answer(connection: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(65536):
            found += chunk
    return found


def send(node: Node, data: bytes) -> bytes:
    with node.connect() as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        return answer(connection)


def request(op: str, conf: Any = None, **fields: Any) -> dict[str, Any]:
    stdin = base64.b64encode(json.dumps(CONF if conf is None else conf).encode()).decode()
    return {"op": op, "stdin_data": stdin, **fields}


def error_of(node: Node, frame: dict[str, Any]) -> dict[str, Any]:
    error: dict[str, Any] = node.rpc(frame)["error"]
    return error


# --- the connection ----------------------------------------------------------------------------------------------


def test_the_socket_is_for_root_alone(shared: Node) -> None:
    status = (shared.run_dir / "flock.sock").stat()
    assert stat.S_ISSOCK(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o600


@pytest.mark.parametrize(
    "frame",
    [b"\n", b"garbage\n", b"\x00\xff\xfe\n", b"{}\n", b"[]\n", b"null\n", b'{"op":\n', b'{"op": 5}\n',
     b'{"op": "ADD", "stdin_data": "%%%"}\n', b'{"op": "ADD", "netns": []}\n', b"[" * 100_000 + b"\n",
     b'{"op":' * 50_000 + b"\n", b'{"op": "ADD\xff"}\n', b'{"op": "\\ud800"}\n', b"1e999\n"],
)  # fmt: skip
def test_garbage_gets_an_error_or_a_closed_connection(shared: Node, frame: bytes) -> None:
    got = send(shared, frame)
    if got:
        error = json.loads(got)["error"]
        assert error["code"] in (4, 6, 7) and error["msg"]


@pytest.mark.parametrize("op", ["", "NOPE", "add", "__class__", "x" * 10_000])
def test_an_unknown_operation_is_an_error(shared: Node, op: str) -> None:
    assert error_of(shared, request(op))["code"] == 4


def test_a_stream_without_end_is_cut_off(shared: Node) -> None:
    """A hundred megabytes of nothing, at once from three callers; the agent keeps almost none of it."""
    assert shared.agent is not None
    block = b"x" * (1 << 20)
    connections = [shared.connect() for _ in range(3)]
    for connection in connections:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(100):
                connection.sendall(block)
            raise AssertionError("the agent took 100 MB")
        connection.close()
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{shared.agent.pid}/status").read_text())
    assert peak is not None and int(peak[1]) < 150_000


def test_a_valid_request_behind_a_long_line_counts_for_nothing(shared: Node) -> None:
    assert send(shared, b'{"op":"status","args":"' + b"x" * (9 << 20) + b'"}\n') == b""


@pytest.mark.slow
def test_slow_callers_hold_up_nobody_and_are_cut_off(shared: Node) -> None:
    slow = [shared.connect() for _ in range(100)]
    for connection in slow:
        connection.sendall(b'{"op":')
    assert shared.cni("STATUS") is None
    shared.pod("quick")
    shared.cni("DEL", "quick")
    shared.remove_namespace("quick")
    assert all(answer(connection) == b"" for connection in slow)
    for connection in slow:
        connection.close()


def test_a_request_in_small_pieces_is_understood(shared: Node) -> None:
    with shared.connect() as connection:
        for byte in b'{"op":"status"}\n':
            connection.sendall(bytes([byte]))
        assert json.loads(answer(connection))["result"]["ready"]


def test_a_caller_that_half_closes_still_gets_its_answer(shared: Node) -> None:
    assert json.loads(send(shared, b'{"op":"status"}\n'))["result"]["ready"]


def test_a_caller_that_half_closes_before_the_end_of_its_line_gets_nothing(shared: Node) -> None:
    assert send(shared, b'{"op":"status"}') == b""


def test_what_follows_the_first_line_is_ignored(shared: Node) -> None:
    got = send(shared, b'{"op":"status"}\n{"op":"NOPE"}\n' + b"x" * 100_000)
    assert got.count(b"\n") == 1 and json.loads(got)["result"]["ready"]


def test_callers_that_hang_up_at_once_leave_a_settled_state(shared: Node) -> None:
    """The call goes on without them; the runtime would undo or repeat it."""
    path = shared.namespace("x")
    for _ in range(10):
        with shared.connect() as connection:
            connection.sendall(json.dumps(request("ADD", container_id="x", netns=path, ifname="eth0")).encode() + b"\n")
        with shared.connect() as connection:
            connection.sendall(json.dumps(request("DEL", container_id="x", netns=path, ifname="eth0")).encode() + b"\n")
    shared.cni("DEL", "x")
    assert pod_side(path) == {"lo": set()}
    shared.remove_namespace("x")


def test_hundreds_of_connections_that_say_nothing_are_borne(shared: Node) -> None:
    for _ in range(500):
        shared.connect().close()
    assert shared.cni("STATUS") is None


def test_callers_that_stay_and_say_nothing_make_room(shared: Node) -> None:
    assert shared.agent is not None
    run("prlimit", "--pid", shared.agent.pid, "--nofile=512:")
    with contextlib.ExitStack() as crowd:
        silent = [crowd.enter_context(shared.connect()) for _ in range(600)]
        assert shared.cni("STATUS") is None
        assert answer(silent[0]) == b"", "the first has lost its place"
    run("prlimit", "--pid", shared.agent.pid, "--nofile=1024:")


def test_there_is_one_log_line_per_call(shared: Node) -> None:
    before = shared.log.read_text()
    failure(shared, "CHECK", "stranger", netns=f"/run/netns/{shared.netns}")
    new = eventually(lambda: shared.log.read_text()[len(before) :])
    lines = [line for line in new.splitlines() if "stranger" in line]
    assert len(lines) == 1 and "op=CHECK" in lines[0] and "code=3" in lines[0]


def test_a_caller_cannot_write_lines_of_its_own_into_the_log(shared: Node) -> None:
    before = len(shared.log.read_text())
    hostile = "x\n2026-01-01 00:00:00,000 INFO forged"
    for field in ("op", "container_id", "netns", "ifname"):
        shared.rpc({**request("CHECK"), field: hostile})
    shared.rpc(request("CHECK", netns="y" * 100_000))
    new = shared.log.read_text()[before:]
    assert not [line for line in new.splitlines() if line.endswith("INFO forged")] and len(new) < 10_000


def test_the_agents_error_arrives_unchanged(shared: Node) -> None:
    """The CNI error code comes through the wire."""
    frame = request("ADD", container_id="x", netns="/nowhere", ifname="eth0")
    sent = error_of(shared, frame)
    assert failure(shared, "ADD", "x", netns="/nowhere", args="").error == sent
    assert sent["code"] == 4 and sent["msg"] and "details" in sent


# --- fields the executable would not let through -------------------------------------------------------------------

PATH = "/proc/self/ns/net"
HOSTILE: list[dict[str, Any]] = [
    {"netns": "\x00"},
    {"netns": "/run/netns/\x00x"},
    {"netns": "x" * 100_000},
    {"netns": "."},
    {"ifname": "eth0/../lo"},
    {"ifname": "a" * 16},
    {"ifname": ".."},
    {"ifname": "lo"},
    {"ifname": "eth 0"},
    {"ifname": "\x00"},
    {"ifname": "ä" * 8},
    {"ifname": ""},
    {"container_id": ""},
    {"container_id": "../../x"},
    {"container_id": "\x00"},
    {"container_id": "\n"},
    {"args": "K8S_POD_NAME"},
    {"args": "K8S_POD_NAME=\x00;K8S_POD_NAMESPACE=a"},
    {"args": "=;=;="},
]


@pytest.mark.parametrize("fields", HOSTILE, ids=lambda f: "-".join(f"{k}={v[:12]!r}" for k, v in f.items()))
def test_hostile_fields_are_refused_and_change_nothing(shared: Node, fields: dict[str, str]) -> None:
    path = shared.namespace("h")
    anycast = {"io.kubernetes.cri.pod-annotations": {"flock.fritzlab.net/ipv4": "true"}}
    conf = {**CONF, "runtimeConfig": anycast}
    try:
        whole = {"container_id": "hostile", "netns": path, "ifname": "eth0", **fields}
        error = error_of(shared, request("ADD", conf, **whole))
        assert error["code"] in (4, 7, 106, 108), error
        assert error["msg"].isprintable()
        assert pod_side(path) == {"lo": set()}
        shared.rpc(request("DEL", **whole))
        shared.rpc(request("CHECK", **whole))
    finally:
        shared.remove_namespace("h")


@pytest.mark.parametrize(
    "conf",
    [
        [], None, 5, "x", {}, {"cniVersion": 1}, {**CONF, "runtimeConfig": []}, {**CONF, "prevResult": 7},
        {**CONF, "cni.dev/valid-attachments": 5}, {**CONF, "dns": []}, {**CONF, "name": {}},
        {**CONF, "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"flock.fritzlab.net/ipv4": 1}}},
        {**CONF, "prevResult": {"ips": [{"address": 5}]}},
        {**CONF, "cniVersion": "2.0.0"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("op", ["ADD", "CHECK", "GC", "STATUS"])
def test_a_malformed_configuration_names_what_is_wrong(shared: Node, op: str, conf: Any) -> None:
    frame = {"op": op, "container_id": "m", "netns": "/run/netns/none", "ifname": "eth0"}
    frame["stdin_data"] = base64.b64encode(json.dumps(conf).encode()).decode()
    error = error_of(shared, frame)
    assert error["code"] in (1, 6, 7) and error["msg"]


# --- fuzz --------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
KEYS = ["cniVersion", "name", "dns", "runtimeConfig", "prevResult", "cni.dev/valid-attachments", "type", "ipam"]
CONFIGS = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6).map(lambda extra: {**CONF, **extra})
FRAMES = st.fixed_dictionaries(
    {"op": st.sampled_from(["ADD", "CHECK", "STATUS", "status", "pods", "check"]) | st.text(max_size=8)},
    optional={
        "container_id": st.text(max_size=70) | JSON,
        "netns": st.text(max_size=40) | st.sampled_from(["/proc/self/ns/net", "/proc/self/ns/mnt", "/dev/null", "/"]),
        "ifname": st.text(max_size=20),
        "args": st.text(max_size=60),
        "path": st.text(max_size=20),
        "stdin_data": st.binary(max_size=60).map(lambda b: base64.b64encode(b).decode()) | st.text(max_size=30),
    },
)


@given(frame=st.binary(max_size=200))
@settings(max_examples=examples(150))
def test_fuzzed_bytes_never_harm(shared: Node, frame: bytes) -> None:
    got = send(shared, frame.replace(b"\n", b"") + b"\n")
    assert not got or "error" in json.loads(got)


@given(frame=FRAMES)
@settings(max_examples=examples(200))
def test_fuzzed_requests_never_harm(shared: Node, frame: dict[str, Any]) -> None:
    got = json.loads(send(shared, json.dumps(frame).encode() + b"\n"))
    assert got.get("error", {}).get("code") != 100, got


@given(conf=CONFIGS, op=st.sampled_from(["ADD", "DEL", "CHECK", "STATUS"]))
@settings(max_examples=examples(200))
def test_fuzzed_configurations_never_harm(shared: Node, conf: dict[str, Any], op: str) -> None:
    frame = request(op, conf, container_id="fuzz", netns="/dev/null", ifname="eth0")
    got = shared.rpc(frame)
    assert got.get("error", {}).get("code") != 100, got


@given(values=st.dictionaries(
    st.sampled_from(["ipv4", "ipv6", "cidr4", "cidr6", "ip-algo", "anycast", "addresses", "other"]),
    st.text(max_size=30)
    | st.sampled_from(["true", "2001:db8:1::5", "192.0.2.0/24,,", "0.0.0.0/0", "::", "namespace,app"]),
))  # fmt: skip
@settings(max_examples=examples(150))
def test_fuzzed_annotations_never_harm(shared: Node, values: dict[str, str]) -> None:
    annotations = {f"flock.fritzlab.net/{key}": value for key, value in values.items()}
    conf = {**CONF, "runtimeConfig": {"io.kubernetes.cri.pod-annotations": annotations}}
    error = error_of(shared, request("ADD", conf, container_id="fuzz", netns="/dev/null", ifname="eth0"))
    assert error["code"] in (4, 101, 102, 103, 104), error


@given(raw=st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=examples(200))
def test_fuzzed_state_files_are_refused_and_left_alone(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    load(tmp_path_factory.mktemp("state"), raw)


ENTRY = {"container_id": "a", "namespace": "d", "pod_name": "p", "owner_uid": "", "ip6": "2001:db8:1::5",
         "ip4": "192.0.2.5", "state": "committed", "allocated_at": "2025-03-01T12:00:00Z"}  # fmt: skip


@given(changes=st.dictionaries(st.sampled_from([*ENTRY, "anycast", "addresses", "netns", "mtu", "extra"]), JSON),
       more=st.dictionaries(st.sampled_from(["version", "node", "released", "allocations"]), JSON))  # fmt: skip
@settings(max_examples=examples(200))
def test_state_files_with_fuzzed_fields_are_loaded_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any], more: dict[str, Any]
) -> None:
    content = {"version": 1, "node": "n1", "allocations": [{**ENTRY, **changes}], **more}
    store = load(tmp_path_factory.mktemp("state"), json.dumps(content).encode())
    if store is not None:
        for allocation in store.entries.values():
            assert msgspec.json.decode(msgspec.json.encode(allocation), type=type(allocation)) == allocation


def load(directory: Path, raw: bytes) -> Store | None:
    (directory / FILE).write_bytes(raw)
    store = Store(directory, node="n1", cooldown=1, half_done=directory / "pending")
    try:
        store.load()
    except FlockError as error:
        assert isinstance(error, StoreFailure) and str(directory) in error.msg
        assert (directory / FILE).read_bytes() == raw
        return None
    return store
