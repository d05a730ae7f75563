"""Pages without a browser: requests as somebody may send them, and the stream's events as they come."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from flock.view.picture import Picture, Reader
from flock.view.server import Server
from flock.view.source import CannotTell, Source


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


class Watching:
    """A source at work, and what a page would have been told by it."""

    def __init__(self, source: Source) -> None:
        self.picture = Picture(origin=source.origin, name=source.name, live=source.live)
        self._reader = Reader(self.picture)
        self._told: dict[tuple[str, str], Any] = {}
        self.happened: list[dict[str, Any]] = []

    async def until(self, condition: Callable[["Watching"], object], what: str) -> None:
        for _ in range(1000):
            for event in self._reader.news():
                self._take(*event.decode().split("\n", 1))
            if condition(self):
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{what}: not within 20 s; told: {str(self._told)[:4000]}")

    def node(self, name: str) -> dict[str, Any]:
        return self._told.get(("node", name), {"reached": None, "problem": "", "seen": 0, "status": {}})

    def router(self, name: str) -> dict[str, Any]:
        return self._told.get(("router", name), {"sessions": [], "trouble": "not seen yet", "routes": {}})

    @property
    def cut(self) -> list[str]:
        found: list[str] = self._told.get(("fabric", ""), {"cut": []})["cut"]
        return found

    def _take(self, first: str, rest: str) -> None:
        kind, data = first.removeprefix("event: "), json.loads(rest.removeprefix("data: "))
        if kind == "happenings":
            self.happened += data
        elif kind == "gone":
            self._told.pop(("node", data["name"]), None)
        elif kind == "seen":
            for name, at in data.items():
                self._told["node", name]["seen"] = at
        else:
            self._told[kind, data.get("name", "")] = data


@contextlib.asynccontextmanager
async def watching(source: Source) -> AsyncIterator[Watching]:
    watcher = Watching(source)
    task = asyncio.create_task(source.run(watcher.picture))
    try:
        yield watcher
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
