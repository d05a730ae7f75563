"""A tiny HTTP server for probes and status: GET only, one answer per connection."""

import asyncio
import contextlib
from collections.abc import Callable

READ_TIMEOUT = 5.0
HEAD_LIMIT = 8192

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

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, self._host.strip("[]"), self._port, limit=HEAD_LIMIT)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(READ_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._respond(head.split(b"\r\n", 1)[0].decode("latin-1")))
                await writer.drain()
        writer.close()

    def _respond(self, request_line: str) -> bytes:
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
