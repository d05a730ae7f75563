"""Hears of dropped packets as soon as the kernel lets it, and notes them with the pods' names; of those that audited
policies would have dropped, too."""

import logging
import time
from collections.abc import Callable

from flock.agent.happened import Happened
from flock.core.dropsums import DropSums
from flock.core.errors import FlockError
from flock.core.happenings import Dropped
from flock.core.policy.dropping import NFLOG_GROUP
from flock.edge.nft.drops import Drops

log = logging.getLogger("policy")


class HeardDrops:
    def __init__(self, happened: Happened, pod_at: Callable[[int], str], *, group: int = NFLOG_GROUP) -> None:
        self.problem = ""  # why nothing is heard
        self.sums = DropSums()  # since the agent started
        self._group = group
        self._happened = happened
        self._pod_at = pod_at
        self._listener: Drops | None = None

    def start(self) -> None:
        """May be called again and again until it works: somebody else may listen where only one can."""
        if self._listener is not None:
            return
        try:
            self._listener = Drops(on_drop=self._note, pod_at=self._pod_at, group=self._group)
            self._listener.start()
            self.problem = ""
        except (FlockError, OSError) as error:  # enforcement does not depend on it
            if str(error) != self.problem:
                log.warning("drops are not shown problem=%s", error)
            self.problem = str(error)

    def _note(self, dropped: Dropped, untold: int) -> None:
        self.sums.add(dropped, untold=untold, at=time.time())
        self._happened.note(dropped, untold=untold)
