"""Work that costs the same for one as for many: a flush, a deletion, a transaction.

Whoever needs something done waits for the next round.  All who wait when it begins share it; who comes while one is
under way gets the next.  A round that fails has failed for all who shared it, and for nobody later.
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

    def __init__(self, work: Callable[[list[T]], Awaitable[R]]) -> None:
        self._work = work
        self._asked: list[T] = []
        self._waiting: list[asyncio.Future[R]] = []
        self._task: asyncio.Task[None] | None = None  # held: the loop itself does not

    @property
    def busy(self) -> bool:
        """A round is under way, or about to be."""
        return self._task is not None

    def join(self, asked: T) -> "asyncio.Future[R]":
        loop = asyncio.get_running_loop()
        done: asyncio.Future[R] = loop.create_future()
        self._asked.append(asked)
        self._waiting.append(done)
        if self._task is None:
            self._task = loop.create_task(self._run())  # begins when whoever is about to ask in this turn has asked
        return done

    async def finished(self) -> None:
        """Return once nobody waits any more."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
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
        finally:
            self._task = None
