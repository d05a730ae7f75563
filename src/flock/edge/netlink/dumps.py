"""Lists of what the kernel has: whole, or refused.

The kernel tells an object at a time and lets changes happen between; it marks a list that was changed under its hands
as interrupted, and such a list may lack objects that were there all along.  Whoever compares would take those for
lost, or for nobody's.
"""

import errno
import struct
from collections.abc import Callable
from typing import TypeVar

from flock.core.errors import KernelRefused

# Each attempt is independent.  On a node that changes this fast there is nothing to compare: later.
ATTEMPTS = 10

T = TypeVar("T")


def whole(attempt: Callable[[], tuple[T, bool]], what: str) -> T:
    """What `attempt` found, once it was not interrupted.  KernelRefused if it always was."""
    for _ in range(ATTEMPTS):
        found, interrupted = attempt()
        if not interrupted:
            return found
    raise KernelRefused(f"{what}: changed {ATTEMPTS} times while it was read")


def failure(body: bytes) -> int:
    """The error number in the message that ends a list, 0 if there is none: what does not exist has nothing in it."""
    number = -int(struct.unpack_from("=i", body)[0]) if len(body) >= 4 else 0
    return 0 if number == errno.ENOENT else number
