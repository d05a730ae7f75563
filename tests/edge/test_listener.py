"""What listens to the kernel does not end: neither by a notice it cannot take nor by a socket that fails."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing

import pytest

from flock.edge.netlink import listener
from flock.edge.netlink.listener import Listener

PATIENCE = 20


class Ear(Listener):
    """On loopback instead of netlink, where a failing socket can be provoked."""

    def __init__(self, gather: float) -> None:
        self.gather = gather
        self.heard: list[bytes] = []
        self.missed = 0
        self.refusals = 0  # so many attempts to open fail
        super().__init__()

    def _open(self) -> socket.socket:
        if self.refusals:
            self.refusals -= 1
            raise OSError("no sockets today")
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        made.bind(("127.0.0.1", 0))
        return made

    def _take(self, data: bytes) -> None:
        if data == b"bad":
            raise ValueError("what is this?")
        self.heard.append(data)

    def _missed(self) -> None:
        self.missed += 1

    def tell(self, data: bytes) -> None:
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as mouth:
            mouth.sendto(data, self._socket.getsockname())

    def break_socket(self) -> None:
        """What was sent to where nobody listens comes back as an error of the next receive."""
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as nobody:
            nobody.bind(("127.0.0.1", 0))
            where = nobody.getsockname()
        self._socket.connect(where)
        self._socket.send(b"anybody?")


@pytest.fixture(params=[0.0, 0.02], ids=["at once", "gathered"])
def hear(request: pytest.FixtureRequest) -> Callable[[Callable[[Ear], Awaitable[None]]], None]:
    def run(test: Callable[[Ear], Awaitable[None]]) -> None:
        async def listening() -> None:
            ear = Ear(request.param)
            ear.start()
            try:
                await asyncio.wait_for(test(ear), PATIENCE)
            finally:
                ear.close()

        asyncio.run(listening())

    return run


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.01)


Hear = Callable[[Callable[[Ear], Awaitable[None]]], None]


def test_a_notice_that_cannot_be_taken_costs_that_notice_alone(hear: Hear) -> None:
    async def test(ear: Ear) -> None:
        for data in (b"one", b"bad", b"two"):
            ear.tell(data)
        await until(lambda: ear.heard == [b"one", b"two"])
        assert ear.missed == 1
        ear.tell(b"three")
        await until(lambda: ear.heard[-1] == b"three")

    hear(test)


def test_a_socket_that_fails_is_opened_anew_and_something_may_have_been_missed(
    hear: Hear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "RETRY", 0.02)

    async def test(ear: Ear) -> None:
        ear.refusals = 3
        ear.break_socket()
        await until(lambda: ear.missed)
        ear.tell(b"again")
        await until(lambda: ear.heard == [b"again"])

    hear(test)


def test_one_that_was_closed_stays_closed(hear: Hear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "RETRY", 0.02)

    async def test(ear: Ear) -> None:
        ear.refusals = 1000
        ear.break_socket()
        await until(lambda: ear.refusals < 1000)
        ear.close()
        left = ear.refusals
        await asyncio.sleep(0.1)
        assert ear.refusals == left and not ear.missed

    hear(test)
