"""A unix socket whose queue of callers is full: somebody is there, and has to be waited for."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flock.edge import unixsocket
from flock.edge.bird import control
from flock.edge.bird.control import BirdControl, BirdError
from flock.edge.rpc_client import AgentError, ask
from flock.edge.unixsocket import connect
from looping import looped


class Busy:
    """Listens, and accepts nobody until it is told to; its queue has room for one, who is there already."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(0)
        self._first = socket.socket(socket.AF_UNIX)
        self._first.connect(str(path))
        self._waits = threading.Event()

    def answer(self, said: bytes) -> threading.Thread:
        """The next but one, as soon as it had to wait."""

        def serve() -> None:
            assert self._waits.wait(30)
            self.listener.accept()[0].close()
            self.listener.settimeout(30)
            caller, _ = self.listener.accept()
            with caller:
                caller.sendall(said)
                caller.recv(1 << 16)

        thread = threading.Thread(target=serve)
        thread.start()
        return thread

    def is_waited_for(self) -> None:
        self._waits.set()

    def close(self) -> None:
        self._first.close()
        self.listener.close()


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Busy]:
    with contextlib.closing(Busy(tmp_path / "flock.sock")) as busy:
        attempt = unixsocket._attempt

        def attempted(path: Path, *, last: bool) -> socket.socket | None:
            found = attempt(path, last=last)
            if found is None:
                busy.is_waited_for()
            return found

        monkeypatch.setattr(unixsocket, "_attempt", attempted)
        yield busy


def test_an_agent_with_many_callers_is_waited_for(busy: Busy) -> None:
    thread = busy.answer(b'{"result": "here"}\n')
    assert ask(busy.path.parent, "status") == "here"
    thread.join()


def test_one_that_stays_busy_is_said_to_be(busy: Busy) -> None:
    with pytest.raises(AgentError) as refused:
        ask(busy.path.parent, "status", timeout=0.1)
    assert str(refused.value) == f"no answer from the agent at {busy.path}: too many others wait for its answer"


def test_nobody_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        connect(tmp_path / "none", within=600)
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(tmp_path / "sock"))
    with pytest.raises(ConnectionRefusedError):
        connect(tmp_path / "sock", within=600)


def test_a_connection_blocks_as_others_do(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sock"))
        listener.listen()
        with connect(tmp_path / "sock", within=30) as connection:
            assert connection.getblocking()


@looped
async def test_a_bird_with_many_callers_is_waited_for(busy: Busy) -> None:
    thread = busy.answer(b"0001 BIRD 2.0.12 ready.\n")
    bird = await BirdControl.connect(busy.path)
    assert bird.greeting.text == "BIRD 2.0.12 ready."
    bird.close()
    await asyncio.to_thread(thread.join)


@looped
async def test_a_bird_that_says_nothing_keeps_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be asked again and again, and its queue fill."""
    monkeypatch.setattr(control, "TIMEOUT", 0.1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "bird.ctl"))
        silent.listen()
        with pytest.raises(BirdError, match="no answer within"):
            await BirdControl.connect(tmp_path / "bird.ctl")
        await asyncio.sleep(0)  # transports close in a turn of their own
        caller, _ = silent.accept()
        with caller:
            caller.settimeout(10)
            assert caller.recv(1) == b""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"", "(it hung up|reset by peer); is flock-agent running"),
        (b"[1]\n", "Expected `object`"),
        (b"SSH-2.0\n", "malformed"),
        (b'{"error": {"msg": "the request is too long"}}\n', "^the request is too long$"),
    ],
)
def test_whoever_answers_before_it_has_read_all_is_heard(tmp_path: Path, said: bytes, told: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "flock.sock"))
        listener.listen()

        def serve() -> None:
            caller, _ = listener.accept()
            with caller:
                caller.recv(100)
                caller.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(AgentError, match=told):
            ask(tmp_path, "policy.try", "x" * (4 << 20))
        thread.join()
