"""Health ports of Services, asked by the agent: numbers that are none, and more Services than can be asked eagerly."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import pytest

from flock.agent import healthports as module
from flock.agent.healthports import HealthPorts
from flock.core.gate import AT_ONCE, DOUBTFUL, DOUBTFULLY, EAGER, EAGERLY, SAVED
from flock.edge.healthport import ask
from looping import looped

Asked = Counter[int]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Asked:
    """How often each port was, which says what the test is parametrized with."""
    counted = Asked()

    async def say(number: int, _: object) -> int | None:
        counted[number] += 1
        await asyncio.sleep(0)
        status: int | None = request.node.callspec.params["says"]
        return status

    monkeypatch.setattr(module, "ask", say)
    monkeypatch.setattr(HealthPorts, "_own", [])
    return counted


async def followed(*, turns: int, turn: Callable[[HealthPorts], None]) -> float:
    """`turn` is done so often in half a second, or longer.  Returns how long it took."""
    ports, started = HealthPorts(preparing=None), time.monotonic()  # type: ignore[arg-type]
    running = asyncio.create_task(ports.run())
    for _ in range(turns):
        turn(ports)
        await asyncio.sleep(0.5 / turns)
    running.cancel()
    return time.monotonic() - started


@pytest.mark.parametrize("port", [-1, 70_000, 2**63])
@looped
async def test_nobody_answers_at_a_port_that_is_none(port: int) -> None:
    assert await ask(port, ["127.0.0.2"]) is None


@pytest.mark.parametrize(
    ("says", "most"), [(None, EAGERLY / EAGER), (503, EAGERLY / EAGER), (200, DOUBTFULLY / DOUBTFUL)]
)
@looped
async def test_many_that_are_waited_for_or_doubted_are_asked_as_often_as_a_few(
    asked: Asked, says: int | None, most: float
) -> None:
    many = 100

    def want(ports: HealthPorts) -> None:
        for number in range(many):
            ports.want(("tenant", f"s{number}"), number)

    lasted = await followed(turns=1, turn=want)
    assert len(asked) == many
    assert asked.total() <= many + lasted * most + DOUBTFULLY


@pytest.mark.parametrize("flapping", [False, True])
@pytest.mark.parametrize("says", [503, 200])
@looped
async def test_endpoints_that_change_all_the_time_are_asked_about_so_often_and_no_more(
    monkeypatch: pytest.MonkeyPatch, asked: Asked, says: int, flapping: bool
) -> None:
    monkeypatch.setattr("flock.core.gate.SAVED", 10.0)

    def change(ports: HealthPorts) -> None:
        for number in range(20):
            if flapping:
                ports.forget(("tenant", f"s{number}"))
            ports.want(("tenant", f"s{number}"), number)

    lasted = await followed(turns=100, turn=change)
    assert asked.total() <= 10 + lasted * (AT_ONCE + EAGERLY / EAGER + DOUBTFULLY / DOUBTFUL) + EAGERLY + DOUBTFULLY
    assert AT_ONCE * 10 <= SAVED <= AT_ONCE * 60  # what a node that starts has to ask is not a minute's worth of it
