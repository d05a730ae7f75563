"""The named points at which a test makes the agent die, or one of its steps fail."""

import signal

from flock.core.faults import Point
from harness import Node

STORE_STEPS = [Point.STORE_WRITE, Point.STORE_SYNC, Point.STORE_RENAME, Point.STORE_RENAMED]
STORE = [f"{point}@1" for point in STORE_STEPS]
JOURNAL = [f"{point}@1" for point in (Point.JOURNAL_WRITE, Point.JOURNAL_WRITTEN)]
FINISH = f"{Point.JOURNAL_FINISH}@1"  # of an ADD that was written ahead
ADD = [f"{point}@1" for point in Point if point.startswith("add.")]
DEL = [f"{point}@1" for point in Point if point.startswith("del.")]
ERRORS = ["ENOSPC", "EIO", "EMFILE", "ENOBUFS"]


def armed(step: str, action: str) -> str:
    """A step of the state file's is one of the verb's own where there is no journal."""
    point, _, count = step.partition("@")
    return f"{point}={action}@{count}" + (f",{Point.JOURNAL_MAKE}=EIO" if step in STORE else "")


def await_death(node: Node) -> None:
    assert node.agent is not None
    assert node.agent.wait(20) == -signal.SIGKILL
    node.agent = None
