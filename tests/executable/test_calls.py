"""The CNI executable as a runtime runs it: environment and standard input in, standard output and exit code out."""

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from calling import (
    ENVIRONMENT,
    RESULT,
    UNREADABLE,
    VERBS,
    VERSIONS,
    FakeAgent,
    Outcome,
    config,
    run,
    without,
)


def test_it_is_one_small_file_that_needs_no_library(flock: Path) -> None:
    made_by = subprocess.run(["gcc", "-dumpversion"], capture_output=True, text=True, check=True).stdout.strip()
    assert flock.stat().st_size <= (45_000 if made_by == "12" else 48_000)  # that of Debian 13 fills one page more
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


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "name",
    [None, "", "-a", ".a", "_a", "a/b", "a b", "a\n", "ä", "a" * 256, 7, [], *UNREADABLE],
    ids=lambda n: repr(n)[:9],
)
def test_a_networks_name_has_the_specifications_form(flock: Path, sock: Path, verb: str, name: Any) -> None:
    stdin = config(sock, name=name, cniVersion="0.0.1")  # which is looked at later
    if name is None:
        del stdin["name"]
    with FakeAgent(sock, b'{"result":{}}\n') as agent:
        error = run(flock, verb, stdin).error
    assert error["code"] == 7 and error["msg"].startswith("name: ") and agent.requests == []


@pytest.mark.parametrize("name", ["a", "0", "A_b.c-9", "a" * 255])
def test_any_name_of_that_form_is_taken(flock: Path, sock: Path, name: str) -> None:
    with FakeAgent(sock, b"{}\n"):
        assert run(flock, "DEL", config(sock, name=name)) == Outcome(0, b"")


def test_only_top_level_keys_count_and_escapes_are_undone(flock: Path, sock: Path) -> None:
    stdin = b"""{ "prevResult" : {"cniVersion": "9", "socket": "/nowhere", "wait": "x"}, "list":[{"socket":1}],
        "text": "\\"socket\\":\\"/nowhere\\",", "\\"socket": 3, "Socket": 4, "socket\\u0000": 5,
        "socket": 6, "\\u0073oc\\u006Bet" : "%s" , "cni\\u0056ersion":"1\\u002e0.0", "wait" : 0E-1,
        "n\\u0061me": "fl\\u006fck"
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
