"""The page's server: on loopback, for whoever has the key that is in the printed address.

Other sites that a browser visits can make it send requests here, and other users of this machine can connect.  So the
address carries a key, a request says whose page asks (Origin) and whom it believes to ask (Host: a name that somebody
made lead here is not ours), and nothing is served to anybody else.  Nothing but GET, one answer per connection.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Mapping
from hmac import compare_digest
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs

import msgspec

from flock import __version__
from flock.core.errors import FlockError
from flock.edge.callers import Callers
from flock.edge.http import Request
from flock.view.picture import Picture, Reader
from flock.view.source import CannotTell, Source

PAGE = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".txt": "text/plain; charset=utf-8",
}
JSON, TEXT = "application/json", TYPES[".txt"]
HEAD_LIMIT = 16 << 10
PATIENCE = 10.0  # seconds for a request to arrive, and for a page to take what it is sent: who is slower is dropped
PACE = 0.2  # between two batches of news for a page
ALIVE = 10.0  # a word at least this often, so that both ends notice when the other is gone
READERS, QUESTIONS = 16, 4  # at a time

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    f"Content-Security-Policy: {POLICY}\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-store\r\nConnection: close\r\n"
)

Answer = tuple[HTTPStatus, str, bytes]  # status, content type, body


class Refused(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Caller:
    """One connection, as long as nothing is known of it."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def dismiss(self) -> None:
        self._task.cancel()


class Server:
    """Serves one picture.  `start` says where."""

    def __init__(self, picture: Picture, source: Source, *, clock: Callable[[], float] = time.time) -> None:
        self._picture, self._source, self._clock = picture, source, clock
        self.key = secrets.token_urlsafe(32)
        self._pages = {str(path.relative_to(PAGE)): path for path in PAGE.rglob("*") if path.suffix in TYPES}
        self._pages[""] = PAGE / "index.html"
        self._hosts: frozenset[str] = frozenset()
        self._asking = asyncio.Semaphore(QUESTIONS)
        self._readers = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._silent = Callers()  # who has not said yet that it has the key: other users of this machine, too

    async def start(self, port: int = 0) -> str:
        """The address to open, key included.  FlockError if the port is taken."""
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=HEAD_LIMIT)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or "no such port"
            raise FlockError(f"cannot listen on 127.0.0.1:{port}: {reason}") from None
        port = self._server.sockets[0].getsockname()[1]
        self._hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))
        return f"http://127.0.0.1:{port}/{self.key}/"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        caller = _Caller(task)
        try:
            self._silent.enter(caller)
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
            path, query = self._admitted(Request.read(head))
            self._silent.leave(caller)
            if path == "api/stream":
                await self._stream(writer)
            else:
                await self._send(writer, *await self._answer(path, query))
        except Refused as refused:
            with contextlib.suppress(OSError, TimeoutError):
                await self._send(writer, refused.status, TEXT, f"{refused}\n".encode())
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it went away, or was too slow
        finally:
            self._silent.leave(caller)
            self._connections.discard(task)
            writer.transport.abort()

    def _admitted(self, request: Request) -> tuple[str, Mapping[str, list[str]]]:
        """What is asked for below the key.  Refused, unless by our own page or by who was given the address."""
        if request.headers.get("host", "").lower() not in self._hosts:
            raise Refused(HTTPStatus.FORBIDDEN, "not the host of this page")
        origin = request.headers.get("origin")
        if origin is not None and origin.lower().removeprefix("http://") not in self._hosts:
            raise Refused(HTTPStatus.FORBIDDEN, "not for other pages")
        key, slash, below = request.path.removeprefix("/").partition("/")
        if not request.path.startswith("/") or not compare_digest(key.encode(), self.key.encode()) or not slash:
            raise Refused(HTTPStatus.FORBIDDEN, "the address needs the key that was printed with it")
        if request.method != "GET":
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET")
        return below, parse_qs(request.query)

    async def _answer(self, path: str, query: Mapping[str, list[str]]) -> Answer:
        if path in self._pages:
            return HTTPStatus.OK, TYPES[self._pages[path].suffix], self._pages[path].read_bytes()
        try:
            if path == "api/why":
                asked = (_one(query, name) for name in ("source", "destination", "port"))
                return await self._ask(query, "policy", "why", *asked)
            if path == "api/check":
                return await self._ask(query, "check")
            if path == "api/look":
                self._source.look_at(tuple(query.get("node", ())))
                return HTTPStatus.OK, JSON, b"{}"
        except CannotTell as error:
            status = HTTPStatus.BAD_REQUEST if error.wrong else HTTPStatus.BAD_GATEWAY
            return status, JSON, msgspec.json.encode({"error": error.msg})
        raise Refused(HTTPStatus.NOT_FOUND, "no such page")

    async def _ask(self, query: Mapping[str, list[str]], *command: str) -> Answer:
        node = _one(query, "node")
        if node not in self._picture.nodes:
            raise CannotTell(f"no node {node!r}", wrong=True)
        async with self._asking:
            return HTTPStatus.OK, JSON, await self._source.ask(node, *command)

    async def _send(self, writer: asyncio.StreamWriter, status: HTTPStatus, kind: str, body: bytes) -> None:
        head = f"HTTP/1.1 {status} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{HEADERS}"
        writer.write(head.encode() + b"\r\n" + body)
        async with asyncio.timeout(PATIENCE):
            writer.close()
            await writer.wait_closed()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        """What is known, then what changes, until the page goes away or does not take it."""
        if self._readers >= READERS:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "enough pages are open")
        self._readers += 1
        try:
            await _told(writer, f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{HEADERS}\r\n".encode())
            await _told(writer, b"retry: 1000\n" + self._picture.hello(now=self._clock(), version=__version__))
            reader, spoken = Reader(self._picture), time.monotonic()
            while True:
                for event in reader.news():
                    await _told(writer, event)
                    spoken = time.monotonic()
                if time.monotonic() - spoken > ALIVE:
                    await _told(writer, b": alive\n\n")
                    spoken = time.monotonic()
                await asyncio.sleep(PACE)
        finally:
            self._readers -= 1


async def _told(writer: asyncio.StreamWriter, text: bytes) -> None:
    writer.write(text)
    async with asyncio.timeout(PATIENCE):
        await writer.drain()


def _one(query: Mapping[str, list[str]], name: str) -> str:
    values = query.get(name, [])
    if len(values) != 1:
        raise CannotTell(f"one {name} is needed", wrong=True)
    return values[0]
