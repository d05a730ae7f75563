"""Pages without a browser: requests as somebody may send them, and the stream's events as they come."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from flock.view.picture import Picture
from flock.view.server import Server
from flock.view.source import CannotTell


class Told:
    """A source that is told what to answer."""

    origin, name, live = "played", "a test", True

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.looked: tuple[str, ...] = ()

    async def run(self, picture: Picture) -> None: ...

    async def ask(self, node: str, *command: str) -> bytes:
        self.asked.append((node, *command))
        if node == "mute":
            raise CannotTell("nobody answers there")
        return b'[{"verdict":"allow"}]'

    def look_at(self, nodes: tuple[str, ...]) -> None:
        self.looked = nodes


class Served:
    """A picture that is served."""

    def __init__(self, picture: Picture, source: Told, server: Server, address: str) -> None:
        self.picture, self.source, self.server, self.address = picture, source, server, address
        self.host, _, path = address.removeprefix("http://").partition("/")
        self.root = f"/{path}"

    async def send(self, head: str) -> tuple[int, dict[str, str], bytes]:
        """A request as it is written here."""
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self.host.rpartition(":")[2]))
        try:
            writer.write(head.encode("latin-1"))
            answer = await reader.read()
        finally:
            writer.close()
        top, _, body = answer.partition(b"\r\n\r\n")
        first, *lines = top.decode().split("\r\n")
        return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body

    async def get(
        self, path: str, *, host: str = "", method: str = "GET", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Below the key, unless it begins with a slash."""
        target = path if path.startswith("/") else self.root + path
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return await self.send(f"{method} {target} HTTP/1.1\r\nHost: {host or self.host}\r\n{fields}\r\n")

    @contextlib.asynccontextmanager
    async def page(self) -> AsyncIterator["Page"]:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self.host.rpartition(":")[2]), limit=1 << 18)
        writer.write(f"GET {self.root}api/stream HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        try:
            yield Page(reader)
        finally:
            writer.close()


class Page:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def event(self) -> tuple[str, Any]:
        """The next one."""
        while True:
            text = (await self._reader.readuntil(b"\n\n")).decode()
            fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
            if "event" in fields:
                return fields["event"], json.loads(fields["data"])

    async def until(self, wanted: str) -> Any:
        """The data of the next event of that kind."""
        while True:
            kind, data = await self.event()
            if kind == wanted:
                return data


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[Served]:
    source = Told()
    picture = Picture(origin=source.origin, name=source.name, live=source.live)
    server = Server(picture, source)
    try:
        yield Served(picture, source, server, await server.start())
    finally:
        await server.close()
