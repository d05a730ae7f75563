"""What is known of nodes, and what of it a page is told: the latest, once, and never more than is kept."""

import json
from typing import Any

import pytest

from flock.view import picture as module
from flock.view.picture import Picture, Reader


def new() -> Picture:
    return Picture(origin="played", name="here", live=True)


def told(reader: Reader) -> list[tuple[str, Any]]:
    """Events, as a page reads them."""
    events = []
    for event in reader.news():
        first, second, *rest = event.decode().split("\n")
        assert rest == ["", ""]
        events.append((first.removeprefix("event: "), json.loads(second.removeprefix("data: "))))
    return [event for event in events if event[0] != "history"]


def status(**fields: Any) -> bytes:
    return json.dumps({"node": "n1", "ready": True, "at": 1.5} | fields, indent=2).encode()


def test_a_new_reader_is_told_everything_and_then_only_what_changed() -> None:
    picture = new()
    picture.status("n1", status(), at=10)
    picture.expect("n2", "not asked yet")
    picture.router("r1", b'{"name": "r1"}')
    picture.fabric(["n1-r1"])
    picture.happened("n1", 7, {"kind": "NodeReady", "time": 9.0, "node": "what it says"})
    reader = Reader(picture)
    assert told(reader) == [
        ("node", {"name": "n1", "reached": True, "problem": "", "seen": 10.0, "status": json.loads(status())}),
        ("node", {"name": "n2", "reached": False, "problem": "not asked yet", "seen": None, "status": None}),
        ("router", {"name": "r1"}),
        ("fabric", {"cut": ["n1-r1"]}),
        ("happenings", [{"kind": "NodeReady", "time": 9.0, "node": "n1", "number": 7}]),
    ]
    assert told(reader) == []
    picture.lost("n1", "gone away")
    assert [event["problem"] for _, event in told(reader)] == ["gone away"]
    assert len(told(Reader(picture))) == 5  # another page gets all of it


def test_a_status_that_only_says_another_time_is_no_change_but_says_when_it_was_seen() -> None:
    picture = new()
    picture.status("n1", status(at=1), at=10)
    reader = Reader(picture)
    told(reader)
    picture.status("n1", status(at=2), at=12)
    assert told(reader) == [("seen", {"n1": 12})]
    [(_, node)] = told(Reader(picture))
    assert node["seen"] == 12 and node["status"]["at"] == 2


def test_many_changes_are_told_once() -> None:
    picture = new()
    reader = Reader(picture)
    for number in range(50):
        picture.status("n1", status(policies=number), at=number)
    [(_, node)] = told(reader)
    assert node["status"]["policies"] == 49


def test_who_does_not_answer_keeps_what_was_known_and_since_when() -> None:
    picture = new()
    picture.status("n1", status(), at=10)
    picture.lost("n1", "connection refused")
    picture.lost("n1", "connection refused")
    [(_, node)] = told(Reader(picture))
    assert (node["reached"], node["problem"], node["seen"]) == (False, "connection refused", 10)
    assert node["status"]["ready"]
    picture.status("n1", status(), at=20)
    [(_, node)] = told(Reader(picture))
    assert (node["reached"], node["problem"], node["seen"]) == (True, "", 20)


def test_a_node_that_is_gone_is_told_as_such_and_may_come_back() -> None:
    picture = new()
    reader = Reader(picture)
    picture.status("n1", status(), at=10)
    picture.happened("n1", 1, {"kind": "Attached"})
    told(reader)
    picture.gone("n1")
    assert told(reader) == [("gone", {"name": "n1"})]
    picture.status("n1", status(), at=20)
    picture.happened("n1", 2, {"kind": "Attached"})
    assert [kind for kind, _ in told(reader)] == ["node", "happenings"]
    assert [kind for kind, _ in told(Reader(picture))] == ["node", "happenings"]


def test_drops_push_out_drops_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_EACH", 3)
    picture = new()
    picture.happened("n1", 0, {"kind": "SessionDown"})
    for number in range(1, 10):
        picture.happened("n1", number, {"kind": "Dropped"})
    [(_, rows)] = told(Reader(picture))
    assert [row["number"] for row in rows] == [0, 7, 8, 9]


def test_a_reader_that_was_away_too_long_is_told_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_EACH", 3)
    picture = new()
    reader = Reader(picture)
    for number in range(2):
        picture.happened("n1", number, {"kind": "Attached"})
    assert [row["number"] for row in told(reader)[0][1]] == [0, 1]
    for number in range(2, 12):
        picture.happened("n1", number, {"kind": "Attached"})
    assert [row["number"] for row in told(reader)[0][1]] == [9, 10, 11]


def test_of_too_much_the_busiest_nodes_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 4000)
    picture = new()
    for number in range(5):
        picture.happened("quiet", number, {"kind": "Attached"})
    for number in range(1000):
        picture.happened("busy", number, {"kind": "Dropped"})
    rows = [row for _, batch in told(Reader(picture)) for row in batch]
    assert [row["number"] for row in rows if row["node"] == "quiet"] == [*range(5)]
    busy = [row["number"] for row in rows if row["node"] == "busy"]
    assert busy == [*range(1000 - len(busy), 1000)] and 20 < len(busy) < 80


@pytest.mark.parametrize("answer", [b"", b"[]", b"{", b'{"a": "\xff"}', b"<html>", b'{"a":"x\ny"}', b"[" * 100_000])
def test_what_is_no_status_is_refused_and_changes_nothing(answer: bytes) -> None:
    picture = new()
    picture.status("n1", status(), at=10)
    with pytest.raises(ValueError, match=r"JSON"):
        picture.status("n1", answer, at=20)
    [(_, node)] = told(Reader(picture))
    assert node["seen"] == 10


def test_who_comes_later_is_told_how_many_there_were_after_those_that_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "KEPT_EACH", 2)
    picture = new()
    for second in (100, 100, 100, 102):
        picture.happened("n1", 1, {"kind": "Dropped", "time": second + 0.5})
    reader = Reader(picture)
    *_, happenings, history = reader.news()
    assert b"event: happenings" in happenings
    kind, _, data = history.decode().partition("\n")
    assert kind == "event: history"
    told_of = json.loads(data.removeprefix("data: "))
    assert (told_of["from"], told_of["drops"]) == (100, [3, None, 1])
    picture.happened("n1", 2, {"kind": "Dropped", "time": 103})
    assert len([*reader.news()]) == 1  # which it counts itself
