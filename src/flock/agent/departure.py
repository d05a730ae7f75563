"""Whether this node is going down, by whichever of two signs comes first; BIRD's pod is told.

The kubelet that ends pods for a shutdown says so in the Node object, before anything can be seen on the host; where it
does not (that is a setting of its own), the host's units tell.  Then anycast is withdrawn while sessions are up, and
BIRD, which else ends so that routers keep its routes, may end for good: a file in its directory says that.  An earlier
life's file goes when this one knows better.
"""

import contextlib
import logging
from pathlib import Path

from flock.agent.reconciling import Reconciler
from flock.core.kinds import NODES
from flock.edge import inotify
from flock.edge.bird import room
from flock.edge.cache import Cache
from flock.edge.hostunits import HostUnits

log = logging.getLogger("agent")

UNWATCHED = 1.0  # where the kernel gives no notice: half of what a shutdown takes until the network goes
LOOK_AGAIN = 30.0  # the directory of units may be replaced, which ends its notices


class Departure(Reconciler):
    def __init__(self, *, cache: Cache, units: HostUnits, bird_room: Path) -> None:
        super().__init__(log, "could not tell BIRD")  # then routers keep the routes for a while, no more than that
        self._cache = cache
        self._units = units
        self._mark = bird_room / room.GOING_DOWN
        self._notices = inotify.Notices(self.trigger)
        self._marked: bool | None = None

    @property
    def begun(self) -> bool:
        node = self._cache.own(NODES)
        return self._units.going_down or (node is not None and node.shutting_down)

    async def run(self) -> None:
        """Until cancelled."""
        with contextlib.closing(self._notices):
            await super().run()

    async def _reconcile(self) -> str:
        """Watched before it is looked at, so that no change falls between."""
        watched = self._notices.watch(self._units.directory, inotify.CREATE | inotify.MOVED_TO | inotify.DELETE)
        self.look_again(LOOK_AGAIN if watched else UNWATCHED)
        if self._units.look():
            self._notify()
        if (begun := self.begun) != self._marked:
            self._mark_for_bird(begun)
            self._marked = begun
        return ""

    def _mark_for_bird(self, begun: bool) -> None:
        if begun:
            self._mark.parent.mkdir(mode=0o755, exist_ok=True)
            self._mark.touch(mode=0o644)
            log.warning("this node is going down")
        else:
            self._mark.unlink(missing_ok=True)
