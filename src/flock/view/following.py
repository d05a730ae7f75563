"""Following one agent: its status whenever that may have changed, and what happens as it happens.

Reading its status again is what makes the page true, so it is read soon after anything but a dropped packet happened,
and now and then.  The end of the stream is the first news of an agent that died: its status is asked for at once.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from flock.core.errors import FlockError
from flock.edge.kube.client import ApiError, chunks, lines, read_head, reason, whole
from flock.view.picture import Picture

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

EVERY = 0.7  # seconds between two looks at a status when nothing happens: not all that changes does
SOON = 0.1  # after something happened: what came with it is part of the same look
PATIENCE = 5.0  # for a connection, and for each piece of an answer; an agent answers in milliseconds
SILENCE = 30.0  # of a stream, which says that it is alive every ten
AGAIN, DEAF_AGAIN = 1.0, 5.0  # after a failure; where all readers' places may be taken


class Following:
    """One agent, under its node's name, or the name it says itself if none is given.  `after` is the id of the last
    happening that is known already."""

    def __init__(
        self, picture: Picture, connect: Connect, *, name: str = "", after: str = "", every: float = EVERY
    ) -> None:
        self._picture, self._connect, self._every = picture, connect, every
        self.name, self.last = name, after
        self.answered = False  # when it was asked last
        self._stirred = asyncio.Event()
        self._hears, self._deaf = False, ""  # whether it is told what happens, and if it answers, why not

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._looking())
            tasks.create_task(self._listening())

    async def visit(self, *, quiet: float = 0.5) -> None:
        """Once: its status, and what happened since the last visit, until nothing comes for `quiet` seconds."""
        if await self.look():
            with contextlib.suppress(FlockError):
                await self._listen(patience=quiet)

    async def look(self) -> bool:
        """Whether it answered; the picture is told either way."""
        try:
            async with self._get("/status.json", patience=PATIENCE) as pieces:
                status = await whole(pieces)
            said = msgspec.json.decode(status, type=_Named).node
            if not self.name or self.name == UNKNOWN:
                self._picture.gone(UNKNOWN)
                self.name = said or UNKNOWN
            self._picture.status(self.name, status, at=time.time(), problem=self._deaf)
            return True
        except (FlockError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            self.name = self.name or UNKNOWN
            self._picture.lost(self.name, getattr(error, "msg", "") or f"its answer is no status: {error}")
            return False

    async def _looking(self) -> None:
        while True:
            self.answered = await self.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every if self.answered else AGAIN):
                    await self._stirred.wait()
                    await asyncio.sleep(SOON)
            self._stirred.clear()

    async def _listening(self) -> None:
        while True:
            try:
                await self._listen(patience=SILENCE)
                self._deaf = ""
            except FlockError as error:
                refused = isinstance(error, ApiError) and not self._hears  # by an agent that answers
                self._deaf = f"what happens there is not told: {error.msg}" if refused else ""
            if self._hears:  # no more: the first news of its end
                self._hears = False
                self._stirred.set()
            await asyncio.sleep(DEAF_AGAIN if self._deaf else AGAIN)

    async def _listen(self, *, patience: float) -> None:
        if self.name in ("", UNKNOWN) and not await self.look():
            raise FlockError("whose it would be is not known")
        async with self._get("/happenings", last=self.last, patience=patience) as pieces:
            self._hears, self._deaf, number = True, "", ""
            async for line in lines(pieces):
                field, _, value = line.decode(errors="replace").partition(": ")
                if field == "id":
                    number = value.strip()
                elif field == "data":
                    self._take(number, value)
                    number = ""  # not every event has one

    def _take(self, number: str, data: str) -> None:
        with contextlib.suppress(msgspec.MsgspecError, RecursionError):
            row = msgspec.json.decode(data, type=dict)
            self.last = number or self.last
            self._picture.happened(self.name, int(number) if number.isdecimal() else 0, row)
            if row.get("kind") not in ("Dropped", "WouldDrop"):
                self._stirred.set()

    @contextlib.asynccontextmanager
    async def _get(self, path: str, *, patience: float, last: str = "") -> AsyncIterator[AsyncIterator[bytes]]:
        """FlockError, with the reason in words, if it cannot be had or breaks off."""
        writer = None
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await self._connect()
                more = f"Last-Event-ID: {last}\r\n" if last else ""
                writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}Connection: close\r\n\r\n".encode())
                status, headers = await read_head(reader)
            if status != 200:
                raise ApiError(f"{path}: the agent answers {status}", status=status)
            yield chunks(reader, headers, patience=patience)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise FlockError(f"the agent does not answer: {reason(error)}") from None
        except (ValueError, IndexError):
            raise FlockError("what answers there is no agent") from None
        finally:
            if writer is not None:
                writer.transport.abort()


class _Named(msgspec.Struct):
    node: str = ""


UNKNOWN = "this node"  # until its agent has said its name
