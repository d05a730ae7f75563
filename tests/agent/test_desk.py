"""What is asked before its time waits for it, bounded; what nobody answers is refused once that is certain."""

import asyncio

import pytest

from flock.agent import desk as at_the_desk
from flock.agent.desk import Desk
from flock.agent.readiness import Readiness
from flock.core.cni import Request
from flock.core.errors import Code, FlockError, TryAgain
from looping import looped


async def first(_: Request) -> str:
    return "first"


async def second(_: Request) -> str:
    return "second"


async def asked(desk: Desk, op: str) -> "asyncio.Task[object]":
    """A call under way: it has come as far as it comes by itself."""
    call = asyncio.create_task(desk.answer(Request(op=op)))
    for _ in range(5):
        await asyncio.sleep(0)
    return call


@looped
async def test_what_is_offered_is_answered_at_once() -> None:
    desk = Desk(Readiness())
    desk.offer({"DEL": first})
    assert desk.knows("DEL") and not desk.knows("ADD")
    assert (await asked(desk, "DEL")).result() == "first"


@looped
async def test_a_call_before_its_time_waits_and_is_answered_when_that_comes() -> None:
    desk = Desk(Readiness())
    calls = [await asked(desk, "ADD"), await asked(desk, "ADD"), await asked(desk, "check")]
    desk.offer({"DEL": second})
    await asked(desk, "DEL")
    assert not any(call.done() for call in calls), "what else is offered is not theirs"
    desk.offer({"ADD": first})
    assert [await call for call in calls[:2]] == ["first", "first"]
    assert not calls[2].done()
    desk.offer({"check": second}, last=True)
    assert await calls[2] == "second"


@looped
async def test_a_later_offer_takes_the_place_of_an_earlier_one() -> None:
    desk = Desk(Readiness())
    desk.offer({"status": first})
    desk.offer({"status": second}, last=True)
    assert await desk.answer(Request(op="status")) == "second"


@looped
async def test_an_unknown_operation_is_refused_once_there_will_be_no_more() -> None:
    desk = Desk(Readiness())
    early = await asked(desk, "dance")
    desk.offer({"ADD": first})
    assert not (await asked(desk, "dance")).done()
    desk.offer({"DEL": second}, last=True)
    for call in (early, await asked(desk, "dance")):
        with pytest.raises(FlockError, match="unknown operation 'dance'") as refused:
            await call
        assert refused.value.code == Code.INVALID_ENVIRONMENT


@looped
async def test_a_call_that_waits_for_too_long_is_told_to_try_again_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_the_desk, "PATIENCE", 0.01)
    readiness = Readiness()
    desk = Desk(readiness)
    step = asyncio.create_task(readiness.step("the state file is not loaded yet", rubbish))
    with pytest.raises(TryAgain, match="the state file is not loaded yet: it is rubbish") as told:
        await desk.answer(Request(op="ADD"))
    assert told.value.code == Code.TRY_AGAIN
    step.cancel()


async def rubbish() -> None:
    raise FlockError("it is rubbish")
