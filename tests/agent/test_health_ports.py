"""Health ports of Services, asked by the agent: numbers that are none, and more Services than can be asked eagerly."""

import asyncio
import time
from collections import Counter

import pytest

from flock.agent import healthports as module
from flock.agent.healthports import HealthPorts
from flock.core.gate import EAGER, EAGERLY
from flock.edge.healthport import ask
from looping import looped


@pytest.mark.parametrize("port", [-1, 70_000, 2**63])
@looped
async def test_nobody_answers_at_a_port_that_is_none(port: int) -> None:
    assert await ask(port, ["127.0.0.2"]) is None


@looped
async def test_many_that_are_waited_for_are_asked_as_often_as_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    many, asked = 100, Counter[int]()

    async def silent(number: int, _: object) -> None:
        asked[number] += 1

    monkeypatch.setattr(module, "ask", silent)
    monkeypatch.setattr(HealthPorts, "_own", [])
    ports, started = HealthPorts(preparing=None), time.monotonic()  # type: ignore[arg-type]
    for number in range(many):
        ports.want(("tenant", f"s{number}"), number)
    running = asyncio.create_task(ports.run())
    await asyncio.sleep(0.5)
    running.cancel()
    lasted = time.monotonic() - started
    assert len(asked) == many
    assert asked.total() <= many + lasted * EAGERLY / EAGER + EAGERLY
