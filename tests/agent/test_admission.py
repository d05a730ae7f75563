"""A lone pod's rules and link, in one thread with one hand-over: the order, and whose failure is whose."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from flock.agent.admission import Admission, Work
from flock.core.errors import KernelRefused
from flock.edge.worker import Worker
from looping import looped


@pytest.fixture
def thread() -> Iterator[Worker]:
    worker = Worker("pods")
    yield worker
    worker.close()


def admission(thread: Worker, link: Callable[[], str]) -> Admission[str]:
    def attach(first: Work) -> asyncio.Future[str]:
        def work() -> str:
            first()
            return link()

        return thread.run(work)

    return Admission("shop", attach)


@looped
async def test_the_link_is_made_right_after_the_rules_in_the_same_thread(thread: Worker) -> None:
    done: list[tuple[str, int]] = []

    def noted(what: str) -> str:
        done.append((what, threading.get_ident()))
        return what

    pod = admission(thread, lambda: noted("link"))
    await pod.commit(lambda: done.append(("rules", threading.get_ident())))
    assert pod.ruled_at
    assert await pod.attached() == "link"

    assert [what for what, _ in done] == ["rules", "link"]
    assert len({where for _, where in done}) == 1
    assert threading.get_ident() not in {where for _, where in done}


@looped
async def test_rules_that_are_refused_leave_no_link_and_are_everybodys_failure(thread: Worker) -> None:
    made: list[str] = []

    def refuse() -> None:
        raise KernelRefused("no")

    pod = admission(thread, lambda: made.append("link") or "link")  # type: ignore[func-returns-value]
    with pytest.raises(KernelRefused):
        await pod.commit(refuse)
    assert not pod.ruled_at
    await pod.given_up()

    assert made == []


@looped
async def test_a_link_that_fails_is_the_failure_of_its_pod_alone(thread: Worker) -> None:
    def fail() -> str:
        raise KernelRefused("no link")

    pod = admission(thread, fail)
    await pod.commit(lambda: None)
    assert pod.ruled_at
    with pytest.raises(KernelRefused, match="no link"):
        await pod.attached()


@looped
async def test_a_link_that_takes_long_holds_up_no_other_transaction(thread: Worker) -> None:
    """But who gives it up waits until nobody works on it: it could come up behind their back."""
    go_on = threading.Event()

    pod = admission(thread, lambda: str(go_on.wait(20)))
    await pod.commit(lambda: None)
    assert pod.ruled_at and not go_on.is_set()
    giving_up = asyncio.ensure_future(pod.given_up())
    await asyncio.sleep(0)
    assert not giving_up.done()
    go_on.set()
    await giving_up
    assert await pod.attached() == "True"


@looped
async def test_a_pod_whose_rules_came_into_force_with_others_is_attached_afterwards(thread: Worker) -> None:
    pod = admission(thread, lambda: "link")
    await pod.given_up()  # nothing was begun
    assert await pod.attached() == "link"
