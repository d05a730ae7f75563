"""The last packets that our rules dropped, as far as the kernel tells of them, with the pods' names."""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from flock.core.errors import FlockError
from flock.edge.nft.drops import Drop, Drops

log = logging.getLogger("policy")

REMEMBERED = 1000


class RememberedDrops:
    """`pod_behind` names the pod behind an interface, given by its index."""

    def __init__(self, pod_behind: Callable[[int], str]) -> None:
        self.problem = ""  # why nothing is heard
        self._pod_behind = pod_behind
        self._told = 0
        self._drops: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
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

    def after(self, number: int) -> list[dict[str, Any]]:
        return [drop for drop in self._drops if drop["number"] > number]

    def _on_drop(self, drop: Drop) -> None:
        self._told += 1
        self._drops.append(
            {
                "number": self._told,
                "at": time.time(),
                "what": drop.what,
                "pod": self._pod_behind(drop.interface),
                "source": str(drop.source or ""),
                "destination": str(drop.destination or ""),
                "protocol": drop.protocol,
                "port": drop.port,
                "policies": drop.policies,
            }
        )
