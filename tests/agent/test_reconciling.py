"""A reconciler runs when it is triggered, alone, until it works; its complaint is made once, and ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flock.agent.reconciling import Reconciler
from flock.core.errors import KernelRefused
from flock.edge.supervising import Supervisor

log = logging.getLogger("counting")
SOON, LATE = 0.01, 3600.0


class Counting(Reconciler):
    """Counts its runs.  Each waits for `gate`, and ends as the next of `ways` says; without one, well."""

    def __init__(self, *ways: Any, **how: Any) -> None:
        super().__init__(log, "could not count", **{"pauses": (SOON, SOON), **how})
        self.ways = list(ways)
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun = self.ended = self.under_way = self.most_at_once = 0

    async def _reconcile(self) -> str:
        self.begun += 1
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            await self.gate.wait()
        finally:
            self.under_way -= 1
        self.ended += 1
        way = self.ways.pop(0) if self.ways else ""
        if isinstance(way, BaseException):
            raise way
        return str(way)


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(SOON)
    raise AssertionError("it did not come to that")


async def quiet() -> None:
    """Long enough for a run nobody asked for to show."""
    for _ in range(20):
        await asyncio.sleep(SOON)


def running(counting: Callable[[], Counting], story: Callable[[Counting], Awaitable[None]]) -> None:
    async def within() -> None:
        reconciler = counting()
        task = asyncio.create_task(reconciler.run())
        try:
            await story(reconciler)
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        ended = reconciler.begun
        reconciler.trigger()
        await quiet()
        assert reconciler.begun == ended, "it was stopped"

    asyncio.run(within())


def test_it_runs_once_at_its_start_and_once_for_triggers_that_come_together() -> None:
    async def story(counting: Counting) -> None:
        await until(lambda: counting.ended == 1)
        await quiet()
        assert counting.ended == 1
        for _ in range(5):
            counting.trigger()
        await until(lambda: counting.ended == 2)
        await quiet()
        assert counting.ended == 2

    running(Counting, story)


def test_triggers_that_come_during_a_run_cost_exactly_one_more() -> None:
    async def story(counting: Counting) -> None:
        counting.gate.clear()
        counting.trigger()
        await until(lambda: counting.under_way)
        before = counting.begun
        for _ in range(5):
            counting.trigger()
            await asyncio.sleep(0)
        counting.gate.set()
        await until(lambda: counting.ended == before + 1)
        await quiet()
        assert counting.ended == before + 1 and counting.most_at_once == 1

    running(Counting, story)


def test_runs_never_overlap_whoever_asks() -> None:
    async def story(counting: Counting) -> None:
        counting.trigger()
        assert all(await asyncio.gather(*(counting.reconcile() for _ in range(5))))
        assert counting.ended >= 5 and counting.most_at_once == 1

    running(Counting, story)


def test_what_fails_is_tried_again_told_once_and_the_complaint_ends(caplog: pytest.LogCaptureFixture) -> None:
    refusal = KernelRefused("not now")

    async def story(counting: Counting) -> None:
        await until(lambda: len(counting.ways) < 3)
        assert counting.problem == "not now"
        await until(lambda: not counting.problem)
        assert counting.ended == 4
        await quiet()
        assert counting.ended == 4

    running(lambda: Counting(refusal, "not now", OSError("not now")), story)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("ERROR", "could not count problem=not now")]


def test_what_does_not_matter_to_the_node_is_told_quietly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "counting")
    running(lambda: Counting("a", minor=True), lambda counting: until(lambda: counting.ended == 2))
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_pauses_grow_while_it_fails_and_begin_anew_when_it_worked() -> None:
    async def story() -> None:
        counting = Counting(*["a"] * 4, "", "b", pauses=(1.0, 4.0))
        pauses = []
        for _ in range(6):
            now = asyncio.get_running_loop().time()
            await counting.reconcile()
            pauses.append(round(counting._timer.when() - now) if counting._timer else None)
        assert pauses == [1, 2, 4, 4, None, 1]

    asyncio.run(story())


def test_a_trigger_does_not_wait_for_the_pause_of_a_failure() -> None:
    async def story(counting: Counting) -> None:
        await until(lambda: counting.problem)
        counting.trigger()
        await until(lambda: not counting.problem)

    running(lambda: Counting("one of two", pauses=(LATE, LATE)), story)


def test_runs_that_are_asked_for_keep_their_distance() -> None:
    async def story(counting: Counting) -> None:
        await until(lambda: counting.ended == 1)
        counting.trigger()
        await quiet()
        assert counting.ended == 1

    running(lambda: Counting(spacing=LATE), story)


def test_with_a_period_it_runs_though_nobody_asks() -> None:
    running(lambda: Counting(period=SOON), lambda counting: until(lambda: counting.ended > 3))


def test_the_soonest_of_several_times_counts_and_the_next_run_names_them_anew() -> None:
    async def story(counting: Counting) -> None:
        await until(lambda: counting.ended == 1)
        for seconds in (LATE, SOON, LATE):
            counting.look_again(seconds)
        await until(lambda: counting.ended == 2)
        counting.look_again(SOON)
        await counting.reconcile()
        await quiet()
        assert counting.ended == 3

    running(Counting, story)


@pytest.mark.parametrize("mistake", [RecursionError("too deep"), asyncio.CancelledError()])
def test_a_mistake_loses_nothing_that_was_asked_for(mistake: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flock.edge.supervising.FIRST_PAUSE", SOON)

    async def story() -> None:
        supervisor, counting = Supervisor(), Counting("", mistake)
        supervisor.keep("counting", counting.run)
        await until(lambda: counting.ended == 1)
        counting.trigger()
        await until(lambda: counting.ended == 3)
        assert supervisor.restarts == {"counting": 1}
        await supervisor.close()

    asyncio.run(story())


def test_whoever_asks_and_goes_away_takes_nobody_elses_trigger_along() -> None:
    async def story(counting: Counting) -> None:
        await until(lambda: counting.ended == 1)
        counting.gate.clear()
        asking = asyncio.create_task(counting.reconcile())
        await until(lambda: counting.under_way)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        counting.gate.set()
        await until(lambda: counting.ended == 2)

    running(Counting, story)
