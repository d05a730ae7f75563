"""HTTP/1.1 to the API server: whole answers for lists and writes, lines for watches.

One connection per request.  Lists and watches are rare and long; what matters is that a dead connection is noticed:
TCP keep-alive and a user timeout make the kernel report a vanished server within DEAD_AFTER, whatever the load.
"""

import asyncio
import contextlib
import os
import socket
from asyncio import sslproto
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from flock import __version__
from flock.core.errors import FlockError
from flock.edge.kube.access import Access

CONNECT_TIMEOUT = 5.0
ANSWER_TIMEOUT = 30.0  # the beginning of an answer, and each piece of it, from a busy server
WHOLE_TIMEOUT = 120.0  # a whole answer: one that dribbles is none
ANSWER_LIMIT = 16 << 20  # bytes of it: 500 pods of a usual size are 5 MiB, one object up to 9 (see below)
DEAD_AFTER = 30  # seconds without any sign of life from the other end
# One watch event: etcd takes objects up to 1.5 MiB, of which JSON may make six times as much (`<` is `\u003c`).
LINE_LIMIT = 16 << 20
HEAD_LIMIT = READ_AT_ONCE = 64 << 10
EOL = b"\r\n"
SIZE_LIMIT = 1 << 10  # of the line that says how long a chunk is
# Each TLS connection has a buffer of 256 KiB by default, all of it resident; a node may have a hundred watches.
sslproto.SSLProtocol.max_size = 32 << 10


class ApiError(FlockError):
    """The API server is away, or said no; `status` is the HTTP status, 0 if there was none."""

    def __init__(self, msg: str, *, status: int = 0) -> None:
        super().__init__(msg)
        self.status = status


class TooLong(ApiError):
    """The answer has more than ANSWER_LIMIT bytes: ask for less at a time."""


class KubeClient:
    def __init__(self, access: Access) -> None:
        self._access = access

    async def get(self, path: str) -> bytes:
        return await self._whole("GET", path)

    async def send(self, method: str, path: str, body: Any, *, content_type: str = "application/json") -> bytes:
        return await self._whole(method, path, msgspec.json.encode(body), content_type)

    @contextlib.asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Entered once the server has begun its endless answer; gives its lines until the server ends it.

        ApiError if it breaks off, or if nothing comes for `read_timeout`.
        """
        async with self._request("GET", path) as (reader, headers):
            yield lines(chunks(reader, headers, patience=read_timeout))

    async def _whole(self, method: str, path: str, body: bytes = b"", content_type: str = "") -> bytes:
        async with self._request(method, path, body, content_type) as (reader, headers):
            async with asyncio.timeout(WHOLE_TIMEOUT):
                return await whole(chunks(reader, headers, patience=ANSWER_TIMEOUT))

    @contextlib.asynccontextmanager
    async def _request(
        self, method: str, path: str, body: bytes = b"", content_type: str = ""
    ) -> AsyncIterator[tuple[asyncio.StreamReader, Mapping[str, str]]]:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                reader, writer = await asyncio.open_connection(
                    self._access.host, self._access.port, ssl=self._access.tls, limit=HEAD_LIMIT
                )
        except (OSError, TimeoutError) as error:
            raise ApiError(f"the API server {self._where} is not reachable: {reason(error)}") from None
        try:
            _watch_over(writer.get_extra_info("socket"))
            async with asyncio.timeout(ANSWER_TIMEOUT):
                writer.write(self._head(method, path, body, content_type) + body)
                await writer.drain()
                status, headers = await read_head(reader)
            if status >= 300:
                text = await whole(chunks(reader, headers, patience=ANSWER_TIMEOUT))
                raise ApiError(f"{method} {path.partition('?')[0]}: {_status_text(status, text)}", status=status)
            yield reader, headers
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            raise ApiError(f"{method} {path.partition('?')[0]}: {reason(error)}") from None
        finally:
            writer.transport.abort()

    @property
    def _where(self) -> str:
        host = self._access.host
        return f"{f'[{host}]' if ':' in host else host}:{self._access.port}"

    def _head(self, method: str, path: str, body: bytes, content_type: str) -> bytes:
        fields = {
            "Host": self._where,
            "User-Agent": f"flock-agent/{__version__}",
            "Accept": "application/json",
            "Connection": "close",
        }
        authorization = self._access.authorization()
        if authorization:
            fields["Authorization"] = authorization
        if body:
            fields |= {"Content-Type": content_type, "Content-Length": str(len(body))}
        lines = [f"{method} {self._access.prefix}{path} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items()), "", ""]
        return "\r\n".join(lines).encode()


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ")[1])
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
    return status, headers


async def chunks(reader: asyncio.StreamReader, headers: Mapping[str, str], *, patience: float) -> AsyncIterator[bytes]:
    """The body in pieces as they come; each may take `patience` to arrive."""
    if headers.get("transfer-encoding") == "chunked":
        chunked = _Chunked()
        while not chunked.over:
            if body := chunked.take(await _soon(reader.read(READ_AT_ONCE), patience)):
                yield body
        return
    remaining = int(headers.get("content-length", "-1"))
    while remaining:
        piece = await _soon(reader.read(READ_AT_ONCE if remaining < 0 else min(remaining, READ_AT_ONCE)), patience)
        if not piece:
            if remaining > 0:
                raise ApiError("the answer breaks off")
            return
        remaining -= len(piece) if remaining > 0 else 0
        yield piece


class _Chunked:
    """A body in chunks, of which any part may have come: one read, and one wait, for all that is there.  ValueError for
    what is none, asyncio.IncompleteReadError if it breaks off."""

    def __init__(self) -> None:
        self._rest = b""  # of a line that has not come as a whole
        self._left = 0  # bytes of the chunk under way, its end of line included
        self.over = False

    def take(self, data: bytes) -> bytes:
        if not data:
            raise asyncio.IncompleteReadError(self._rest, None)
        data, at, body = self._rest + data, 0, []
        while not self.over:
            if self._left:
                taken = min(self._left, len(data) - at)
                body.append(data[at : at + min(taken, max(0, self._left - len(EOL)))])
                at, self._left = at + taken, self._left - taken
            if self._left or (end := data.find(EOL, at)) < 0:
                break
            size = int(data[at:end], 16)
            if size < 0:
                raise ValueError(f"a chunk of {size} bytes")
            at, self.over = end + len(EOL), not size
            self._left = size + len(EOL) if size else 0
        self._rest = b"" if self.over else data[at:]
        if len(self._rest) > SIZE_LIMIT:
            raise ValueError("a chunk without a size")
        return b"".join(body)


async def whole(pieces: AsyncIterator[bytes]) -> bytes:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > ANSWER_LIMIT:
            raise TooLong(f"an answer of more than {ANSWER_LIMIT} bytes")
    return bytes(body)


async def lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    buffer = bytearray()
    async for piece in pieces:
        buffer += piece
        if len(buffer) > LINE_LIMIT:
            raise ApiError(f"an event of more than {LINE_LIMIT} bytes")
        if b"\n" not in piece:
            continue
        *complete, rest = bytes(buffer).split(b"\n")
        buffer = bytearray(rest)
        for line in complete:
            if line.strip():
                yield line


async def _soon(awaitable: Any, patience: float) -> bytes:
    async with asyncio.timeout(patience):
        data: bytes = await awaitable
        return data


def _watch_over(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, DEAD_AFTER // 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER * 1000)


def _status_text(status: int, body: bytes) -> str:
    try:
        message = msgspec.json.decode(body)["message"]
    except Exception:
        message = body[:200].decode(errors="replace").strip()
    return f"{status} {message}"


def reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, asyncio.IncompleteReadError):
        return "the connection broke off"
    if isinstance(error, ConnectionError) and error.errno:  # asyncio has words of its own for it
        return os.strerror(error.errno).lower()
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
