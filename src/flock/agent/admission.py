"""A pod on its way in: first its rules, then its link, in one thread with one hand-over if nobody else waits.

Each hand-over wakes a sleeping core twice, which is as much of an ADD as a message to the kernel.  With others waiting,
rules are put into force for all at once, and links are made one by one meanwhile.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
Work = Callable[[], None]
Attach = Callable[[Work], asyncio.Future[T]]  # the link, in its thread, once that work is done there

PATIENCE = 0.01  # seconds that the next transaction may wait for a link; one takes a millisecond


class Admission(Generic[T]):
    def __init__(self, namespace: str, attach: Attach[T]) -> None:
        self.namespace = namespace
        self.ruled_at = 0.0  # when its rules were in force, if `commit` did that
        self._attach = attach
        self._link: asyncio.Future[T] | None = None

    async def commit(self, transaction: Work) -> None:
        """Return once the rules are in force, and the link is made as well or takes long.  Raises what the transaction
        raised; what becomes of the link concerns the pod alone."""

        def first() -> None:
            transaction()
            self.ruled_at = time.monotonic()

        self._link = self._attach(first)
        done = False
        while not (done or self.ruled_at):
            done = bool((await asyncio.wait([self._link], timeout=PATIENCE))[0])
        if not self.ruled_at:
            await self._link

    async def attached(self) -> T:
        """The link, which is made now unless it was begun with the rules.  They are in force."""
        return await (self._link or self._attach(lambda: None))

    async def given_up(self) -> None:
        """Nobody wants the link any more: return when nobody makes it any more either."""
        if self._link is not None:
            await asyncio.wait([self._link])
