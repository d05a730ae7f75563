"""An agent that is late, busy, silent or away, and a plugin that has to go first."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from calling import ENVIRONMENT, SANITIZERS, FakeAgent, Outcome, config, run

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


# --- an agent that is being restarted --------------------------------------------------------------------------------


@pytest.fixture
def served(run_dir: Path) -> Iterator[Path]:
    """What an agent that can serve keeps beside its socket."""
    file = run_dir / "serving"
    file.touch()
    yield file
    file.unlink()


def test_status_bears_with_an_agent_that_served_less_than_a_minute_ago(
    impatient: Path, sock: Path, served: Path
) -> None:
    assert run(impatient, "STATUS", config(sock)) == Outcome(0, b"")
    with FakeAgent(sock, b"") as agent:  # it ends while it is asked
        assert run(impatient, "STATUS", config(sock)) == Outcome(0, b"")
    assert len(agent.requests) == 1


@pytest.mark.parametrize("age", [61, 3600, -60], ids=["longer gone", "long gone", "after the clock was set back"])
def test_an_agent_that_is_longer_gone_is_not_available(impatient: Path, sock: Path, served: Path, age: int) -> None:
    then = time.time() - age
    os.utime(served, (then, then))
    assert run(impatient, "STATUS", config(sock)).code == 50


def test_what_an_agent_answers_counts_more_than_what_it_did_before(impatient: Path, sock: Path, served: Path) -> None:
    with FakeAgent(sock, b'{"error":{"cniVersion":"1.1.0","code":50,"msg":"","details":""}}\n'):
        assert run(impatient, "STATUS", config(sock)).code == 50
    with FakeAgent(sock, None):
        assert run(impatient, "STATUS", config(sock)).code == 50


@pytest.mark.parametrize("verb", ["ADD", "DEL", "CHECK", "GC"])
def test_only_status_is_answered_without_an_agent(impatient: Path, sock: Path, served: Path, verb: str) -> None:
    assert run(impatient, verb, config(sock)).code == 11


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
