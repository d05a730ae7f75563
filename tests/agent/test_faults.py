"""The points at which a fault can be asked for: known names only, and the tests use every one of them."""

from typing import Any

from fault_steps import ADD, DEL, FINISH, JOURNAL, STORE

from flock.core.faults import Point
from harness import Node


def test_unknown_fault_points_are_refused(fresh: Node) -> None:
    fresh.start(fault="nonsense=kill", wait=False)
    assert fresh.agent is not None and fresh.agent.wait(20) == 1
    assert "FLOCK_FAULT" in fresh.log_text()
    fresh.agent = None


def steps_of(points: list[str]) -> set[str]:
    return {point.partition("@")[0] for point in points}


def test_every_fault_point_is_used_by_these_tests() -> None:
    used: set[Any] = steps_of([*ADD, *DEL, *JOURNAL, FINISH, *STORE]) | {
        "journal.make",
        "netlink.send",
        "netns.open",
        "netns.enter",
        "kernel.look",
    }
    assert used == {str(point) for point in Point}
