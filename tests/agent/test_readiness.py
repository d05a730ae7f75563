"""A step is taken until it is done, and is why a node is not ready until then; afterwards the parts decide."""

import asyncio
import logging

import pytest

from flock.agent import readiness as deciding
from flock.agent.readiness import Readiness
from flock.agent.reconciling import Reconciler
from flock.core.errors import FlockError, KernelRefused, TryAgain
from looping import looped

WHY = "the hens are not in yet"
SOON, NEVER = 0.001, 3600.0


class Attempts:
    """Each ends as the next of `ways` says; without one, well."""

    def __init__(self, *ways: Exception) -> None:
        self.ways = list(ways)
        self.made = 0

    async def __call__(self) -> None:
        self.made += 1
        if self.ways:
            raise self.ways.pop(0)


class Part(Reconciler):
    """Its problem is what it is told."""

    def __init__(self) -> None:
        super().__init__(logging.getLogger("part"), "could not", pauses=(NEVER, NEVER))
        self.told = ""

    async def _reconcile(self) -> str:
        return self.told

    async def say(self, problem: str) -> None:
        self.told = problem
        await self.reconcile()


@pytest.fixture
def by_changes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock wakes nobody."""
    monkeypatch.setattr(deciding, "RETRY", NEVER)


async def turns(number: int = 10) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


# --- steps ---


@looped
async def test_a_step_that_succeeds_is_over_and_made_once() -> None:
    readiness, attempts = Readiness(), Attempts()
    assert readiness.report().not_ready == ("the agent is starting",)
    await readiness.step(WHY, attempts)
    assert attempts.made == 1
    readiness.started()
    assert readiness.ready and readiness.report().ready


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (TryAgain("no NodeConfig named n1"), "no NodeConfig named n1"),
        (KernelRefused("add a route: not now"), f"{WHY}: add a route: not now"),
        (FlockError("rubbish"), f"{WHY}: rubbish"),
        (OSError(5, "Input/output error"), f"{WHY}: [Errno 5] Input/output error"),
        (ValueError("a mistake"), f"{WHY}: ValueError('a mistake')"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@looped
async def test_a_step_that_fails_is_the_reason_until_it_is_done_and_logged_once(
    failure: Exception, reason: str, by_changes_alone: None, caplog: pytest.LogCaptureFixture
) -> None:
    readiness, attempts = Readiness(), Attempts(*[failure] * 3)
    step = asyncio.create_task(readiness.step(WHY, attempts))
    for made in (1, 2, 3):
        await turns()
        assert attempts.made == made and not step.done()
        assert readiness.report().not_ready == (reason,) and not readiness.ready
        readiness.look()
    await step
    assert attempts.made == 4
    assert [record.getMessage() for record in caplog.records] == [f"not ready reason={reason}"]
    assert ("Traceback" in caplog.text) == isinstance(failure, ValueError), "of a mistake of ours, where it is"


@looped
async def test_another_reason_of_the_same_step_is_shown_and_logged_as_well(
    by_changes_alone: None, caplog: pytest.LogCaptureFixture
) -> None:
    readiness = Readiness()
    step = asyncio.create_task(readiness.step(WHY, Attempts(FlockError("fox"), FlockError("hawk"))))
    await turns()
    readiness.look()
    await turns()
    assert readiness.report().not_ready == (f"{WHY}: hawk",)
    assert [text in caplog.text for text in ("fox", "hawk")] == [True, True]
    readiness.look()
    await step


@looped
async def test_a_step_whose_end_nobody_tells_is_tried_again_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "RETRY", SOON)
    readiness, attempts = Readiness(), Attempts(*[FlockError("fox")] * 5)
    await readiness.step(WHY, attempts)
    assert attempts.made == 6


@looped
async def test_a_change_that_comes_while_a_step_is_tried_is_not_missed(by_changes_alone: None) -> None:
    """It may be the one that the attempt, which had looked before, was waiting for."""
    readiness, begun, let = Readiness(), asyncio.Event(), asyncio.Event()
    there = False

    async def attempt() -> None:
        seen = there
        begun.set()
        await let.wait()
        if not seen:
            raise TryAgain("not there")

    step = asyncio.create_task(readiness.step(WHY, attempt))
    await begun.wait()
    there = True
    readiness.look()
    waiting = asyncio.create_task(readiness.wait(lambda: False, NEVER))  # somebody else's waiting takes it from nobody
    await turns()
    let.set()
    await step
    waiting.cancel()


@looped
async def test_the_next_step_is_the_reason_as_soon_as_it_is_under_way(by_changes_alone: None) -> None:
    readiness = Readiness()
    step = asyncio.create_task(readiness.step(WHY, Attempts(FlockError("fox"))))
    await turns()
    readiness.look()
    await step
    never = asyncio.create_task(readiness.step("the gate is open", asyncio.Event().wait))  # type: ignore[arg-type]
    await turns()
    assert readiness.report().not_ready == ("the gate is open",)
    never.cancel()


# --- parts ---


@looped
async def test_a_part_that_every_pod_needs_decides_with_the_step_and_after_it() -> None:
    readiness, part = Readiness(), Part()
    readiness.requires(part)
    await part.say("read-only")
    report = readiness.report()
    assert report.not_ready == ("the agent is starting", "read-only") and report.pods_suffer
    readiness.started()
    assert readiness.report().not_ready == ("read-only",) and not readiness.ready
    await part.say("")
    assert readiness.ready and not readiness.report().pods_suffer


@looped
async def test_a_problem_that_is_the_steps_too_is_said_once(by_changes_alone: None) -> None:
    readiness, part = Readiness(), Part()
    readiness.requires(part)
    await part.say("read-only")

    async def is_prepared() -> None:
        if part.problem:
            raise TryAgain(part.problem)

    step = asyncio.create_task(readiness.step(WHY, is_prepared))
    await turns()
    assert readiness.report().not_ready == ("read-only",)
    await part.say("")
    await step


@looped
async def test_an_add_goes_on_as_soon_as_the_problem_ends_that_it_waits_for() -> None:
    readiness, part = Readiness(), Part()
    readiness.requires(part)
    readiness.started()
    await part.say("read-only")
    adds = [asyncio.create_task(readiness.wait(lambda: readiness.ready, NEVER)) for _ in range(3)]
    await turns()
    await part.say("still read-only")
    await turns()
    assert not any(add.done() for add in adds)
    await part.say("")
    await asyncio.gather(*adds)


@looped
async def test_an_add_that_waits_for_too_long_is_told_all_reasons() -> None:
    readiness, parts = Readiness(), (Part(), Part())
    for part, problem in zip(parts, ("read-only", "nft: not found"), strict=True):
        readiness.requires(part)
        await part.say(problem)
    readiness.started()
    with pytest.raises(TryAgain, match="cannot take pods yet: read-only; nft: not found"):
        await readiness.wait(lambda: readiness.ready, SOON)


@looped
async def test_complaints_keep_no_pod_out_and_end_with_their_cause() -> None:
    readiness, part, said = Readiness(), Part(), ["a session is down", ""]
    readiness.degraded_by(part.complaints, lambda: said)
    readiness.started()
    await part.say("no pages")
    assert readiness.report().degraded == ("no pages", "a session is down") and readiness.ready
    await part.say("")
    said.clear()
    assert readiness.report().degraded == ()
