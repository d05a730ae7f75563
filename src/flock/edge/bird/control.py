"""BIRD's control socket: one connection that is kept, so that BIRD's death is noticed when it happens.

Replies are lines with a four-digit code; `-` after the code means that more follows, a leading space continues the
last code.  What BIRD logs meanwhile, if it was told to (`echo`), begins with `+`.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from flock.core.birdreplies import Reply
from flock.core.errors import FlockError
from flock.edge.unixsocket import connect_soon

TIMEOUT = 10.0  # BIRD answers in milliseconds; while it reconfigures thousands of routes, in seconds


class BirdError(FlockError):
    """BIRD is not there, went away, or refused a command."""


class BirdControl(asyncio.Protocol):
    """One command at a time; callers queue.  `lost` is set the moment BIRD closes the connection, `on_log` called with
    each line that BIRD logs."""

    def __init__(self) -> None:
        self.on_log: Callable[[], None] = lambda: None
        self.lost = asyncio.Event()
        self.greeting = Reply(())
        self._turn = asyncio.Lock()
        self._buffer = b""
        self._lines: list[tuple[int, str]] = []
        self._answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()  # first, the greeting

    @staticmethod
    async def connect(path: Path) -> "BirdControl":
        loop, control = asyncio.get_running_loop(), None
        try:
            async with asyncio.timeout(TIMEOUT):
                connection = await connect_soon(path)
                _, control = await loop.create_unix_connection(BirdControl, sock=connection)
                control.greeting = await control._answer
                return control
        except BaseException as error:
            if control is not None:
                control.close()  # else a BIRD that says nothing would have one more caller with each attempt
            if not isinstance(error, OSError | TimeoutError | ValueError):
                raise
            raise BirdError(f"BIRD does not answer at {path}: {_reason(error)}") from None

    async def command(self, text: str) -> Reply:
        """BirdError if BIRD goes away; what it refuses is in the reply."""
        async with self._turn:
            self._answer = asyncio.get_running_loop().create_future()
            try:
                if self.lost.is_set():
                    raise ConnectionError("connection closed")
                self._transport.write(f"{text}\n".encode())
                async with asyncio.timeout(TIMEOUT):
                    return await self._answer
            except (OSError, TimeoutError, ValueError) as error:
                self.close()
                raise BirdError(f"BIRD went away during `{text.split()[0]}`: {_reason(error)}") from None

    def close(self) -> None:
        self.lost.set()
        self._transport.close()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        if not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("connection closed"))

    def data_received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for raw in lines:
            self._take(raw.decode(errors="replace"))

    def _take(self, line: str) -> None:
        if line.startswith(" ") and self._lines:
            self._lines.append((self._lines[-1][0], line[1:]))
            return
        code, more, text = line[:4], line[4:5], line[5:]
        if not code.isdigit():
            self.on_log()
            return
        self._lines.append((int(code), text))
        if more != "-":
            reply, self._lines = Reply(tuple(self._lines)), []
            if not self._answer.done():
                self._answer.set_result(reply)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT:.0f} s"
    return getattr(error, "strerror", None) or str(error)
