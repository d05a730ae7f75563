"""Whatever runs for ever is held: it cannot end unseen, and is begun anew."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from flock.edge import supervising
from flock.edge.supervising import Supervisor

CALM = 0.5


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(supervising, "LONGEST_PAUSE", 0.02)


def supervised(*endings: Callable[[], Awaitable[None]]) -> tuple[Supervisor, asyncio.Event]:
    """A run that ends in each of these ways, one after the other, and then lives; the event tells that it does."""
    supervisor, lives, ways = Supervisor(calm=CALM), asyncio.Event(), list(endings)

    async def run() -> None:
        if ways:
            await ways.pop(0)()
        else:
            lives.set()
            await asyncio.Event().wait()

    supervisor.keep("part", run)
    return supervisor, lives


async def fail() -> None:
    raise RecursionError("too deep")


async def end() -> None:
    return


async def be_cancelled_from_inside() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize("way", [fail, end, be_cancelled_from_inside])
def test_a_run_that_ends_is_shown_counted_and_started_again(way: Callable[[], Awaitable[None]]) -> None:
    async def test() -> None:
        supervisor, lives = supervised(way, way)
        await asyncio.wait_for(lives.wait(), 10)
        assert supervisor.restarts == {"part": 2}
        assert len(supervisor.problems) == 1 and "part failed and was started again" in supervisor.problems[0]
        await supervisor.close()

    asyncio.run(test())


def test_the_complaint_ends_when_it_works_again() -> None:
    async def test() -> None:
        supervisor, lives = supervised(fail)
        await asyncio.wait_for(lives.wait(), 10)
        assert supervisor.problems
        for _ in range(1000):
            if not supervisor.problems:
                break
            await asyncio.sleep(CALM / 50)
        assert not supervisor.problems and supervisor.restarts == {"part": 1}
        await supervisor.close()

    asyncio.run(test())


def test_one_that_fails_takes_no_other_along() -> None:
    async def test() -> None:
        supervisor, lives = supervised(*[fail] * 3)
        other = asyncio.Event()

        async def run() -> None:
            await lives.wait()
            other.set()
            await asyncio.Event().wait()

        supervisor.keep("other", run)
        await asyncio.wait_for(other.wait(), 10)
        assert supervisor.restarts == {"part": 3, "other": 0}
        await supervisor.close()

    asyncio.run(test())


def test_closing_ends_everything() -> None:
    async def test() -> None:
        ended = asyncio.Event()

        async def run() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        supervisor = Supervisor()
        supervisor.keep("part", run)
        await asyncio.sleep(0.01)
        await supervisor.close()
        assert ended.is_set() and not supervisor.problems

    asyncio.run(test())


def test_a_callback_that_fails_is_shown_and_counted_too() -> None:
    async def test() -> None:
        supervisor, loop = Supervisor(calm=CALM), asyncio.get_running_loop()
        loop.set_exception_handler(supervisor.unexpected)
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(0.01)
        assert supervisor.restarts == {"callbacks": 1} and "division by zero" in supervisor.problems[0]
        await supervisor.close()

    asyncio.run(test())
