"""A tiny HTTP server for probes, status and followers: GET only, one answer per connection.

Whoever is on the node may connect, so nobody gets more than a place, and that for a few seconds.  Those who have not
said what they want (`waiting`) cannot take the places of those who have, and who follows what happens has one for as
long as it reads.  What is long is sent piece by piece as it is read: who does not read costs a piece, and is hung up
on.

A web page, opened in a browser on the node, is on the node too.  What is streamed is not for those: requests for a name
that is not the node's own (DNS rebinding), or on behalf of another site, are refused.
"""

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from flock.edge.callers import AT_ONCE, Callers
from flock.edge.kernel.owner import owner

PATIENCE = 5.0  # seconds for a whole connection, until the caller has its answer; for a piece of a stream
HEAD_LIMIT = 8192
ANSWERED = 64  # callers at once that wait for an answer which takes a while, or do not read it
READERS, OTHERS = 5, 3  # of a stream; of whom so many of users without rights, who would else leave no place
ROOM = 1 << 17  # bytes that the kernel keeps for who does not read

QUEUE = 1024  # callers that wait in the kernel to be accepted

REASONS = {
    200: "OK",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")


class Request(NamedTuple):
    method: str
    path: str
    query: str
    headers: Mapping[str, str]  # by lower-case name
    version: str = "HTTP/1.1"

    @classmethod
    def read(cls, head: bytes) -> "Request":
        """Never fails; what makes no sense is no method or page of ours."""
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, version, *_ = [*first.split(" "), "", "", ""]
        path, _, query = target.partition("?")
        fields = (line.partition(":") for line in lines)
        return cls(method, path, query, {name.strip().lower(): value.strip() for name, _, value in fields}, version)

    def is_local(self, address: str) -> bool:
        """Does it ask for this machine by a name of its own, and not on behalf of a web page from elsewhere?
        `address`: at which it has reached us."""
        host = self.headers.get("host", "localhost")
        name = found[1].strip("[]") if (found := _HOST.fullmatch(host)) else ""
        origin = self.headers.get("origin", f"http://{host}")
        site = self.headers.get("sec-fetch-site", "none")
        return origin == f"http://{host}" and site in ("none", "same-origin") and _is_own(name, address)


class Page(NamedTuple):
    """Answered at once, to anybody."""

    kind: str
    answer: Callable[[], tuple[int, bytes]]


class Stream(NamedTuple):
    """Told piece by piece, in chunks: an end that was not said is none.  `lasting`: for as long as somebody reads, by
    READERS at most, and without an end."""

    kind: str
    pieces: Callable[[Request], AsyncGenerator[bytes, None]]
    lasting: bool = False


class HttpServer:
    def __init__(self, address: str, pages: Mapping[str, Page | Stream]) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._pages = pages
        self._server: asyncio.Server | None = None
        self.waiting, self.answered = Callers(), Callers(ANSWERED)
        self.readers: dict[_Caller, bool] = {}  # whether it is a user without rights

    async def start(self) -> None:
        host, loop = self._host.strip("[]"), asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Caller(self), host, self._port, backlog=AT_ONCE)
        for listener in self._server.sockets:
            with socket.fromfd(listener.fileno(), listener.family, listener.type) as same:
                same.listen(QUEUE)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.waiting.close()
        self.answered.close()
        for reader in list(self.readers):
            reader.dismiss()

    def page(self, request: Request, address: str) -> Page | Stream:
        """Who answers it."""
        page = self._pages.get(request.path)
        if request.method not in ("GET", "HEAD"):
            return _refusal(405, b"only GET\n")
        if page is None:
            return _refusal(404, b"no such page\n")
        if isinstance(page, Stream) and not request.is_local(address):
            return _refusal(403, b"only for who asks for this machine by its address\n")
        return page

    def admit(self, reader: "_Caller", connection: socket.socket) -> bool:
        """To a stream that lasts; False if there are as many as there may be."""
        if len(self.readers) >= READERS:
            return False
        is_other = bool(owner(connection))
        if is_other and sum(self.readers.values()) >= OTHERS:
            return False
        self.readers[reader] = is_other
        return True


class _Caller(asyncio.Protocol):
    """One connection, which has a place until it ends.  What it sends after its request, or beyond the limit, is not
    read."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._head = bytearray()
        self._heard = False
        self._telling: asyncio.Task[None] | None = None
        self._drained = asyncio.Event()
        self._drained.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._deadline = asyncio.get_running_loop().call_later(PATIENCE, self.dismiss)
        self._server.waiting.enter(self)

    def data_received(self, data: bytes) -> None:
        if self._heard:
            return
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        if end:
            self._heard = True
            self._serve(Request.read(bytes(head)))
        elif len(self._head) > HEAD_LIMIT:
            self.dismiss()

    def _serve(self, request: Request) -> None:
        connection = self._transport.get_extra_info("socket")
        page = self._server.page(request, self._transport.get_extra_info("sockname", ("",))[0])
        if isinstance(page, Stream) and page.lasting and request.method != "HEAD":
            page = page if self._server.admit(self, connection) else FULL
        if isinstance(page, Page):
            status, body = page.answer()
            head = _head(status, page.kind, f"Content-Length: {len(body)}\r\n")
            self._transport.write(head + (b"" if request.method == "HEAD" else body))
            self._transport.close()  # once it is sent; `dismiss` ends it if nobody reads
            return
        chunked = not page.lasting and request.version == "HTTP/1.1"
        more = "Transfer-Encoding: chunked\r\n" if chunked else ""
        self._transport.write(_head(200, page.kind, f"Cache-Control: no-store\r\n{more}"))
        if request.method == "HEAD":
            self._transport.close()
            return
        self._server.waiting.leave(self)
        if page.lasting:
            self._deadline.cancel()
        else:
            self._server.answered.enter(self)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
        self._transport.set_write_buffer_limits(high=0)
        self._telling = asyncio.get_running_loop().create_task(self._tell(page.pieces(request), chunked=chunked))

    async def _tell(self, pieces: AsyncGenerator[bytes, None], *, chunked: bool) -> None:
        async with contextlib.aclosing(pieces):
            try:
                async for piece in pieces:
                    self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                    await asyncio.sleep(0)  # a piece in a turn of the loop: others want theirs
                    async with asyncio.timeout(PATIENCE):
                        await self._drained.wait()
                self._transport.write(b"0\r\n\r\n" if chunked else b"")
            except TimeoutError:
                self._transport.abort()
            finally:
                self._transport.close()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def eof_received(self) -> bool:
        """Who has asked and has nothing to add may still listen; a reader that ends does not."""
        return self._heard and self not in self._server.readers

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        if self._telling is not None:
            self._telling.cancel()

    def dismiss(self) -> None:
        """At once; it leaves when the loop has seen its end."""
        self._leave()
        self._transport.abort()

    def _leave(self) -> None:
        self._deadline.cancel()
        self._server.waiting.leave(self)
        self._server.answered.leave(self)
        self._server.readers.pop(self, None)


def _refusal(status: int, why: bytes) -> Page:
    return Page("text/plain", lambda: (status, why))


FULL = _refusal(503, b"there are as many readers as there may be\n")


def _head(status: int, kind: str, more: str) -> bytes:
    return (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}; charset=utf-8\r\n"
        f"X-Content-Type-Options: nosniff\r\n{more}Connection: close\r\n\r\n"
    ).encode()


def _is_own(name: str, address: str) -> bool:
    """A name by which only this machine is meant: no name server has a say in it."""
    with contextlib.suppress(ValueError):
        found = ip_address(name)
        return found.is_loopback or found == ip_address(address)
    return name.lower() == "localhost"
