"""Ending tasks: nobody takes the end it is told of for that of another."""

import asyncio

import pytest

from flock.edge.ending import end
from looping import looped


class Slow:
    """A task that needs a while for its end."""

    def __init__(self) -> None:
        self.begun, self.told, self.may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            self.begun.set()
            await asyncio.Event().wait()
        finally:
            self.told.set()
            await self.may_end.wait()


@looped
async def test_what_is_ended_has_ended() -> None:
    slow = Slow()
    await slow.begun.wait()
    ending = asyncio.create_task(end(slow.task))
    await slow.told.wait()
    assert not ending.done()
    slow.may_end.set()
    await ending
    assert slow.task.cancelled()


@looped
async def test_whoever_is_cancelled_meanwhile_is_when_the_other_has_ended() -> None:
    slow = Slow()
    await slow.begun.wait()
    ending = asyncio.create_task(end(slow.task))
    await slow.told.wait()
    ending.cancel()
    await asyncio.sleep(0)
    assert not ending.done()
    slow.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert slow.task.cancelled()


@looped
async def test_a_task_that_failed_says_so_and_the_others_have_ended() -> None:
    async def fails() -> None:
        raise ValueError("broken")

    failing, slow = asyncio.create_task(fails()), Slow()
    slow.may_end.set()
    await asyncio.wait({failing})
    with pytest.raises(ValueError, match="broken"):
        await end(failing, slow.task)
    assert slow.task.cancelled()


@looped
async def test_tasks_that_have_ended_are_fine() -> None:
    over = asyncio.create_task(asyncio.sleep(0))
    await over
    await end(over)
    await end()
