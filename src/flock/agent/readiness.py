"""Can this node take pods, and if not, why?  One answer for STATUS, flockctl, /readyz and the log."""

import asyncio
import time
from collections.abc import Callable

import msgspec

from flock.core.errors import TryAgain


class Report(msgspec.Struct, frozen=True):
    not_ready: tuple[str, ...]  # why ADD cannot be served; empty: it can
    degraded: tuple[str, ...]  # what does not work as it should but keeps no pod from being attached
    pods_suffer: bool  # pods that are running are affected as well

    @property
    def ready(self) -> bool:
        return not self.not_ready


class Readiness:
    """Parts register what they know; nothing is cached, so a report is never stale."""

    def __init__(self) -> None:
        self._blockers: list[tuple[Callable[[], str], bool]] = []
        self._limits: list[Callable[[], str]] = []

    def requires(self, problem: Callable[[], str], *, pods_suffer: bool = False) -> None:
        """`problem()` is empty, or says why ADD cannot be served."""
        self._blockers.append((problem, pods_suffer))

    def degraded_by(self, problem: Callable[[], str]) -> None:
        self._limits.append(problem)

    def report(self) -> Report:
        blocking = [(text, suffer) for problem, suffer in self._blockers if (text := problem())]
        return Report(
            not_ready=tuple(text for text, _ in blocking),
            degraded=tuple(text for problem in self._limits if (text := problem())),
            pods_suffer=any(suffer for _, suffer in blocking),
        )

    async def wait(self, patience: float) -> None:
        """Return once ADD can be served; TryAgain with the reasons if that takes longer than `patience`."""
        deadline = time.monotonic() + patience
        while not_ready := [text for problem, _ in self._blockers if (text := problem())]:
            if time.monotonic() > deadline:
                raise TryAgain(f"this node cannot take pods yet: {'; '.join(not_ready)}")
            await asyncio.sleep(0.02)
