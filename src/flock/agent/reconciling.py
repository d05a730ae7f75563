"""How a reconciler is triggered, run, retried and told about: the same for all of them.

A reconciler brings something to where it has to be.  What that is, it says in `_reconcile`: desired, observed, diff,
apply.  When that happens is decided here.  Whatever may have changed something calls `trigger`; triggers that come
together cost one run, and those that come while one is under way exactly one more.  Runs never overlap, whoever asks
for them.  One that fails is tried again after a pause, which may grow, or at the next trigger if that comes sooner.
Its reason is logged once, however often it is met again, and is `problem` for as long as it lasts.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from flock.core.errors import FlockError


class Telling:
    """Somebody whose changes others go by."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        """`listener` runs as soon as something changed, or was found out, that others go by."""
        self._listeners.append(listener)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()


class Reconciler(Telling, ABC):
    """`run` is for the supervisor, which also begins it anew after a mistake of ours: what was asked for is not lost.

    `failed`: how the log calls a run that did not do all it should.  `minor`: nothing of the node's own depends on it,
    so that nobody need be told but by the log.  `period`: run after so long, though nobody asked.  `spacing`: between
    runs that were asked for.  `pauses`: before the first repetition of what failed, and the longest."""

    def __init__(
        self,
        log: logging.Logger,
        failed: str,
        *,
        minor: bool = False,
        period: float | None = None,
        spacing: float = 0.0,
        pauses: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        super().__init__()
        self._log, self._failed = log, failed
        self.minor = minor
        self._period, self._spacing, self._pauses = period, spacing, pauses
        self._pause = pauses[0]
        self._triggered = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._alone = asyncio.Lock()  # for whoever changes, or compares, what a run changes
        self.problem = ""
        self.on_problem: Callable[[], None] = lambda: None  # runs when it has another one, or none any more
        self.runs = 0

    @abstractmethod
    async def _reconcile(self) -> str:
        """What could not be done, in words, or nothing; FlockError or OSError if that was all of it."""

    def complaints(self) -> Iterable[str]:
        """What does not work as it should, for status; empty texts are none."""
        return () if self.minor else (self.problem,)

    def trigger(self) -> None:
        self._triggered.set()

    def look_again(self, seconds: float) -> None:
        """Run in so many seconds.  A run that comes sooner, whoever asks for it, says anew when to look again."""
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer.when() > loop.time() + seconds:
            self._forget_timer()
            self._timer = loop.call_later(seconds, self._triggered.set)

    async def run(self) -> None:
        """Until cancelled; at once for the first time."""
        self.trigger()
        while True:
            await self._triggered.wait()
            await self.reconcile()
            await asyncio.sleep(self._spacing)

    async def reconcile(self, *, unless: Callable[[], bool] = lambda: False) -> bool:
        """One run, alone.  False if not all could be done: it is tried again.  `unless` somebody else's run, for which
        this one had to wait, has made it needless."""
        async with self._alone:
            if unless():
                return True
            self._triggered.clear()
            self._forget_timer()
            try:
                problem = await self._reconcile()
            except (FlockError, OSError) as error:
                problem = str(error)
            except BaseException:  # a mistake, or whoever asked went away: others may have asked as well
                self.trigger()
                raise
            self.runs += 1
            self._tell(problem)
            if self._period is not None:
                self.look_again(self._period)
            return not problem

    def _tell(self, problem: str) -> None:
        """How it went: what failed is tried again, and logged unless it is what failed before."""
        if problem and problem != self.problem:
            self._log.log(logging.INFO if self.minor else logging.ERROR, "%s problem=%s", self._failed, problem)
        changed, self.problem = problem != self.problem, problem
        if changed:
            self.on_problem()
        if problem:
            self.look_again(self._pause)
        self._pause = min(2 * self._pause, self._pauses[1]) if problem else self._pauses[0]

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
