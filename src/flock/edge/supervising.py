"""Holds everything that runs for ever: whatever ends is seen, told and begun anew (invariant 12).

A run that fails, or that ends although nobody told it to, is started again after a pause that grows.  It is shown in
status until it has lived for CALM: one that fails again and again is shown all the time, one that works again is not.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

log = logging.getLogger("supervise")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
CALM = 60.0  # longer than the longest pause, so that trouble that lasts is shown without gaps

CALLBACKS = "callbacks"  # counted as a part: what fails in them is started again by the next event

Run = Callable[[], Awaitable[None]]


class _Kept:
    """One run: the task that holds it, how often it had to be started again, and how it ended last."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.restarts = 0
        self.problem = ""
        self.failed_at = float("-inf")


class Supervisor:
    """For the event loop's thread.  Names are unique and few: they become labels of a metric."""

    def __init__(self, *, calm: float = CALM) -> None:
        self._calm = calm
        self._kept: dict[str, _Kept] = {}

    def keep(self, name: str, run: Run) -> None:
        """Run it until `close`.  Whatever `run` holds when it fails it must release by itself."""
        assert name not in self._kept, name
        kept = self._kept[name] = _Kept()
        kept.task = asyncio.get_running_loop().create_task(self._keep(name, run, kept), name=name)

    async def _keep(self, name: str, run: Run, kept: _Kept) -> None:
        pause = FIRST_PAUSE
        while True:
            started = time.monotonic()
            try:
                await run()
                reason = "it ended"
                log.error("part ended name=%s", name)
            except asyncio.CancelledError:
                if kept.task is not None and kept.task.cancelling():
                    raise
                reason = "what it waited for was cancelled"
                log.error("part ended name=%s reason=cancelled", name)
            except Exception as error:
                reason = repr(error)[:300]
                log.exception("part failed name=%s", name)
            kept.failed_at = time.monotonic()
            if kept.failed_at - started > self._calm:
                pause = FIRST_PAUSE
            kept.problem = f"{name} failed and was started again: {reason}"
            await asyncio.sleep(pause)
            kept.restarts += 1
            pause = min(pause * 2, LONGEST_PAUSE)

    def unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's exception handler: a callback failed, or a task that nobody waits for.  Shown like a part."""
        kept = self._kept.setdefault(CALLBACKS, _Kept())
        kept.failed_at = time.monotonic()
        kept.restarts += 1
        kept.problem = f"an unexpected error: {context.get('exception') or context.get('message')!r:.300}"
        loop.default_exception_handler(context)

    @property
    def problems(self) -> tuple[str, ...]:
        recently = time.monotonic() - self._calm
        return tuple(kept.problem for kept in self._kept.values() if kept.failed_at > recently)

    @property
    def restarts(self) -> Mapping[str, int]:
        return {name: kept.restarts for name, kept in self._kept.items()}

    async def stay(self) -> None:
        """Never returns: what is kept has no end."""
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """End everything, and wait until it has ended."""
        tasks = [kept.task for kept in self._kept.values() if kept.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
