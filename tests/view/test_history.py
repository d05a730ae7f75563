"""The last hour in numbers: what was counted per second, and what all nodes' statuses told together."""

import math
from typing import Any

import pytest

from flock.view.history import HOUR, History


def status(prefixes: int, *, p50: float | None = None) -> dict[str, Any]:
    sessions = [{"peer": "r1", "imported": prefixes - 1, "exported": 1}]
    return {"sessions": sessions, "latencies": {"ADD": {"count": int(p50 is not None), "p50": p50, "p95": None}}}


def test_drops_and_adds_are_counted_by_the_second() -> None:
    history = History()
    for kind, time in (("Dropped", 10.1), ("Dropped", 10.9), ("Attached", 12.0), ("SessionDown", 13.0)):
        history.happened(kind, time)
    assert history.of_an_hour() == {
        "from": 10,
        "drops": [2, None, None],
        "adds": [None, None, 1],
        "p50": [None] * 3,
        "prefixes": [None] * 3,
    }


def test_what_is_older_than_an_hour_is_forgotten_and_does_not_come_back() -> None:
    history = History()
    history.happened("Dropped", 10)
    history.happened("Dropped", 10 + HOUR)
    history.happened("Dropped", 10)
    history.happened("Dropped", 9 + HOUR)  # told late by another node
    told = history.of_an_hour()
    assert (told["from"], told["drops"]) == (9 + HOUR, [1, 1])


def test_prefixes_are_those_of_all_nodes_and_the_latency_is_the_middle_one() -> None:
    history = History()
    for name, prefixes, p50 in (("a", 10, 0.001), ("b", 20, 0.003), ("c", 30, 0.5), ("d", 5, None)):
        history.told(name, status(prefixes, p50=p50), at=100)
    assert (history.of_an_hour()["prefixes"], history.of_an_hour()["p50"]) == ([65], [3.0])
    history.forget("c")
    history.told("a", status(11, p50=0.001), at=101)
    assert (history.of_an_hour()["prefixes"], history.of_an_hour()["p50"]) == ([65, 36], [3.0, 3.0])


@pytest.mark.parametrize("time", [None, "12", -1, math.inf, math.nan, 1e300, [], True])
def test_times_that_are_none_count_for_nothing(time: object) -> None:
    history = History()
    history.happened("Dropped", 5)
    history.happened("Dropped", time)
    told = history.of_an_hour()
    assert [value for value in told["drops"] if value][-1] == 1


@pytest.mark.parametrize("at", [-1.0, math.nan, 4e9, 1e300])
def test_a_status_of_a_time_that_is_none_counts_for_nothing(at: float) -> None:
    history = History()
    history.told("n1", status(7), at=at)
    assert history.of_an_hour()["prefixes"] == [None]


@pytest.mark.parametrize(
    "known",
    [
        None,
        [],
        {"sessions": "many"},
        {"sessions": [{"imported": "x"}]},
        {"sessions": [{"imported": 10**400}]},
        {"latencies": 3},
    ],
)
def test_a_status_that_says_something_else_counts_for_nothing(known: object) -> None:
    history = History()
    history.told("n1", known, at=5)
    assert history.of_an_hour()["prefixes"] == [None]
