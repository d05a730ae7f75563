"""Forgetting flows of addresses that moved or went away, beside everything else and at leisure.

Nobody waits for it: a flow says by its mark which pod it was let through for, so that a left-over one is judged as new
(docs/policy-rules.md), and entries expire by themselves.  It is best effort, for rules and translations of others.  And
nobody could wait for it: a walk through a table that one pod has filled takes a quarter of a second, deleting what it
left behind seconds.

The table is listed once for all addresses asked for by then, searched here, and each entry found is deleted by its own
tuple.  A walk costs the kernel as much as it has room for, however little is in it: 9 ms of a core for a quarter of a
million places, more than all the rest that a pod's end takes.  So the first begins at once, and the next gathers.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterable

from flock.core.errors import FlockError
from flock.edge.kernel.connections import Connections, find

log = logging.getLogger("conntrack")

# After each datagram in which something was found, and deleted within a millisecond, other threads have their turn:
# calls of the runtime must not wait for what a dead pod left behind.
PAUSE = 0.005
# From one walk to the next: short beside the time for which an address rests, and a thousandth of a core at most.
SPACING = 10.0


class Sweeper:
    """A thread of its own, in the network namespace of whoever makes it."""

    def __init__(self, *, sysctl: str) -> None:
        self._sysctl = sysctl
        self._asked: set[bytes] = set()
        self._wanted: frozenset[bytes] = frozenset()  # what the walk under way looks for
        self._change = threading.Condition()
        self._ending = False
        self.walks = 0
        self._thread = threading.Thread(target=self._serve, name="conntrack", daemon=True)
        self._thread.start()

    def forget(self, addresses: Iterable[bytes]) -> None:
        """Flows from and to each address, soon."""
        with self._change:
            self._asked.update(addresses)
            self._change.notify()

    def spare(self, addresses: Iterable[bytes]) -> None:
        """Addresses that are somebody's again: flows that begin now stay."""
        with self._change:
            self._asked.difference_update(addresses)
            self._wanted = self._wanted.difference(addresses)

    def close(self) -> None:
        with self._change:
            self._ending = True
            self._asked, self._wanted = set(), frozenset()
            self._change.notify()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._asked or self._ending)
                if self._ending:
                    return
                self._wanted, self._asked = frozenset(self._asked), set()
            try:
                if _any_entries(self._sysctl):
                    self.walks += 1
                    self._walk()
            except (FlockError, OSError) as error:
                log.warning("flows were not forgotten problem=%s", error)
            except Exception:  # the next pods' flows are to be forgotten all the same
                log.exception("flows were not forgotten")
            with self._change:
                self._change.wait_for(lambda: self._ending, timeout=SPACING)

    def _walk(self) -> None:
        with Connections() as listing, Connections() as deleting:
            for datagram in listing.datagrams():
                if not (wanted := self._wanted):
                    return
                if found := find(datagram, wanted):
                    deleting.delete(found)
                    time.sleep(PAUSE)


def _any_entries(sysctl: str) -> bool:
    """Each walk lists the whole table; most nodes without rules on connection state have none."""
    with contextlib.suppress(OSError, ValueError), open(os.path.join(sysctl, "netfilter/nf_conntrack_count")) as file:  # noqa: PTH118
        return int(file.read()) > 0
    return False
