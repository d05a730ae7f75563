"""Is a network namespace the one that a pod was attached in?  Decided here and nowhere else.

Runtimes use paths again, and the kernel inodes: the namespace after a dead pod's may have both, and after a reboot the
numbers are given out in the same order.  A cookie is given out once in the life of a kernel, which its boot's id tells
from any other.  So a namespace is known by all three together.  What one side does not know is not compared: a kernel
before 5.14 tells no cookie, and entries of earlier versions have the inode alone.
"""

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from flock.core.model import Allocation


class Identity(NamedTuple):
    """What tells a namespace that exists from all others there were and will be.  Fields as an entry records them."""

    netns_id: str
    netns_cookie: int
    boot_id: str


class Whose(Enum):
    ITS_OWN = "the namespace the pod was attached in"
    ANOTHERS = "another one, or none at all"
    UNTOLD = "nobody recorded which one it was attached in: the original, or an ADD or DEL under way"


def whose(allocation: "Allocation", found: Identity | None) -> Whose:
    """`found` at the path where the pod's namespace should be; None: there is none."""
    if found is None:
        return Whose.ANOTHERS
    if not allocation.netns_id:
        return Whose.UNTOLD
    recorded = Identity(allocation.netns_id, allocation.netns_cookie, allocation.boot_id)
    differs = any(was and now and was != now for was, now in zip(recorded, found, strict=True))
    return Whose.ANOTHERS if differs else Whose.ITS_OWN
