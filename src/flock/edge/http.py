"""A tiny HTTP server for probes and status: GET only, one answer per connection.

Whoever is on the node may connect, so nobody gets more than a place among the `callers`, and that for a few seconds.
"""

import asyncio
import socket
from collections.abc import Callable

from flock.edge.callers import AT_ONCE, Callers

PATIENCE = 5.0  # seconds for a whole connection, until the caller has its answer
HEAD_LIMIT = 8192

QUEUE = 1024  # callers that wait in the kernel to be accepted

# path -> (status, content type, body)
Page = Callable[[], tuple[int, str, bytes]]
REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class HttpServer:
    """`pages` maps a path to a function that answers at once."""

    def __init__(self, address: str, pages: dict[str, Page]) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._pages = pages
        self._server: asyncio.Server | None = None
        self.callers = Callers()

    async def start(self) -> None:
        host, loop = self._host.strip("[]"), asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Caller(self), host, self._port, backlog=AT_ONCE)
        for listener in self._server.sockets:
            with socket.fromfd(listener.fileno(), listener.family, listener.type) as same:
                same.listen(QUEUE)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def respond(self, request_line: str) -> bytes:
        method, _, rest = request_line.partition(" ")
        page = self._pages.get(rest.partition(" ")[0].partition("?")[0])
        if method not in ("GET", "HEAD"):
            status, kind, body = 405, "text/plain", b"only GET\n"
        elif page is None:
            status, kind, body = 404, "text/plain", b"no such page\n"
        else:
            status, kind, body = page()
        head = (
            f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else body)


class _Caller(asyncio.Protocol):
    """One connection, which has a place until it ends.  What it sends after its request, or beyond the limit, is not
    read."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._head = bytearray()
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._deadline = asyncio.get_running_loop().call_later(PATIENCE, self.dismiss)
        self._server.callers.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._server.callers.leave(self)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._head += data
        if b"\r\n\r\n" in self._head:
            self._answered = True
            self._transport.write(self._server.respond(self._head.split(b"\r\n", 1)[0].decode("latin-1")))
            self._transport.close()  # once it is sent; `dismiss` ends it if nobody reads
        elif len(self._head) > HEAD_LIMIT:
            self.dismiss()

    def dismiss(self) -> None:
        """At once; it leaves when the loop has seen its end."""
        self._server.callers.leave(self)
        self._transport.abort()
