"""Whoever needs something done waits for the next round of it, and all who wait share that round."""

import asyncio
from collections.abc import Callable

import pytest

from flock.edge.batching import Rounds
from looping import looped


class Work:
    """Remembers what each round was asked for; rounds are held up or fail by their number."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.held: dict[int, asyncio.Event] = {}
        self.failing: dict[int, BaseException] = {}
        self.rounds = Rounds(self)

    async def __call__(self, asked: list[str]) -> int:
        self.asked.append(asked)
        number = len(self.asked)
        if number in self.held:
            await self.held[number].wait()
        if number in self.failing:
            raise self.failing[number]
        return number

    async def join(self, *names: str) -> "list[asyncio.Future[int]]":
        """Ask, and see to it that whatever round can begin has begun."""
        joined = [self.rounds.join(name) for name in names]
        await turns()
        return joined

    def hold(self, number: int) -> Callable[[], None]:
        """Call what is returned to let that round go on."""
        self.held[number] = asyncio.Event()
        return self.held[number].set


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def work() -> Work:
    return Work()


@looped
async def test_all_who_ask_in_one_turn_share_a_round_in_the_order_they_asked(work: Work) -> None:
    names = [str(n) for n in range(100)]
    assert await asyncio.gather(*map(work.rounds.join, names)) == [1] * 100
    assert work.asked == [names]


@looped
async def test_who_comes_during_a_round_gets_the_next_and_shares_it(work: Work) -> None:
    go_on = work.hold(1)
    first, later = await work.join("a"), await work.join("b", "c")
    go_on()
    assert await asyncio.gather(*first, *later) == [1, 2, 2]
    assert work.asked == [["a"], ["b", "c"]]


@looped
async def test_an_answer_does_not_wait_for_the_rounds_after_it(work: Work) -> None:
    end_first, end_second = work.hold(1), work.hold(2)
    (first,), (later,) = await work.join("a"), await work.join("b")
    end_first()
    assert await first == 1 and not later.done()
    end_second()
    assert await later == 2


@looped
async def test_a_failure_reaches_all_of_its_round_and_nobody_else(work: Work) -> None:
    go_on = work.hold(1)
    work.failing[1] = OSError("no")
    failed, later = await work.join("a", "b"), await work.join("c")
    go_on()
    assert await asyncio.gather(*failed, return_exceptions=True) == [work.failing[1]] * 2
    assert await asyncio.gather(*later) == [2]


@looped
async def test_who_gives_up_disturbs_nobody_and_what_it_asked_for_is_done(work: Work) -> None:
    go_on = work.hold(1)
    under_way, waiting = await work.join("a", "b"), await work.join("c", "d")
    under_way[0].cancel()
    waiting[0].cancel()
    await turns()
    go_on()
    assert await asyncio.gather(under_way[1], waiting[1]) == [1, 2]
    assert work.asked == [["a", "b"], ["c", "d"]]


@looped
async def test_a_round_that_everybody_gave_up_fails_quietly(work: Work) -> None:
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    go_on = work.hold(1)
    work.failing[1] = OSError("no")
    (alone,) = await work.join("a")
    alone.cancel()
    await turns()
    go_on()
    await work.rounds.finished()
    assert not unheard and not work.rounds.busy


@looped
async def test_work_that_is_cancelled_leaves_nobody_waiting_and_serves_who_comes_later(work: Work) -> None:
    go_on = work.hold(1)
    work.failing[1] = asyncio.CancelledError()
    first, later = await work.join("a"), await work.join("b")
    go_on()
    ended = await asyncio.gather(*first, *later, return_exceptions=True)
    assert [type(end) for end in ended] == [asyncio.CancelledError] * 2
    assert await work.rounds.join("c") == 2


@looped
async def test_it_is_busy_from_the_first_who_asks_to_the_last_answer(work: Work) -> None:
    assert not work.rounds.busy
    go_on = work.hold(1)
    await work.join("a")
    (last,) = await work.join("b")
    assert work.rounds.busy
    go_on()
    await work.rounds.finished()
    assert not work.rounds.busy and await last == 2


@looped
async def test_with_nothing_asked_for_it_is_finished_at_once(work: Work) -> None:
    await work.rounds.finished()
    assert work.asked == []
