"""Work that may wait is done in a thread of its own, one piece after the other."""

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from flock.core.errors import TryAgain
from flock.edge.worker import Worker
from looping import looped


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker("test")
    yield made
    made.close()


@looped
async def test_pieces_are_done_in_order_in_one_thread_named_after_it(worker: Worker) -> None:
    done: list[int] = []
    await asyncio.gather(*(worker.run(done.append, n) for n in range(100)))
    assert done == list(range(100))
    assert (await worker.run(threading.current_thread)).name == "test"


@looped
async def test_what_it_raises_is_raised_where_it_is_awaited_and_ends_nothing(worker: Worker) -> None:
    with pytest.raises(ZeroDivisionError):
        await worker.run(divmod, 1, 0)
    with pytest.raises(SystemExit):
        await worker.run(sys.exit, 1)
    assert await worker.run(int, "ff", base=16) == 255


@looped
async def test_a_piece_that_nobody_waits_for_any_more_is_done_all_the_same(worker: Worker) -> None:
    go_on, done = threading.Event(), threading.Event()
    first, given_up = worker.run(go_on.wait, 60), worker.run(done.set)
    given_up.cancel()
    go_on.set()
    assert await first
    await worker.run(int)
    assert done.is_set()


@looped
async def test_it_tells_how_long_the_piece_under_way_has_taken(worker: Worker) -> None:
    began, go_on = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go_on.wait(60)

    assert worker.busy_for == 0
    under_way = worker.run(work)
    assert await asyncio.to_thread(began.wait, 60)
    assert worker.busy_for > 0
    go_on.set()
    await under_way
    assert worker.busy_for == 0


@looped
async def test_it_keeps_nothing_of_what_is_done(worker: Worker) -> None:
    class Large: ...

    large = Large()
    gone = weakref.ref(large)
    await worker.run(id, large)
    del large
    await worker.run(int)
    gc.collect()
    assert gone() is None


@looped
async def test_closing_waits_for_what_was_handed_over() -> None:
    worker, done = Worker("test"), list[int]()
    for n in range(100):
        worker.run(done.append, n)
    worker.close()
    assert len(done) == 100


def test_an_end_of_the_loop_before_the_work_is_done_ends_no_thread() -> None:
    go_on, done, worker = threading.Event(), threading.Event(), Worker("test")

    async def test() -> None:
        worker.run(go_on.wait, 60)
        worker.run(done.set)

    asyncio.run(test())
    go_on.set()
    worker.close()
    assert done.is_set()


@looped
async def test_what_is_handed_over_after_the_end_fails_rather_than_wait_for_ever() -> None:
    worker = Worker("test")
    worker.close()
    with pytest.raises(TryAgain):
        await worker.run(int)
