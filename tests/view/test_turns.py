"""Who is followed and who is visited when there are more nodes than places: nobody waits for ever."""

from flock.view.turns import LOOKED, PAUSE, Turns

NODES = {f"n{number:02}" for number in range(20)}


def some(places: int, nodes: set[str]) -> Turns:
    turns = Turns(places)
    turns.know(nodes)
    return turns


def taken(turns: Turns, now: float, count: int) -> list[str | None]:
    return [turns.take(now) for _ in range(count)]


def test_with_a_place_for_everybody_all_are_followed() -> None:
    turns = some(4, {"a", "b", "c"})
    assert taken(turns, 0, 4) == ["a", "b", "c", None]
    assert all(turns.stays(name, 1000) for name in "abc")


def test_everybody_has_a_turn_and_the_longest_unseen_is_next() -> None:
    turns = some(2, NODES)
    seen = []
    for now in range(0, 200, 10):
        name = turns.take(now)
        assert name and not turns.stays(name, now)
        turns.done(name, now)
        seen.append(name)
    assert {*seen} == NODES and len(seen) == len(NODES)
    assert turns.take(1000) == seen[0]


def test_who_is_looked_at_is_next_and_stays_until_nobody_looks() -> None:
    turns = some(4, NODES)
    turns.look(("n19", "unknown"), 100)
    assert turns.take(100) == "n19"
    assert turns.stays("n19", 100) and turns.stays("n19", 100 + LOOKED - 1)
    turns.look(("n19",), 150)
    assert turns.stays("n19", 100 + LOOKED + 1)
    assert not turns.stays("n19", 150 + LOOKED + 1)


def test_half_of_the_places_stay_with_those_in_turn() -> None:
    turns = some(4, NODES)
    turns.look(tuple(sorted(NODES)), 0)
    followed = [name for name in sorted(NODES) if turns.stays(name, 1)]
    assert followed == ["n18", "n19"]


def test_one_that_fails_is_not_tried_all_the_time() -> None:
    turns = some(4, {"a"})
    assert taken(turns, 10, 2) == ["a", None]
    turns.done("a", 11)
    assert turns.take(11 + PAUSE / 2) is None
    assert turns.take(11 + PAUSE) == "a"


def test_nodes_come_and_go() -> None:
    turns = some(4, {"a", "b"})
    assert turns.take(0) == "a"
    assert turns.know({"b", "c"}) == {"a"}
    assert not turns.stays("a", 0)
    assert not turns.done("a", 1)
    assert taken(turns, 1, 3) == ["b", "c", None]
    assert turns.know({"b", "c"}) == set()
