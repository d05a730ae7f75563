"""Can this node take pods, and if not, why?  One answer for STATUS, flockctl, /readyz and the log.

While the agent starts, the step under way is the reason.  Then it is what is wrong with the parts that every pod needs.
Nothing is cached, so a report is never stale; whoever waits is woken by what changes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from flock.agent.reconciling import Reconciler
from flock.core.errors import FlockError, TryAgain

log = logging.getLogger("agent")

RETRY = 1.0  # between attempts at a step that nobody tells the end of: a missing directory, a broken state file

Complaints = Callable[[], Iterable[str]]


class Report(msgspec.Struct, frozen=True):
    not_ready: tuple[str, ...]  # why ADD cannot be served; empty: it can
    degraded: tuple[str, ...]  # what does not work as it should but keeps no pod from being attached
    pods_suffer: bool  # pods that are running are affected as well

    @property
    def ready(self) -> bool:
        return not self.not_ready


class Readiness:
    def __init__(self) -> None:
        self._step = "the agent is starting"
        self._required: list[Reconciler] = []
        self._reasons: list[Callable[[], str]] = []
        self._complaints: list[Complaints] = []
        self._news = asyncio.Event()  # set by the next change, for whoever looked before it

    # --- the start ---

    async def step(self, why: str, attempt: Callable[[], Awaitable[None]]) -> None:
        """Return once `attempt` succeeds.  It is made again when something changed, or after RETRY.  Until then `why`
        is why the node is not ready, with what it failed with; a TryAgain has words of its own."""
        self._step = why
        while True:
            news = self._news
            try:
                return await attempt()
            except TryAgain as later:
                self._tell(later.msg)
            except (FlockError, OSError) as error:
                self._tell(f"{why}: {error}")
            except Exception as error:  # a mistake of ours may heal as well
                self._tell(f"{why}: {error!r}", mistake=error)
            await _first_of(news, RETRY)

    def started(self) -> None:
        self._step = ""
        self.look()

    def _tell(self, problem: str, *, mistake: Exception | None = None) -> None:
        if problem != self._step:
            log.warning("not ready reason=%s", problem, exc_info=mistake)
        self._step = problem

    # --- what else decides ---

    def requires(self, part: Reconciler) -> None:
        """From now on ADD can be served only while the part has no problem.  Running pods suffer from one as well."""
        self._required.append(part)
        part.on_problem = self.look

    def needs(self, reason: Callable[[], str]) -> None:
        """ADD can be served only while this gives no reason against it.  Running pods do not suffer."""
        self._reasons.append(reason)

    def degraded_by(self, *complaints: Complaints) -> None:
        self._complaints += complaints

    def report(self) -> Report:
        suffering = [part.problem for part in self._required if part.problem]
        reasons = (self._step, *suffering, *(reason() for reason in self._reasons))
        return Report(
            not_ready=tuple(dict.fromkeys(filter(None, reasons))),
            degraded=tuple(text for complain in self._complaints for text in complain() if text),
            pods_suffer=bool(suffering),
        )

    @property
    def ready(self) -> bool:
        """The same in a word, for each ADD."""
        if self._step or any(part.problem for part in self._required):
            return False
        return not any(reason() for reason in self._reasons)

    # --- waiting ---

    def look(self) -> None:
        """Something changed on which a step, or an ADD, may wait."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def until_ready(self, patience: float) -> None:
        """As `wait`, for an ADD."""
        await self.wait(lambda: self.ready, patience)

    async def wait(self, condition: Callable[[], bool], patience: float) -> None:
        """Return once the condition holds; TryAgain with the reasons if that takes longer than `patience`."""
        deadline = asyncio.get_running_loop().time() + patience
        while not condition():
            remaining = deadline - asyncio.get_running_loop().time()
            if remaining <= 0:
                why = "; ".join(self.report().not_ready)
                raise TryAgain(f"this node cannot take pods yet: {why}")
            await _first_of(self._news, remaining)


async def _first_of(news: asyncio.Event, patience: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience):
            await news.wait()
