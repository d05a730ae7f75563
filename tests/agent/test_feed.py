"""What happens, as events: in order, one line each, whole where it can be, and bounded whatever happens."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from flock.agent import feed as module
from flock.agent.feed import TURN, Feed
from flock.agent.happened import KEPT, Happened
from flock.core.happenings import Attached, Dropped, Happening, PolicyRefused, Repaired, SessionUp
from flock.edge.http import Request

EVENT = re.compile(r"(?:id: (\d+)\n)?event: (\w+)\ndata: ([^\r\n]*)\n\n")
DROP = Dropped(
    what="ingress", pod="shop/db", source="192.0.2.1", destination="192.0.2.2", protocol="TCP", port=80, policies=""
)
UP = SessionUp(peer="tor1")


class Reader:
    """Somebody who reads, from the start or where they stopped."""

    def __init__(self, happened: Happened, **headers: str) -> None:
        named = {name.lower().replace("_", "-"): value for name, value in headers.items()}
        self._pieces: AsyncGenerator[bytes, None] = Feed(happened).events(Request("GET", "/happenings", "", named))
        self.last_id = 0

    async def read(self) -> list[dict[str, Any]]:
        """The data of what is told next."""
        while True:
            async with asyncio.timeout(10):
                text = (await anext(self._pieces)).decode()
            events = EVENT.findall(text)
            assert "".join(EVENT.split(text)[::4]) in ("", "retry: 1000\n\n", ": alive\n\n"), "nothing else"
            if events:
                self.last_id = int(events[-1][0] or self.last_id)
                found = [json.loads(data) for _, _, data in events]
                assert [event["kind"] for event in found] == [kind for _, kind, _ in events]
                return found


def tell(story: Callable[[Happened], Awaitable[None]]) -> None:
    asyncio.run(_tell(story))


async def _tell(story: Callable[[Happened], Awaitable[None]]) -> None:
    await story(Happened())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER", 0.01)


def test_shares_are_told_in_the_order_in_which_it_happened() -> None:
    async def story(happened: Happened) -> None:
        for what in (DROP, UP, DROP):
            happened.note(what)
        reader = Reader(happened)
        assert [event["kind"] for event in await reader.read()] == ["Dropped", "SessionUp", "Dropped"]
        happened.note(UP)
        assert [event["kind"] for event in await reader.read()] == ["SessionUp"]

    tell(story)


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        (Repaired(kind="route", what="192.0.2.1 dev x", pod="a/b"), {"repaired": "route", "pod": "a/b"}),
        (PolicyRefused(policy="a/b", problem="no"), {"policy_kind": "NetworkPolicy", "policy": "a/b"}),
        (DROP, {"pod": "shop/db", "port": 80, "policies": ""}),
    ],
)
def test_an_event_has_its_kind_its_words_and_its_fields(what: Happening, fields: dict[str, object]) -> None:
    async def story(happened: Happened) -> None:
        happened.note(what)
        (event,) = await Reader(happened).read()
        assert event.items() >= {"kind": type(what).__name__, "said": str(what), **fields}.items()
        assert event["time"] == pytest.approx(happened.began, abs=60)

    tell(story)


@pytest.mark.parametrize("name", ["a\nid: 7", "a\r\n\r\nevent: x\n\n", "\u2028", "\x00", "é", "<img src=x onerror=1>"])
def test_whatever_is_in_a_name_an_event_is_one_line(name: str) -> None:
    async def story(happened: Happened) -> None:
        happened.note(Attached(pod=name, container="c", addresses=""))
        happened.note(UP)
        odd, usual = await Reader(happened).read()
        assert (odd["pod"], usual["kind"]) == (name, "SessionUp")

    tell(story)


def test_a_reader_goes_on_where_it_stopped_and_is_told_how_much_it_missed() -> None:
    async def story(happened: Happened) -> None:
        happened.note(UP)
        reader = Reader(happened)
        await reader.read()
        for _ in range(KEPT + 30):
            happened.note(DROP)
        again = Reader(happened, Last_Event_ID=str(reader.last_id))
        (missed,) = await again.read()
        assert (missed["kind"], missed["count"], again.last_id) == ("Missed", 30, 0)
        assert {event["kind"] for event in await again.read()} == {"Dropped"}

    tell(story)


def test_what_nobody_had_the_time_to_look_at_is_missed_too() -> None:
    async def story(happened: Happened) -> None:
        reader = Reader(happened)
        happened.note(UP)
        await reader.read()
        happened.note(DROP, untold=99)
        assert [event.get("count") for event in (await reader.read()) + (await reader.read())] == [99, None]

    tell(story)


def test_a_flood_is_told_in_part_and_hides_nothing_else() -> None:
    async def story(happened: Happened) -> None:
        reader = Reader(happened)
        happened.note(UP)
        await reader.read()
        happened.note(UP)
        for _ in range(10 * TURN):
            happened.note(DROP)
        told = [*(await reader.read()), *(await reader.read())]
        assert [event["kind"] for event in told[:2]] == ["Missed", "SessionUp"]
        while len(told) < TURN + 2:
            told += await reader.read()
        assert len(told) == TURN + 2 and told[0]["count"] == 9 * TURN

    tell(story)


@pytest.mark.parametrize("known", ["1", "99999999999999999999", "9" * 5000, "-1", "x", "١", ""])
def test_a_number_nobody_has_told_reads_everything(known: str) -> None:
    async def story(happened: Happened) -> None:
        happened.note(UP)
        assert [event["kind"] for event in await Reader(happened, Last_Event_ID=known).read()] == ["SessionUp"]

    tell(story)


def test_numbers_of_a_later_life_are_larger_and_exact_in_any_json(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(earlier: Happened) -> None:
        for _ in range(1000):
            earlier.note(DROP, untold=99)  # a hundred thousand a second
        monkeypatch.setattr("time.time", lambda: earlier.began + 1)
        later = Happened()
        later.note(UP)
        assert [event["kind"] for event in await Reader(later, Last_Event_ID=str(earlier.last_id)).read()] == [
            "SessionUp"
        ]
        assert earlier.last_id < later.last_id < 1 << 53

    tell(story)


def test_a_reader_of_nothing_is_told_that_the_agent_is_alive_and_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALIVE", 0.01)

    async def story(happened: Happened) -> None:
        pieces = Feed(happened).events(Request("GET", "/happenings", "", {}))
        assert [await anext(pieces), await anext(pieces)] == [b"retry: 1000\n\n", b": alive\n\n"]
        happened.close()
        assert b"".join([piece async for piece in pieces]) in (b"", b": alive\n\n")

    tell(story)


def test_every_kind_can_be_told() -> None:
    """No field hides its kind, its time or its words."""
    kinds = [kind for kind in Happening.__subclasses__() if kind.__module__ == Happening.__module__]
    assert len(kinds) > 20
    for kind in kinds:
        assert not {field.encode_name for field in msgspec.structs.fields(kind)} & {"time", "kind", "said", "number"}, (
            kind
        )
