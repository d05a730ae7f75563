"""Work that costs the same for one as for many: a flush, a deletion, a transaction.

Whoever needs something done waits for the next round.  All who wait when it begins share it; who comes while one is
under way gets the next.  A round that fails has failed for all who shared it, and for nobody later.

Work that only waits may be done twice at once.  Then who comes while one round is under way need not wait for its end,
but would get a round alone, and the next comer none: so the second begins when nobody has come for a moment.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Rounds(Generic[T, R]):
    """For the event loop's thread.  `work` gets what everybody of a round asked for, in the order they asked, and what
    it returns or raises is everybody's answer.

    Who gives up waiting disturbs nobody: what was asked for is done all the same.
    """

    def __init__(self, work: Callable[[list[T]], Awaitable[R]], *, beside: float | None = None) -> None:
        """`beside`: a second round may be under way, once nobody has come for so many seconds."""
        self._work = work
        self._beside = beside
        self._asked: list[T] = []
        self._waiting: list[asyncio.Future[R]] = []
        self._task: asyncio.Task[None] | None = None  # held: the loop itself does not
        self._second: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """A round is under way, or about to be."""
        return self._task is not None or self._second is not None

    def join(self, asked: T) -> "asyncio.Future[R]":
        loop = asyncio.get_running_loop()
        done: asyncio.Future[R] = loop.create_future()
        self._asked.append(asked)
        self._waiting.append(done)
        if self._task is None:
            self._task = loop.create_task(self._run())  # begins when whoever is about to ask in this turn has asked
        elif self._second is None and self._beside is not None:
            self._second = loop.create_task(self._run_beside(self._beside))
        return done

    async def finished(self) -> None:
        """Return once nobody waits any more."""
        while under_way := [task for task in (self._task, self._second) if task is not None]:
            await asyncio.wait(under_way)

    async def _run(self) -> None:
        try:
            await self._serve()
        finally:
            self._task = None

    async def _run_beside(self, moment: float) -> None:
        try:
            come = 0
            while come < len(self._waiting):
                come = len(self._waiting)
                await asyncio.sleep(moment)
            await self._serve()
        finally:
            self._second = None

    async def _serve(self) -> None:
        """Rounds until nobody waits."""
        waiting: list[asyncio.Future[R]] = []
        try:
            while self._waiting:
                asked, waiting = self._asked, self._waiting
                self._asked, self._waiting = [], []
                try:
                    answer = await self._work(asked)
                except Exception as error:  # whatever it is: who waits is told, and who comes later is served
                    for done in waiting:
                        if not done.cancelled():
                            done.set_exception(error)
                else:
                    for done in waiting:
                        if not done.cancelled():
                            done.set_result(answer)
        except BaseException:  # the work was cancelled, or the loop ends: nobody is left to wait for ever
            for done in waiting + self._waiting:
                done.cancel()
            self._asked, self._waiting = [], []
            raise
