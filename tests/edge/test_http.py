"""The server of the agent's pages: who gets in, who gets an answer, and what those cost who do not read theirs."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from flock.edge import http
from flock.edge.callers import PLACES
from flock.edge.http import ANSWERED, OTHERS, READERS, HttpServer, Page, Request, Stream
from flock.edge.kube.client import chunks, whole

LONG = b"x" * (4 << 20)
PATIENCE = 30.0


class Served:
    """A server on a port of its own, and those who ask it."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()  # the stream waits for it
        self.waiting = asyncio.Event()  # somebody asked for the long page
        self.told = 0  # pieces of the stream that were asked for
        self.most = len(LONG) >> 16  # of which there are no more
        pages: dict[str, Page | Stream] = {
            "/probe": Page("text/plain", lambda: (200, b"ok\n")),
            "/long": Stream("application/json", self._long),
            "/feed": Stream("text/event-stream", self._feed, lasting=True),
        }
        self.server = HttpServer("127.0.0.1:0", pages)

    async def _long(self, _: Request) -> AsyncGenerator[bytes, None]:
        self.waiting.set()
        await self.go_on.wait()
        for start in range(0, len(LONG), 1 << 16):
            if self.told == self.most:
                raise RuntimeError("there is no more")
            self.told += 1
            yield LONG[start : start + (1 << 16)]

    async def _feed(self, request: Request) -> AsyncGenerator[bytes, None]:
        yield request.headers.get("last-event-id", "none").encode()
        while True:
            await self.go_on.wait()
            self.told += 1
            yield b"." * 4096

    @property
    def port(self) -> int:
        assert self.server._server is not None
        return int(self.server._server.sockets[0].getsockname()[1])

    async def ask(
        self, page: str, *, method: str = "GET", host: str = "", **headers: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        lines = {"Host": host or f"127.0.0.1:{self.port}", **{k.replace("_", "-"): v for k, v in headers.items()}}
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"{method} {page} HTTP/1.1\r\n{text}\r\n".encode())
        return reader, writer

    async def status(self, page: str, **how: str) -> int:
        reader, writer = await self.ask(page, **how)
        status = await head(reader)
        writer.close()
        return status


async def head(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(PATIENCE):
        return int((await reader.readuntil(b"\r\n\r\n")).split(b" ")[1])


async def body(reader: asyncio.StreamReader) -> bytes:
    """As any client reads it that was told of chunks."""
    return await whole(chunks(reader, {"transfer-encoding": "chunked"}, patience=PATIENCE))


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - whoever changes it tells nobody
            await asyncio.sleep(0.01)


def tell(story: Callable[[Served], Awaitable[Any]]) -> None:
    async def run() -> None:
        served = Served()
        await served.server.start()
        try:
            async with asyncio.timeout(60):
                await story(served)
        finally:
            served.server.close()
            await asyncio.sleep(0.01)  # who is hung up on hears of it

    asyncio.run(run())


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "LOCALHOST:9465"}, 200),
        ({"host": "[::1]:9465"}, 200),
        ({"host": "127.0.0.1:1"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:9465"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "localhost.evil.example"}, 403),
        ({"host": "[::1].evil.example"}, 403),
        ({"host": "192.0.2.1"}, 403),
        ({"host": "["}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "none"}, 200),
    ],
    ids=str,
)
def test_what_is_streamed_is_for_who_asks_for_this_machine_and_probes_are_answered_to_anybody(
    how: dict[str, str], status: int
) -> None:
    async def story(served: Served) -> None:
        assert await served.status("/feed", **how) == status
        served.go_on.set()
        assert await served.status("/long", **how) == status
        assert await served.status("/probe", **how) == 200

    tell(story)


@pytest.mark.parametrize(
    ("method", "page", "status"),
    [("HEAD", "/probe", 200), ("HEAD", "/feed", 200), ("POST", "/feed", 405), ("GET", "/nothing", 404)],
)
def test_other_methods_and_pages_get_no_more_than_a_head(method: str, page: str, status: int) -> None:
    async def story(served: Served) -> None:
        reader, _ = await served.ask(page, method=method)
        assert await head(reader) == status
        assert status != 200 or await reader.read() == b""

    tell(story)


def test_a_long_answer_comes_whole_also_to_who_has_nothing_more_to_say() -> None:
    async def story(served: Served) -> None:
        reader, writer = await served.ask("/long")
        writer.write_eof()
        await served.waiting.wait()
        served.go_on.set()
        assert await head(reader) == 200
        assert await body(reader) == LONG

    tell(story)


@pytest.mark.parametrize("most", [0, 1, 5])
def test_an_answer_that_ends_too_early_does_not_look_whole(most: int) -> None:
    async def story(served: Served) -> None:
        served.most = most
        served.go_on.set()
        reader, _ = await served.ask("/long")
        assert await head(reader) == 200
        with pytest.raises(asyncio.IncompleteReadError):
            await body(reader)

    tell(story)


@pytest.mark.parametrize("version", [" HTTP/1.0", " HTTP/0.9", ""])
def test_who_knows_no_chunks_gets_the_answer_as_it_is(version: str) -> None:
    async def story(served: Served) -> None:
        served.go_on.set()
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(f"GET /long{version}\r\n\r\n".encode())
        assert await head(reader) == 200
        assert await reader.read() == LONG

    tell(story)


def test_a_long_answer_that_nobody_reads_is_not_made_and_its_caller_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PATIENCE", 0.3)

    async def story(served: Served) -> None:
        served.go_on.set()
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
        writer.write(b"GET /long HTTP/1.1\r\n\r\n")
        await until(lambda: served.told and not served.server.answered._taken)
        assert served.told < len(LONG) >> 16, "what is not read is not asked for"
        assert len(await reader.read(len(LONG))) < len(LONG)

    tell(story)


def test_a_reader_that_does_not_read_is_hung_up_on_and_its_place_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PATIENCE", 0.3)

    async def story(served: Served) -> None:
        stuck = [await asyncio.open_connection("127.0.0.1", served.port, limit=1024) for _ in range(READERS)]
        for _, writer in stuck:
            writer.write(b"GET /feed HTTP/1.1\r\n\r\n")
        await until(lambda: len(served.server.readers) == READERS)
        assert await served.status("/feed") == 503
        served.go_on.set()
        await until(lambda: not served.server.readers)
        told = served.told
        await asyncio.sleep(0.1)
        assert served.told == told < READERS * (2 << 20) // 4096, "nothing is kept for who does not read"
        assert await served.status("/feed") == 200

    tell(story)


def test_a_reader_keeps_its_place_in_any_crowd_and_takes_none_of_a_probe() -> None:
    async def story(served: Served) -> None:
        readers = [await served.ask("/feed", Last_Event_ID="7") for _ in range(READERS)]
        for reader, _ in readers:
            assert await head(reader) == 200
            assert await reader.readexactly(1) == b"7"
        silent = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(PLACES + 50)]
        slow = [await served.ask("/long") for _ in range(ANSWERED + 20)]
        assert await served.status("/probe") == 200
        assert await served.status("/feed") == 503
        served.go_on.set()
        for reader, _ in readers:
            assert await reader.readexactly(100) == b"." * 100
        for _, writer in (*readers, *silent, *slow):
            writer.transport.abort()

    tell(story)


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    """Sockets that are made meanwhile are a user's without rights."""
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_users_without_rights_leave_places_for_who_has_some() -> None:
    async def story(served: Served) -> None:
        with nobody():
            theirs = [await served.ask("/feed") for _ in range(OTHERS + 1)]
        assert [await head(reader) for reader, _ in theirs] == [*[200] * OTHERS, 503]
        ours = [await served.ask("/feed") for _ in range(READERS - OTHERS + 1)]
        assert [await head(reader) for reader, _ in ours] == [*[200] * (READERS - OTHERS), 503]
        for _, writer in (*theirs, *ours):
            writer.transport.abort()

    tell(story)


def test_who_waits_for_an_answer_is_not_pushed_out_by_who_says_nothing() -> None:
    async def story(served: Served) -> None:
        reader, _ = await served.ask("/long")
        await served.waiting.wait()
        silent = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(PLACES + 50)]
        served.go_on.set()
        assert await head(reader) == 200
        assert await body(reader) == LONG
        for _, writer in silent:
            writer.transport.abort()

    tell(story)


def test_readers_end_with_the_server() -> None:
    async def story(served: Served) -> None:
        reader, _ = await served.ask("/feed")
        assert await head(reader) == 200
        served.server.close()
        with contextlib.suppress(ConnectionResetError):
            await reader.read()  # it ends

    tell(story)
