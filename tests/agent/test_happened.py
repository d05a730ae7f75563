"""What happened is noted once, numbered, bounded by share, and read by everybody at their own cursor."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import Mock

import pytest

from flock.agent.admin import Admin
from flock.agent.happened import KEPT, Happened
from flock.core.cni import Request
from flock.core.happenings import Dropped, Happening, Share

DROP = Dropped(
    what="ingress", pod="shop/db", source="192.0.2.1", destination="192.0.2.2", protocol="TCP", port=80, policies=""
)
PATIENCE = 5.0


class Fell(Happening, frozen=True, kw_only=True):
    part = "heal"
    counted_by = "what"
    what: str = "a route"

    def __str__(self) -> str:
        return f"fell {self.what}"


def numbers(happened: Happened, share: Share, after: int = 0) -> list[int]:
    return [entry.number for entry in happened.after(share, after)[0]]


def test_each_share_counts_by_itself_and_is_read_on_from_where_one_was() -> None:
    happened = Happened()
    for noted in (Fell(), DROP, Fell(), DROP, DROP):
        happened.note(noted)
    assert numbers(happened, Share.NODE) == [1, 2]
    assert numbers(happened, Share.DROPS) == [1, 2, 3]
    assert numbers(happened, Share.DROPS, after=2) == [3]
    assert numbers(happened, Share.DROPS, after=3) == []


def test_a_flood_of_drops_pushes_nothing_else_out_and_is_bounded() -> None:
    happened = Happened()
    happened.note(Fell())
    for _ in range(10 * KEPT):
        happened.note(DROP)
    assert numbers(happened, Share.NODE) == [1]
    assert numbers(happened, Share.DROPS) == [*range(9 * KEPT + 1, 10 * KEPT + 1)]


def test_a_slow_reader_is_told_how_much_it_missed() -> None:
    happened = Happened()
    for _ in range(KEPT + 30):
        happened.note(DROP)
    entries, missed = happened.after(Share.DROPS, 10)
    assert (len(entries), missed) == (KEPT, 20)
    assert happened.after(Share.DROPS, KEPT + 30) == ([], 0)


def test_what_nobody_had_time_to_look_at_is_missed_too_and_has_its_numbers() -> None:
    happened = Happened()
    happened.note(DROP)
    happened.note(DROP, untold=7)
    entries, missed = happened.after(Share.DROPS, 0)
    assert [entry.number for entry in entries] == [1, 9]
    assert missed == 7


def test_a_number_of_an_earlier_life_reads_from_the_beginning() -> None:
    happened = Happened()
    happened.note(DROP)
    assert numbers(happened, Share.DROPS, after=500) == [1]


def test_it_is_counted_by_its_label_and_logged_in_its_words(caplog: pytest.LogCaptureFixture) -> None:
    happened = Happened()
    with caplog.at_level("INFO"):
        for what in ("a route", "a link", "a route"):
            happened.note(Fell(what=what))
        happened.note(DROP)
    assert happened.counts(Fell) == {"a link": 1, "a route": 2}
    assert happened.count(Fell) == 3
    assert [(record.name, record.message) for record in caplog.records] == [
        ("heal", "fell a route"),
        ("heal", "fell a link"),
        ("heal", "fell a route"),
    ], "drops are not logged: whoever sends packets would fill the disk"


def waits(happened: Happened, then: Callable[[], None], read_to: dict[Share, int]) -> Awaitable[None]:
    async def scenario() -> None:
        waiting = asyncio.create_task(happened.wait(read_to, 600))
        await asyncio.sleep(0)
        assert not waiting.done()
        then()
        await asyncio.wait_for(waiting, PATIENCE)

    return scenario()


@pytest.mark.parametrize("read_to", [1, 500], ids=["this life", "an earlier one"])
def test_who_waits_is_answered_when_something_happens(read_to: int) -> None:
    async def scenario() -> None:
        happened = Happened()
        if read_to == 1:
            happened.note(DROP)
        await waits(happened, lambda: happened.note(DROP), {Share.DROPS: read_to})
        await happened.wait({Share.DROPS: 0}, 600)  # what is there already is not waited for

    asyncio.run(scenario())


def test_nobody_waits_for_another_share_beyond_patience_or_the_agents_end() -> None:
    async def scenario() -> None:
        happened = Happened()
        happened.note(DROP)
        await happened.wait({Share.NODE: 0}, 0.01)
        await waits(happened, happened.close, {Share.NODE: 0})

    asyncio.run(scenario())


def test_who_reads_for_ever_does_not_go_round_and_round_when_the_agent_ends() -> None:
    """Nothing else of the agent would run again, and it would not end."""

    async def scenario() -> None:
        happened, turns = Happened(), 0

        async def read() -> None:
            nonlocal turns
            while turns < 100:
                await happened.wait({Share.NODE: 0}, None)
                turns += 1

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        happened.close()
        for _ in range(10):
            await asyncio.sleep(0)
        assert turns == 0
        reading.cancel()

    asyncio.run(scenario())


def asked(happened: Happened, op: str, *args: str) -> dict[str, Any]:
    """As flockctl asks."""
    answer = Admin(Mock(happened=happened), Mock()).operations()[op]
    told = asyncio.run(answer(Request(op=op, args="\n".join(args))))  # type: ignore[arg-type]
    assert isinstance(told, dict)
    return told


def test_whoever_comes_back_with_the_cursor_of_the_last_answer_is_told_what_came_since() -> None:
    happened = Happened()
    happened.note(Fell(what="a link"))
    happened.note(DROP)
    first, drops = asked(happened, "happened", ""), asked(happened, "policy.drops", "")
    assert [(row["happening"], row["what"]) for row in first["happened"]] == [("Fell", "a link")]
    assert [row["said"] for row in drops["happened"]] == [str(DROP)]
    assert asked(happened, "happened", first["cursor"])["happened"] == []
    happened.note(Fell(what="a route"))
    happened.note(DROP, untold=7)
    again, more = asked(happened, "happened", first["cursor"]), asked(happened, "policy.drops", drops["cursor"], "wait")
    assert ([row["what"] for row in again["happened"]], again["missed"]) == (["a route"], 0)
    assert ([row["number"] for row in more["happened"]], more["missed"]) == ([9], 7)
