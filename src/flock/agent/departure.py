"""Whether this node is going down, by whichever of two signs comes first; BIRD's pod is told.

The kubelet that ends pods for a shutdown says so in the Node object, before anything can be seen on the host; where it
does not (that is a setting of its own), the host's units tell.  Then anycast is withdrawn while sessions are up, and
BIRD, which else ends so that routers keep its routes, may end for good: a file in its directory says that.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from flock.edge.hostunits import HostUnits
from flock.edge.source import Source

log = logging.getLogger("agent")

MARK = "going-down"  # in BIRD's directory; deploy/bird.yaml looks for it before BIRD ends


class Departure:
    def __init__(self, *, source: Source, units: HostUnits, bird_room: Path) -> None:
        self._source = source
        self._units = units
        self._mark = bird_room / MARK
        self._listeners: list[Callable[[], None]] = []
        self._told: bool | None = None

    def subscribe(self, listener: Callable[[], None]) -> None:
        """For changes that the source of objects does not report."""
        self._listeners.append(listener)

    @property
    def begun(self) -> bool:
        node = self._source.node
        return self._units.going_down or (node is not None and node.shutting_down)

    async def run(self) -> None:
        """Until cancelled."""
        self.tell_bird()
        await self._units.run(self._changed)

    def _changed(self) -> None:
        self.tell_bird()
        for listener in self._listeners:
            listener()

    def tell_bird(self) -> None:
        """The mark on disk follows what is known; an earlier life's goes when this one knows better."""
        if self.begun == self._told:
            return
        try:
            if self.begun:
                log.warning("this node is going down")
                self._mark.parent.mkdir(mode=0o755, exist_ok=True)
                self._mark.touch(mode=0o644)
            else:
                self._mark.unlink(missing_ok=True)
        except OSError as error:  # then routers keep the routes for a while, no more than that
            log.error("could not tell BIRD problem=%s", error)
        self._told = self.begun
