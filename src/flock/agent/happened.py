"""What happened on this node, numbered and timed, in one place that is bounded: for the log, counters, events, people.

Whoever makes something happen notes it, which costs microseconds.  Each share keeps its last KEPT: what tenants provoke
pushes out nothing else.  Numbers of a share count everything that happened, told or not, so that a reader that comes
back with the number it has read to is told how much it missed.  So do `id`s, which all shares have in common and no two
lives of the agent: they begin with its time of start.  Nothing outlives the agent.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from itertools import islice, takewhile
from operator import attrgetter

import msgspec

from flock.core.happenings import Happening, Share

KEPT = 2000  # of each share


class Entry(msgspec.Struct, frozen=True, gc=False):
    number: int  # of its share
    at: float
    what: Happening
    id: int  # of all shares


class Happened:
    def __init__(self) -> None:
        self.began = time.time()
        self._last = dict.fromkeys(Share, 0)
        # A millionth of a second each: fewer happen, so a later life begins beyond them.  Exact in any JSON.
        self._first_id = self._last_id = int(self.began * 1e6)
        self._kept: dict[Share, deque[Entry]] = {share: deque(maxlen=KEPT) for share in Share}
        self._counted: defaultdict[type[Happening], Counter[str]] = defaultdict(Counter)
        self._news = asyncio.Event()
        self.closed = False

    def note(self, happening: Happening, *, untold: int = 0) -> None:
        """`untold`: how many like it happened before, which nobody had the time to look at."""
        share, label = happening.share, happening.counted_by
        self._last[share] = number = self._last[share] + untold + 1
        self._last_id += untold + 1
        self._kept[share].append(Entry(number, time.time(), happening, self._last_id))
        self._counted[type(happening)][getattr(happening, label) if label else ""] += 1
        if happening.level:
            logging.getLogger(happening.part).log(happening.level, "%s", happening)
        self._news.set()

    def after(self, share: Share, number: int) -> tuple[list[Entry], int]:
        """What happened since, oldest first, and how much more did that is not kept.  A number that was not reached yet
        is one of an earlier life: everything happened since."""
        number = self._of_this_life(share, number)
        found = list(takewhile(lambda entry: entry.number > number, reversed(self._kept[share])))
        return found[::-1], self._last[share] - number - len(found)

    def since(self, last_id: int, *, most: int = KEPT) -> tuple[list[Entry], int]:
        """The same for all shares together: what happened after an `id`, of each share the latest `most`.  To an id of
        another life everything is news, and nobody knows what was missed."""
        known = self._first_id <= last_id <= self._last_id
        found: list[Entry] = []
        for kept in self._kept.values():
            found += takewhile(lambda entry: not known or entry.id > last_id, islice(reversed(kept), most))
        return sorted(found, key=attrgetter("id")), self._last_id - last_id - len(found) if known else 0

    @property
    def last_id(self) -> int:
        return self._last_id

    async def wait(self, read_to: Mapping[Share, int], patience: float | None) -> None:
        """Until something happened in one of these shares beyond what was read, or patience or the agent ends.  Who has
        no end to their patience would only ask again: they wait until they are cancelled."""
        await self._wait(lambda: any(map(self._is_news, read_to.items())), patience)

    async def wait_beyond(self, last_id: int, patience: float) -> None:
        """The same for all shares."""
        await self._wait(lambda: last_id != self._last_id, patience)

    async def _wait(self, is_news: Callable[[], bool], patience: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not (self.closed and patience is not None) and not is_news():
                    self._news.clear()
                    await self._news.wait()

    def _is_news(self, read_to: tuple[Share, int]) -> bool:
        return self._last[read_to[0]] > self._of_this_life(*read_to)

    def _of_this_life(self, share: Share, number: int) -> int:
        return number if number <= self._last[share] else 0

    def count(self, kind: type[Happening]) -> int:
        """How often, since the agent started."""
        return self._counted[kind].total()

    def counts(self, kind: type[Happening]) -> dict[str, int]:
        """The same by label."""
        return dict(sorted(self._counted[kind].items()))

    def close(self) -> None:
        """The agent ends: nobody waits any longer."""
        self.closed = True
        self._news.set()
