"""Hears of dropped packets as soon as the kernel lets it, and notes them with the pods' names."""

import logging
from collections.abc import Callable

from flock.agent.happened import Happened
from flock.core.errors import FlockError
from flock.core.happenings import Dropped
from flock.edge.nft.drops import Drop, Drops

log = logging.getLogger("policy")


class HeardDrops:
    """`pod_behind` names the pod behind an interface, given by its index."""

    def __init__(self, happened: Happened, pod_behind: Callable[[int], str]) -> None:
        self.problem = ""  # why nothing is heard
        self._happened = happened
        self._pod_behind = pod_behind
        self._listener: Drops | None = None

    def start(self) -> None:
        """May be called again and again until it works: somebody else may listen where only one can."""
        if self._listener is not None:
            return
        try:
            self._listener = Drops(on_drop=self._on_drop)
            self._listener.start()
            self.problem = ""
        except (FlockError, OSError) as error:  # enforcement does not depend on it
            if str(error) != self.problem:
                log.warning("drops are not shown problem=%s", error)
            self.problem = str(error)

    def _on_drop(self, drop: Drop) -> None:
        """The pod may be gone when somebody asks: it is named at once."""
        dropped = Dropped(
            what=drop.what,
            pod=self._pod_behind(drop.interface),
            source=drop.source,
            destination=drop.destination,
            protocol=drop.protocol,
            port=drop.port,
            policies=drop.policies,
        )
        self._happened.note(dropped, untold=drop.untold)
