"""Named points at which tests make the agent die or fail.

Every step of ADD and DEL after which a crash leaves something different behind passes a point.  Unarmed, a point
costs one attribute test.  Armed from FLOCK_FAULT (`point=kill` or `point=ENOSPC`, several separated by commas),
reaching it ends the process as `kill -9` would, or raises that error; `point=ENOSPC@3` does so at the third time only,
`point=ENOSPC@3-7` from the third time to the seventh.
"""

import errno
import os
import signal
from collections import Counter
from enum import StrEnum

from flock.core.errors import FieldError


class Point(StrEnum):
    ADD_PICKED = "add.picked"  # addresses chosen in memory
    ADD_LINK = "add.link"  # the veth exists, bare
    ADD_PENDING = "add.pending"  # marked pending, the kernel untouched
    ADD_RULES = "add.rules"  # the pod's rules are in force
    ADD_HOST_SIDE = "add.host-side"  # the host side is up and routed
    ADD_POD_SIDE = "add.pod-side"  # the pod side is complete
    ADD_COMMITTED = "add.committed"  # the committed entry is on disk, nobody was told
    DEL_PENDING = "del.pending"  # marked pending, the kernel untouched
    DEL_UNLINKED = "del.unlinked"  # the link is gone
    DEL_FORGOTTEN = "del.forgotten"  # the entry is gone from the disk, nobody was told
    JOURNAL_MAKE = "journal.make"  # before there is a journal to write to
    JOURNAL_WRITE = "journal.write"  # before changes are written to the journal
    JOURNAL_WRITTEN = "journal.written"  # they are there, whether flushed or not
    JOURNAL_FINISH = "journal.finish"  # before a change that was written ahead is noted as finished
    STORE_WRITE = "store.write"  # before the state file is written whole
    STORE_SYNC = "store.sync"  # written, not yet durable
    STORE_RENAME = "store.rename"  # durable under its temporary name
    STORE_RENAMED = "store.renamed"  # in place, the directory not yet durable
    NETLINK = "netlink.send"  # before a batch of requests
    NETNS = "netns.open"  # before a pod's namespace is opened
    NETNS_ENTER = "netns.enter"  # before a thread steps into it
    LOOK = "kernel.look"  # before all that is ours in the kernel is read


class Faults:
    """What is armed.  One instance, `faults`, exists for the process; `arm` is called by main alone."""

    def __init__(self) -> None:
        self._armed: dict[Point, str] = {}
        self._reached: Counter[Point] = Counter()
        self._times: dict[Point, range] = {}
        self._doomed: tuple[int, ...] = ()

    def arm(self, text: str, *, along: int | None = None) -> None:
        """`along`: a process that dies with this one, and first."""
        self._doomed = (os.getpid(),) if along is None else (along, os.getpid())
        for item in filter(None, (part.strip() for part in text.split(","))):
            point, _, what = item.partition("=")
            action, _, count = what.partition("@")
            if point not in list(Point):
                raise FieldError("FLOCK_FAULT", f"unknown point {point!r}")
            if action != "kill" and not hasattr(errno, action):
                raise FieldError("FLOCK_FAULT", f"{action!r} is neither `kill` nor an errno name")
            first, _, last = count.partition("-")
            if count and not (first.isdecimal() and (last or first).isdecimal()):
                raise FieldError("FLOCK_FAULT", f"{what!r}: {count!r} is not a number of times")
            self._armed[Point(point)] = action
            if count:
                self._times[Point(point)] = range(int(first), int(last or first) + 1)

    def reach(self, point: Point) -> None:
        if not self._armed:
            return
        action = self._armed.get(point)
        if action is None:
            return
        self._reached[point] += 1
        if point in self._times and self._reached[point] not in self._times[point]:
            return
        if action == "kill":
            for process in self._doomed:
                os.kill(process, signal.SIGKILL)
        number = getattr(errno, action)
        raise OSError(number, os.strerror(number), f"(injected at {point})")


faults = Faults()
