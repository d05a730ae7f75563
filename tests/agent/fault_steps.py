"""The named points at which a test makes the agent die, or one of its steps fail."""

import signal

from flock.core.faults import Point
from harness import Node

STORE_STEPS = [Point.STORE_WRITE, Point.STORE_SYNC, Point.STORE_RENAME, Point.STORE_RENAMED]
STORE = [f"{point}@1" for point in STORE_STEPS]
ADD = [f"{point}@1" for point in Point if point.startswith("add.")]
DEL = [f"{point}@1" for point in Point if point.startswith("del.")]
ERRORS = ["ENOSPC", "EIO", "EMFILE", "ENOBUFS"]


def armed(step: str, action: str) -> str:
    point, _, count = step.partition("@")
    return f"{point}={action}@{count}"


def await_death(node: Node) -> None:
    assert node.agent is not None
    assert node.agent.wait(20) == -signal.SIGKILL
    node.agent = None
