"""The CNI executable, run as a runtime runs it: environment and standard input in, standard output and exit code out.

`build/flock` is what is tested; a fake agent stands behind the socket.  Silence and fuzz use a build of the same source
with short patience, under the address and undefined-behaviour sanitizers.
"""

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[1]
VERSIONS = ["0.4.0", "1.0.0", "1.1.0"]
VERBS = ["ADD", "DEL", "CHECK", "GC", "STATUS"]
ENVIRONMENT = {
    "CNI_CONTAINERID": "c0ffee_1.a-b",
    "CNI_NETNS": "/run/netns/blue",
    "CNI_IFNAME": "eth0",
    "CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web",
    "CNI_PATH": "/opt/cni/bin:/usr/lib/cni",
}
RESULT = b'{"cniVersion":"1.1.0","ips":[ {"address":"2001:db8::1/128"} ],"odd":"\\u00e4 \xc3\xa4 \\/"}'
SANITIZERS = {
    "ASAN_OPTIONS": "exitcode=99:detect_leaks=0",
    "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99:print_stacktrace=1",
}


class FakeAgent:
    """Takes one line per connection, sends the next of `replies` (the last one again and again), and hangs up.

    A reply of None is silence: the connection stays open until the other side closes it.
    """

    def __init__(self, path: Path, *replies: bytes | None, reads: bool = True) -> None:
        self.path = path
        self.replies = list(replies)
        self.requests: list[bytes] = []
        self._reads = reads
        self._listener = socket.socket(socket.AF_UNIX)
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "FakeAgent":
        self._listener.bind(str(self.path))
        self._listener.listen(128)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._thread.join()
        self._listener.close()
        self.path.unlink()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                if self._reads:
                    self.requests.append(lines.readline())
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                try:
                    if reply is None:
                        lines.read()
                    else:
                        connection.sendall(reply)
                except OSError:
                    pass  # the executable may hang up on a reply it has seen enough of

    def only_request(self) -> dict[str, Any]:
        (line,) = self.requests
        assert line.endswith(b"\n")
        request: dict[str, Any] = json.loads(line)
        return request


@dataclass(frozen=True)
class Outcome:
    exit_code: int
    out: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The CNI error on standard output, after checking that it is one."""
        assert self.exit_code == 1, self
        error: dict[str, Any] = json.loads(self.out)
        assert set(error) == {"cniVersion", "code", "msg", "details"} and error["cniVersion"] in VERSIONS
        return error

    @property
    def code(self) -> int:
        code: int = self.error["code"]
        return code


def run(
    executable: Path, verb: str | None, stdin: bytes | dict[str, Any], env: Mapping[Any, Any] = ENVIRONMENT
) -> Outcome:
    done = subprocess.run(
        [executable],
        input=stdin if isinstance(stdin, bytes) else json.dumps(stdin).encode(),
        env={**SANITIZERS, **({"CNI_COMMAND": verb} if verb is not None else {}), **env},
        capture_output=True,
        timeout=60,
    )
    assert done.stderr == b"", done.stderr.decode()
    return Outcome(done.returncode, done.stdout)


@pytest.fixture(scope="session")
def flock() -> Path:
    executable = ROOT / "build/flock"
    if not executable.exists():
        subprocess.run(["make", "build"], cwd=ROOT, check=True)
    return executable


@pytest.fixture(scope="session")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same source, short of patience and under sanitizers."""
    executable = tmp_path_factory.mktemp("impatient") / "flock"
    flags = ["-std=gnu11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    patience = ["-DANSWER_GRACE_MS=200", "-DSTATUS_PATIENCE_MS=200"]
    subprocess.run(["gcc", *flags, *patience, "-o", executable, ROOT / "cni/flock.c"], check=True)
    return executable


@pytest.fixture(scope="session")
def run_dir() -> Iterator[Path]:
    with TemporaryDirectory(prefix="flock-") as path:  # short: a socket's path ends at 107 bytes
        yield Path(path)


@pytest.fixture
def sock(run_dir: Path) -> Path:
    return run_dir / "agent.sock"


def config(sock: Path, **more: Any) -> dict[str, Any]:
    return {"cniVersion": "1.1.0", "name": "flock", "type": "flock", "socket": str(sock), "wait": 0, **more}


UNREADABLE = ["\0", "\ud800", "9" * 999]  # no C string of a sensible size holds these


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in ENVIRONMENT.items() if name not in names}


def test_it_is_one_small_file_that_needs_no_library(flock: Path) -> None:
    assert flock.stat().st_size <= 45_000
    assert b"ld-musl" not in flock.read_bytes() and b"ld-linux" not in flock.read_bytes()


# --- VERSION ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stdin", "version"),
    [
        (b"", "1.1.0"),
        (b"{}", "1.1.0"),
        (b'{"cniVersion":"1.0.0"}', "1.0.0"),
        (b'{"cniVersion":"0.3.1"}', "0.3.1"),
        (b'{"cniVersion":"\\u0031.\\"x"}', '1."x'),
        (b'{"cniVersion":7}', "1.1.0"),
        (b"nonsense", "1.1.0"),
    ],
)
def test_version_is_answered_alone_whatever_is_on_stdin(flock: Path, stdin: bytes, version: str) -> None:
    outcome = run(flock, "VERSION", stdin, env={})
    assert outcome.exit_code == 0
    assert json.loads(outcome.out) == {"cniVersion": version, "supportedVersions": VERSIONS}


def test_version_is_answered_with_stdin_closed(flock: Path) -> None:
    command = ["/bin/sh", "-c", 'exec "$0" <&-', str(flock)]
    assert json.loads(subprocess.check_output(command, env={"CNI_COMMAND": "VERSION"}))["cniVersion"] == "1.1.0"


# --- the environment -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "required"),
    [
        ("ADD", {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"}),
        ("CHECK", {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"}),
        ("DEL", {"CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"}),
        ("GC", {"CNI_PATH"}),
        ("STATUS", {"CNI_PATH"}),
    ],
)
@pytest.mark.parametrize("empty", [False, True])
def test_all_missing_variables_are_named_in_one_error(
    flock: Path, sock: Path, verb: str, required: set[str], empty: bool
) -> None:
    error = run(flock, verb, config(sock), env=dict.fromkeys(ENVIRONMENT, "") if empty else {}).error
    assert error["code"] == 4
    assert {name for name in ENVIRONMENT if f"{name} is missing" in error["msg"]} == required


@pytest.mark.parametrize("verb", [None, "", "add", "FROB", "ADD\n"])
def test_a_missing_or_unknown_verb_is_an_environment_error(flock: Path, sock: Path, verb: str | None) -> None:
    error = run(flock, verb, config(sock)).error
    assert error["code"] == 4 and "CNI_COMMAND" in error["msg"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CNI_CONTAINERID", "-a"),
        ("CNI_CONTAINERID", ".a"),
        ("CNI_CONTAINERID", "a/b"),
        ("CNI_CONTAINERID", "a b"),
        ("CNI_CONTAINERID", "ä"),
        ("CNI_IFNAME", "sixteen-bytes-xx"),
        ("CNI_IFNAME", "."),
        ("CNI_IFNAME", ".."),
        ("CNI_IFNAME", "a/b"),
        ("CNI_IFNAME", "a:b"),
        ("CNI_IFNAME", "a b"),
        ("CNI_IFNAME", "a\tb"),
        ("CNI_IFNAME", "a\n"),
        ("CNI_IFNAME", b"\xff"),
        ("CNI_NETNS", b"/run/\xc0\x80"),
        ("CNI_ARGS", "x" * 70_000),
        ("CNI_PATH", "x" * 70_000),
    ],
)
def test_a_malformed_variable_is_named(flock: Path, sock: Path, name: str, value: str | bytes) -> None:
    error = run(flock, "ADD", config(sock), env={**ENVIRONMENT, name: value}).error
    assert error["code"] == 4 and error["msg"].startswith(f'{name} "') and ";" not in error["msg"]


def test_missing_and_malformed_variables_come_together_with_the_version_of_the_configuration(
    flock: Path, sock: Path
) -> None:
    env = {**without("CNI_NETNS"), "CNI_IFNAME": '"a/b"', "CNI_CONTAINERID": "!"}
    error = run(flock, "ADD", config(sock, cniVersion="0.4.0"), env=env).error
    assert error["code"] == 4 and error["cniVersion"] == "0.4.0"
    assert [part.split()[0] for part in error["msg"].split("; ")] == ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"]


@pytest.mark.parametrize("ifname", ["e", "fifteen-bytes-x", "...", "ü"])
def test_unusual_interface_names_are_taken(flock: Path, sock: Path, ifname: str) -> None:
    with FakeAgent(sock, b"{}\n") as agent:
        assert run(flock, "DEL", config(sock), env={**ENVIRONMENT, "CNI_IFNAME": ifname}) == Outcome(0, b"")
    assert agent.only_request()["ifname"] == ifname


# --- the configuration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stdin",
    [
        b"", b" ", b"nonsense", b"[]", b'"{}"', b"null", b"{", b"{}x", b"{}{}", b'{"a"}', b'{"a":}', b'{"a":1,}',
        b"{,}",
        b'{"a":01}', b'{"a":1.}', b'{"a":.5}', b'{"a":+1}', b'{"a":1e}', b'{"a":0x1}', b'{"a":-}', b'{"a":NaN}',
        b'{"a":tru}', b'{"a":"\t"}', b'{"a":"\\x"}', b'{"a":"\\u12g4"}', b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\x00"}', b'{"a":"\\', b'{"a":"\\u', b"{'a':1}", b"\xef\xbb\xbf{}", b'{"a":[1,]}', b'{"a":[1}',
        b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", b'{"a":' * 1_000_000, b'{"a":"\xe0\x9f\xbf"}',
        b'{"a":"\xf0\x8f\xbf\xbf"}', b'{"a":"\xf4\x90\x80\x80"}', b"{}" + b" " * (4 << 20),
    ],
    ids=lambda stdin: repr(stdin[:16]),
)  # fmt: skip
def test_a_configuration_that_is_no_json_object_is_a_decoding_failure(flock: Path, stdin: bytes) -> None:
    error = run(flock, "ADD", stdin).error
    assert error["code"] == 6 and "configuration" in error["msg"] and error["cniVersion"] == "1.1.0"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("version", ["0.1.0", "0.3.1", "1.2.0", "", "1.0.0 ", "v1", "ä€😀", *UNREADABLE, None])
def test_an_unsupported_version_is_refused_without_the_agent(
    flock: Path, sock: Path, verb: str, version: str | None
) -> None:
    stdin = config(sock, cniVersion=version)
    if version is None:
        del stdin["cniVersion"]
    error = run(flock, verb, stdin).error
    assert error["code"] == 1 and error["cniVersion"] == "1.1.0"
    named = "0.1.0" if version is None else "(unreadable)" if version in UNREADABLE else version
    assert f'"{named}"' in error["msg"]
    assert all(supported in error["msg"] for supported in VERSIONS)


@pytest.mark.parametrize("verb", ["GC", "STATUS"])
@pytest.mark.parametrize("version", ["0.4.0", "1.0.0"])
def test_gc_and_status_need_the_version_that_has_them(flock: Path, sock: Path, verb: str, version: str) -> None:
    error = run(flock, verb, config(sock, cniVersion=version)).error
    assert error["code"] == 1 and verb in error["msg"] and error["cniVersion"] == version


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cniVersion", 1.0), ("cniVersion", None), ("cniVersion", ["1.0.0"]),
        ("socket", 1), ("socket", None), ("socket", {}), ("socket", ""), ("socket", "relative.sock"),
        ("socket", "/" + "x" * 107), ("socket", "/" + "x" * 500), ("socket", "/a\0b"), ("socket", "/\ud800"),
        ("wait", "30"), ("wait", -1), ("wait", -0.0001), ("wait", None), ("wait", True), ("wait", [1]),
        ("deferDel", 1), ("deferDel", "true"), ("deferDel", None), ("deferDel", {}),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(flock: Path, sock: Path, field: str, value: Any) -> None:
    error = run(flock, "ADD", config(sock, **{field: value})).error
    assert error["code"] == 7 and error["msg"].startswith(f"{field}: ")


def test_only_top_level_keys_count_and_escapes_are_undone(flock: Path, sock: Path) -> None:
    stdin = b"""{ "prevResult" : {"cniVersion": "9", "socket": "/nowhere", "wait": "x"}, "list":[{"socket":1}],
        "text": "\\"socket\\":\\"/nowhere\\",", "\\"socket": 3, "Socket": 4, "socket\\u0000": 5,
        "socket": 6, "\\u0073oc\\u006Bet" : "%s" , "cni\\u0056ersion":"1\\u002e0.0", "wait" : 0E-1
    }\n""" % str(sock).replace("/", "\\/").encode()
    with FakeAgent(sock, b'{"result":' + RESULT + b"}\n") as agent:
        assert run(flock, "ADD", stdin) == Outcome(0, RESULT + b"\n")
    assert base64.b64decode(agent.only_request()["stdin_data"]) == stdin


# --- the request -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_the_agent_gets_what_the_verb_takes(flock: Path, sock: Path, verb: str) -> None:
    stdin = config(sock)
    with FakeAgent(sock, b'{"result":{}}\n') as agent:
        assert run(flock, verb, stdin).exit_code == 0
    names = {"container_id": "CNI_CONTAINERID", "netns": "CNI_NETNS", "ifname": "CNI_IFNAME", "args": "CNI_ARGS"}
    request = agent.only_request()
    assert json.loads(base64.b64decode(request.pop("stdin_data"), validate=True)) == stdin
    assert request == {"op": verb, "path": ENVIRONMENT["CNI_PATH"]} | {
        key: "" if verb in ("GC", "STATUS") else ENVIRONMENT[name] for key, name in names.items()
    }


def test_del_needs_no_namespace(flock: Path, sock: Path) -> None:
    with FakeAgent(sock, b"{}\n") as agent:
        assert run(flock, "DEL", config(sock), env=without("CNI_NETNS", "CNI_ARGS")) == Outcome(0, b"")
    assert (agent.only_request()["netns"], agent.only_request()["args"]) == ("", "")


@pytest.mark.parametrize(
    ("args", "arrives"),
    [
        (b'a="b\\c";\n\t\x01\x7f', 'a="b\\c";\n\t\x01\x7f'),
        ("K=ä€😀\u2028".encode(), "K=ä€😀\u2028"),
        (b"K=\xff\xc0\xaf\xed\xa0\x80\xf5;L=1", "K=" + "\ufffd" * 7 + ";L=1"),
        (b"K=\xe2\x82", "K=\ufffd\ufffd"),
        (b"\x01" * 65536, "\x01" * 65536),
    ],
)  # fmt: skip
def test_any_bytes_in_cni_args_reach_the_agent_as_valid_json(
    flock: Path, sock: Path, args: bytes, arrives: str
) -> None:
    with FakeAgent(sock, b"{}\n") as agent:
        assert run(flock, "DEL", config(sock), env={**ENVIRONMENT, "CNI_ARGS": args}) == Outcome(0, b"")
    assert agent.only_request()["args"] == arrives


@pytest.mark.parametrize("padding", [0, 1, 2, 1 << 20, (4 << 20) - 200])
def test_a_large_configuration_arrives_whole(flock: Path, sock: Path, padding: int) -> None:
    stdin = config(sock, prevResult={"padding": "p" * padding})
    with FakeAgent(sock, b"{}\n") as agent:
        assert run(flock, "DEL", stdin) == Outcome(0, b"")
    assert json.loads(base64.b64decode(agent.only_request()["stdin_data"])) == stdin


# --- the answer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "answer", [b'{"result":%s}' % RESULT, b' { "error" : null , "more": [1, {"error":1}], "result" : %s } ' % RESULT]
)
def test_the_result_is_printed_as_it_came_for_add_and_nothing_for_the_others(
    flock: Path, sock: Path, verb: str, answer: bytes
) -> None:
    with FakeAgent(sock, answer + b"\n"):
        assert run(flock, verb, config(sock)) == Outcome(0, RESULT + b"\n" if verb == "ADD" else b"")


@pytest.mark.parametrize("verb", VERBS)
def test_the_agents_error_is_printed_as_it_came(flock: Path, sock: Path, verb: str) -> None:
    odd = '"msg":"\\u0022ä\\n😀\\ud800\u2028\x7f", "details":"\\/ } , ]\\"" ,"own":[1e5]'
    error = f'{{ "cniVersion":"1.0.0","code" :104, {odd}}}'.encode()
    with FakeAgent(sock, b'{"result":{},"error":' + error + b"}\n"):
        assert run(flock, verb, config(sock)) == Outcome(1, error + b"\n")


@pytest.mark.parametrize("verb", ["DEL", "CHECK", "GC", "STATUS"])
@pytest.mark.parametrize("answer", [b"{}\n", b'{"result":null,"error":null}\n', b"{}\nand more"])
def test_an_empty_answer_is_success_without_output(flock: Path, sock: Path, verb: str, answer: bytes) -> None:
    with FakeAgent(sock, answer):
        assert run(flock, verb, config(sock)) == Outcome(0, b"")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"\n", "object is expected, at byte 0"),
        (b"hello\n", "object is expected, at byte 0"),
        (b'{"result":{}\n', "'}' is expected, at byte 12"),
        (b'{"result":{}}}\n', "follows the object, at byte 13"),
        (b'{"error":{"msg":"\xff"}}\n', "UTF-8"),
        (b'{"error":"no"}\n', "`error` is no object"),
        (b"{}\n", "no object `result`"),
        (b'{"result":null}\n', "no object `result`"),
        (b'{"result":[]}\n', "no object `result`"),
        (b'{"result":"' + b"x" * (4 << 20) + b'"}\n', "longer than 4 MiB"),
    ],
    ids=lambda value: repr(value[:16]),
)
def test_a_malformed_answer_is_a_decoding_failure_that_says_what_was_wrong(
    flock: Path, sock: Path, answer: bytes, problem: str
) -> None:
    with FakeAgent(sock, answer):
        error = run(flock, "ADD", config(sock)).error
    assert error["code"] == 6 and problem in error["msg"] and str(sock) in error["msg"]


def test_a_large_answer_comes_through(flock: Path, sock: Path) -> None:
    result = b'{"padding":"' + b"p" * (3 << 20) + b'"}'
    with FakeAgent(sock, b'{"result":' + result + b"}\n"):
        assert run(flock, "ADD", config(sock)) == Outcome(0, result + b"\n")


def test_an_agent_may_refuse_a_request_before_it_has_read_it(flock: Path, sock: Path) -> None:
    with FakeAgent(sock, b'{"error":{"code":7}}\n', reads=False):
        assert run(flock, "ADD", config(sock, padding="p" * (1 << 20))) == Outcome(1, b'{"code":7}\n')


@pytest.mark.parametrize("stdout", ["full", "closed", "unread"])
def test_output_that_cannot_be_written_is_a_failure(flock: Path, sock: Path, stdout: str) -> None:
    command = ["/bin/sh", "-c", 'exec "$0" >&-', str(flock)] if stdout == "closed" else [str(flock)]
    reader, writer = os.pipe()
    os.close(reader)
    with FakeAgent(sock, b'{"result":{}}\n'), open("/dev/full", "wb") as full, open(writer, "wb") as unread:
        done = subprocess.run(
            command,
            input=json.dumps(config(sock)).encode(),
            env={**ENVIRONMENT, "CNI_COMMAND": "ADD"},
            stdout=full if stdout == "full" else unread,
            timeout=60,
        )
    assert done.returncode == 1


# --- waiting for the agent -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stale", [False, True])
def test_an_agent_that_comes_late_is_waited_for(flock: Path, sock: Path, stale: bool) -> None:
    if stale:  # the socket of an agent that was killed
        with socket.socket(socket.AF_UNIX) as left_over:
            left_over.bind(str(sock))
    started = threading.Event()
    agent = FakeAgent(sock, b'{"result":{}}\n')

    def start() -> None:
        sock.unlink(missing_ok=True)
        agent.__enter__()
        started.set()

    timer = threading.Timer(0.3, start)
    timer.start()
    try:
        outcome = run(flock, "ADD", config(sock, wait=30))
    finally:
        started.wait(10)
        agent.__exit__()
        timer.join()
    assert outcome == Outcome(0, b"{}\n")


@pytest.mark.parametrize("wait", [b"1e999", b"1" + b"0" * 999, b"0.5e-999", b"-0"])
def test_an_extreme_wait_is_a_number_too(impatient: Path, sock: Path, wait: bytes) -> None:
    stdin = json.dumps(config(sock, wait="?")).encode().replace(b'"?"', wait)
    with FakeAgent(sock, b"{}\n"):
        assert run(impatient, "DEL", stdin) == Outcome(0, b"")


def test_an_agent_that_dies_after_the_request_gets_it_again(flock: Path, sock: Path) -> None:
    with FakeAgent(sock, b"", b'{"result":{"cut', b'{"result":{}}', b'{"result":{}}\n') as agent:
        assert run(flock, "ADD", config(sock, wait=30)) == Outcome(0, b"{}\n")
    assert len(agent.requests) == 4 and len(set(agent.requests)) == 1


@pytest.mark.parametrize("verb", ["ADD", "DEL", "CHECK", "GC"])
@pytest.mark.parametrize(("wait", "said"), [(0, None), (0.25, "0.250 s"), (1, "1 s"), (4e-1, "0.400 s")])
def test_without_an_agent_the_runtime_is_told_to_try_again(
    flock: Path, sock: Path, verb: str, wait: float, said: str | None
) -> None:
    error = run(flock, verb, config(sock, wait=wait)).error
    assert error["code"] == 11 and str(sock) in error["msg"] and "flock-agent" in error["details"]
    assert error["msg"].endswith(f" for {said}") if said else " for " not in error["msg"]


def test_an_agent_that_only_hangs_up_is_tried_until_the_wait_is_over(flock: Path, sock: Path) -> None:
    with FakeAgent(sock, b"") as agent:
        error = run(flock, "ADD", config(sock, wait=0.4)).error
    assert error["code"] == 11 and "closed" in error["msg"] and len(agent.requests) > 2


def test_a_full_backlog_is_waited_for(flock: Path, impatient: Path, sock: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(sock))
        listener.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(sock))
            add = run(flock, "ADD", config(sock, wait=0.2)).error
            status = run(impatient, "STATUS", config(sock)).error
    sock.unlink()
    assert (add["code"], status["code"]) == (11, 50) and "too many" in add["msg"] and "too many" in status["msg"]


def test_a_socket_that_can_never_work_fails_at_once(flock: Path, run_dir: Path) -> None:
    (run_dir / "file").touch()
    error = run(flock, "ADD", config(run_dir / "file/agent.sock", wait=3000)).error
    assert error["code"] == 5 and "Not a directory" in error["msg"]


def test_a_silent_agent_is_given_up(impatient: Path, sock: Path) -> None:
    with FakeAgent(sock, None) as agent:
        add = run(impatient, "ADD", config(sock, wait=0.1)).error
        status = run(impatient, "STATUS", config(sock, wait=3000)).error
    assert (add["code"], status["code"]) == (11, 50)
    assert "no answer" in add["msg"] and "0.300 s" in add["msg"] and "0.200 s" in status["msg"]
    assert len(agent.requests) == 2


def test_status_never_waits_for_an_agent(flock: Path, sock: Path) -> None:
    assert run(flock, "STATUS", config(sock, wait=3000)).code == 50
    with FakeAgent(sock, b"") as agent:
        assert run(flock, "STATUS", config(sock, wait=3000)).code == 50
    assert len(agent.requests) == 1


# --- beside the runtime's loopback plugin ----------------------------------------------------------------------------

# Starts the executable and, a moment later, the loopback plugin; prints whether that had ended when the first had.
RUNTIME = """
import ctypes, os, subprocess, sys, time
name, executable, loopback, container = sys.argv[1:]
ctypes.CDLL(None).prctl(15, name.encode())
first = subprocess.Popen([executable], stdin=sys.stdin, stdout=subprocess.DEVNULL)
time.sleep(0.1)
other = subprocess.Popen([loopback], env={**os.environ, "CNI_CONTAINERID": container})
assert first.wait(60) == 0
print(other.poll() is not None)
other.wait(60)
"""
ANYCAST = {"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"flock.fritzlab.net/anycast": "2001:db8:53::1"}}}


@pytest.fixture
def netns() -> Iterator[str]:
    name = f"flock-exe-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    yield f"/run/netns/{name}"
    subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.mark.parametrize(
    ("runtime", "container", "more", "waits"),
    [
        pytest.param("containerd", "own", ANYCAST, True, id="the plugin is still to come"),
        pytest.param("containerd", "own", {}, False, id="no address for lo"),
        pytest.param("crio", "own", ANYCAST, False, id="a runtime without that plugin"),
    ],
)
def test_a_pod_with_addresses_on_lo_is_attached_when_the_loopback_plugin_has_ended(
    impatient: Path,
    sock: Path,
    tmp_path: Path,
    netns: str,
    runtime: str,
    container: str,
    more: dict[str, Any],
    waits: bool,
) -> None:
    loopback = tmp_path / "loopback"
    loopback.write_text(f"#!/bin/sh\nsleep 0.2\nip -n {Path(netns).name} link set lo up\nsleep 0.3\n")
    loopback.chmod(0o755)
    env = {**os.environ, **SANITIZERS, **ENVIRONMENT, "CNI_COMMAND": "ADD"}
    env |= {"CNI_NETNS": netns, "CNI_CONTAINERID": "own"}
    with FakeAgent(sock, b'{"result":{}}\n'):
        done = subprocess.run(
            [sys.executable, "-c", RUNTIME, runtime, impatient, loopback, container],
            input=json.dumps(config(sock, **more)), env=env, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{waits}\n", "")


def test_a_loopback_plugin_that_never_ends_or_is_another_pods_holds_nobody_up(
    impatient: Path, sock: Path, tmp_path: Path, netns: str
) -> None:
    subprocess.run(["ip", "-n", Path(netns).name, "link", "set", "lo", "up"], check=True)
    loopback = tmp_path / "loopback"
    loopback.write_text("#!/bin/sh\nread line\n")
    loopback.chmod(0o755)
    env = {**ENVIRONMENT, "CNI_NETNS": netns, "CNI_CONTAINERID": "own"}
    for container, at_least in (("other", 0.0), ("own", 2.0)):
        with subprocess.Popen([loopback], stdin=subprocess.PIPE, env={"CNI_CONTAINERID": container}) as plugin:
            began = time.monotonic()
            with FakeAgent(sock, b'{"result":{}}\n'):
                assert run(impatient, "ADD", config(sock, **ANYCAST), env) == Outcome(0, b"{}\n")
            assert plugin.poll() is None and time.monotonic() - began >= at_least


# --- what is left for an agent that is away --------------------------------------------------------------------------

LEFT = f"{ENVIRONMENT['CNI_CONTAINERID']}:{ENVIRONMENT['CNI_IFNAME']}"


@pytest.fixture
def notes(run_dir: Path) -> Iterator[Path]:
    directory = run_dir / "deferred"
    directory.mkdir()
    yield directory
    shutil.rmtree(directory)


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def test_a_del_that_finds_no_agent_is_left_for_the_next(impatient: Path, sock: Path, notes: Path) -> None:
    for _ in range(2):
        assert run(impatient, "DEL", config(sock, wait=3000, deferDel=True)) == Outcome(0, b"")
    assert names(notes) == [LEFT]
    assert (notes / LEFT).stat().st_mode & 0o777 == 0o600


def test_an_agent_that_hangs_up_twice_is_none(impatient: Path, sock: Path, notes: Path) -> None:
    with FakeAgent(sock, b"") as agent:
        assert run(impatient, "DEL", config(sock, wait=3000, deferDel=True)) == Outcome(0, b"")
    assert names(notes) == [LEFT] and len(agent.requests) == 2


@pytest.mark.parametrize("answer", [b"{}\n", b'{"error":{"code":11}}\n'])
def test_an_agent_that_comes_meanwhile_is_asked_and_nothing_is_left(
    impatient: Path, sock: Path, notes: Path, answer: bytes
) -> None:
    with FakeAgent(sock, b"", answer) as agent:
        outcome = run(impatient, "DEL", config(sock, deferDel=True))
    assert outcome.exit_code == (b"error" in answer) and names(notes) == []
    assert len(agent.requests) == 2 and len(set(agent.requests)) == 1


def test_an_agent_that_is_there_is_asked_once(impatient: Path, sock: Path, notes: Path) -> None:
    with FakeAgent(sock, b"{}\n") as agent:
        assert run(impatient, "DEL", config(sock, deferDel=True)) == Outcome(0, b"")
    assert names(notes) == [] and len(agent.requests) == 1


@pytest.mark.parametrize("verb", ["ADD", "CHECK", "GC", "STATUS"])
def test_only_a_del_is_left_for_later(impatient: Path, sock: Path, notes: Path, verb: str) -> None:
    assert run(impatient, verb, config(sock, deferDel=True)).code == (50 if verb == "STATUS" else 11)
    assert names(notes) == []


def test_nothing_is_left_unless_the_configuration_says_so(impatient: Path, sock: Path, notes: Path) -> None:
    for how in ({}, {"deferDel": False}):
        assert run(impatient, "DEL", config(sock, **how)).code == 11
    assert names(notes) == []


def test_a_del_that_cannot_be_left_waits(impatient: Path, sock: Path, notes: Path) -> None:
    long = {**ENVIRONMENT, "CNI_CONTAINERID": "c" * 300}  # longer than the name of a file can be
    assert "for 0.100 s" in run(impatient, "DEL", config(sock, wait=0.1, deferDel=True), long).error["msg"]
    notes.rmdir()
    assert "for 0.100 s" in run(impatient, "DEL", config(sock, wait=0.1, deferDel=True)).error["msg"]
    notes.mkdir()


# --- fuzz, under the sanitizers --------------------------------------------------------------------------------------

FUZZ = settings(max_examples=int(os.environ.get("FLOCK_FUZZ", "100")), deadline=None)
KEYS = st.sampled_from(["cniVersion", "socket", "wait", "deferDel", "error", "result"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 9999) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(), inner, max_size=4),
    max_leaves=8,
)
BRUISES = [b"", *(bytes([byte]) for byte in b'{}[]",:\\ u\n-.0eE\x00\xc3\xff')]


@st.composite
def bruised_json(draw: st.DrawFn) -> bytes:
    """JSON text, valid or with a few bytes replaced, removed or put in."""
    text = bytearray(json.dumps(draw(JSON), ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass"))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text[at : at + draw(st.integers(0, 2))] = draw(st.sampled_from(BRUISES))
    return bytes(text)


def is_json_object(text: bytes) -> bool:
    def refuse(_: str) -> None:
        raise ValueError

    try:
        return isinstance(json.loads(text.decode(), parse_constant=refuse), dict)
    except ValueError:
        return False


@FUZZ
@given(stdin=bruised_json() | st.binary())
def test_the_scanner_takes_exactly_what_is_json(impatient: Path, stdin: bytes) -> None:
    code = run(impatient, "STATUS", stdin).code  # no generated cniVersion is one of ours: no socket is reached
    assert (code == 6) == (not is_json_object(stdin)) and code in (1, 6, 7)


@FUZZ
@given(
    verb=st.sampled_from([*VERBS, "VERSION"]) | st.text(st.characters(exclude_characters="\0", codec="utf-8")),
    values=st.lists(
        st.binary(max_size=80).map(lambda value: value.replace(b"\0", b"")) | st.just(b"a1"), min_size=5, max_size=5
    ),
)
def test_any_environment_gives_valid_json(impatient: Path, run_dir: Path, verb: str, values: list[bytes]) -> None:
    outcome = run(impatient, verb, config(run_dir / "absent.sock"), env=dict(zip(ENVIRONMENT, values, strict=True)))
    if verb == "VERSION":
        assert outcome.exit_code == 0 and json.loads(outcome.out)
    else:
        assert outcome.code in (4, 11, 50)


@FUZZ
@given(
    verb=st.sampled_from(VERBS),
    answer=bruised_json() | st.binary() | bruised_json().map(lambda text: b'{"error":' + text + b"}"),
)
def test_any_answer_gives_valid_json_or_silence(impatient: Path, run_dir: Path, verb: str, answer: bytes) -> None:
    sock = run_dir / "fuzz.sock"
    with FakeAgent(sock, answer + b"\n"):
        outcome = run(impatient, verb, config(sock))
    assert outcome.exit_code in (0, 1)
    if outcome.exit_code == 1 or verb == "ADD":
        assert isinstance(json.loads(outcome.out), dict)
    else:
        assert outcome.out == b""
