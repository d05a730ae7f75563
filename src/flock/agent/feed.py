"""What happens, told as server-sent events: what is still known first, then all of it as it comes.

A reader costs what it reads: it has no queue but what all of them share (`happened`), so who is slow misses something
and is told how much.  Of each share a turn tells the latest TURN, however many there are: no flood hides the rest.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from functools import lru_cache
from itertools import islice
from urllib.parse import parse_qs

import msgspec

from flock.agent.happened import KEPT, Entry, Happened
from flock.core.happenings import Happening, Missed
from flock.edge.http import Request

GATHER = 0.2  # seconds between turns: told within a second, and not one by one
TURN = 400  # twice as many drops as are heard of in that time
PIECE = 100  # events that are made in one turn of the loop
ALIVE = 10.0  # seconds after which a reader is told that there is nothing to tell
MADE = 512  # events that are kept as they are told, for the other readers: some hundred kilobytes


class Feed:
    def __init__(self, happened: Happened) -> None:
        self._happened = happened

    async def events(self, request: Request) -> AsyncGenerator[bytes, None]:
        """From the id on that the reader knows, else everything there is; until the agent ends."""
        read_to, most = _known(request), KEPT
        yield b"retry: 1000\n\n"
        while not self._happened.closed:
            found, missed = self._happened.since(read_to, most=most)
            read_to, most = self._happened.last_id, TURN
            if missed:
                yield told(Missed(count=missed), at=time.time())
            entries = iter(found)
            while piece := b"".join(map(_event, islice(entries, PIECE))):
                yield piece
            await asyncio.sleep(GATHER)
            await self._happened.wait_beyond(read_to, ALIVE)
            if read_to == self._happened.last_id:
                yield b": alive\n\n"


def told(what: Happening, *, at: float) -> bytes:
    """One event without a number.  JSON has no line breaks, whatever is in a name."""
    kind = type(what).__name__
    data = {"time": at, "kind": kind, "said": str(what), **msgspec.to_builtins(what)}
    return f"event: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


@lru_cache(MADE)
def _event(entry: Entry) -> bytes:
    return f"id: {entry.id}\n".encode() + told(entry.what, at=entry.at)


def _known(request: Request) -> int:
    """Where the reader stopped; 0 if it is new here."""
    text = request.headers.get("last-event-id") or "".join(parse_qs(request.query).get("after", ())[-1:])
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
