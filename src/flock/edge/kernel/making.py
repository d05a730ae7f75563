"""Making pods' links: in a process of its own, from the moment on at which a pod is known.

What has to come before a link is up, the pod's rules, takes a thousandth of a second of its own.  So a link is begun,
down, while those are put into force, and brought up by the same process, which never pauses in a burst.
Which namespace the pod's is is told as soon as that is known, for whoever writes it down meanwhile.

What that process does not make, for whatever reason, is made from its beginning in a thread of the agent: that one
knows who has what stands in the way, and says what is wrong.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from flock.core.model import Allocation
from flock.core.wiring import Wiring
from flock.edge.ending import outlast, settled
from flock.edge.kernel.linkmessages import Announced
from flock.edge.kernel.linkprocess import BEGUN, Begun, LinkProcess
from flock.edge.kernel.podlink import Attached, Claimed, PodLinks
from flock.edge.kernel.transactions import Transactions
from flock.edge.worker import Worker, unheard

log = logging.getLogger("links")

SILENT = 5.0  # seconds in which it answers nothing: it is ended then, and what it was asked is done here
LOOK_EVERY = 1.0


class Making:
    """For the event loop's thread.  `thread` and its `links` are for what else is to be done soon, too."""

    def __init__(self, *, sysctl: Path) -> None:
        self.thread, self.links = Worker("attach"), PodLinks(sysctl=sysctl)
        self._process: LinkProcess | None = None
        self.transactions = Transactions(lambda: self._process)

    async def run(self, lock: int) -> None:
        """Returns when the process has ended: whoever keeps it begins it anew.  `lock`: the agent's, of what no other
        may work with while a link is made."""
        self._process = process = LinkProcess(sysctl=self.links.sysctl, lock=lock, rules=self.transactions.ready())
        try:
            while not process.gone.done():
                await asyncio.wait([process.gone], timeout=LOOK_EVERY)
                if process.busy_for > SILENT:
                    log.error("the process that makes links does not answer, ending it seconds=%.0f", process.busy_for)
                    process.kill()
                    break
        finally:
            await process.end()
            self._process = None

    @property
    def busy_for(self) -> float:
        return self._process.busy_for if self._process is not None else 0.0

    def begin(self, netns: str) -> Begun | None:
        """A pod's link, which is made beside whatever has to be done before it may come up: its `create` is next, and
        `attach`, or `give_up`.  None: too many are begun, or there is no process, and it is for `attach` alone."""
        process = self._process
        return process.begin(netns) if process is not None and process.begun < BEGUN else None

    @contextlib.asynccontextmanager
    async def begun(self, netns: str) -> AsyncIterator[Begun | None]:
        """The same; what is not attached in the end is given up."""
        begun = self.begin(netns)
        try:
            yield begun
        finally:
            if begun is not None and not begun.decided:
                await self.give_up(begun)

    async def give_up(self, begun: Begun) -> None:
        """Return when nobody makes it any more; what was made is for whoever deletes links."""
        begun.drop()
        if begun.created:
            await outlast(begun.up)

    async def attach(
        self, allocation: Allocation, begun: Begun | None, *, announced: Announced, claimed: Claimed
    ) -> Attached:
        """Who is cancelled hears so when nobody makes it any more: what is undone then is not made after that."""
        if begun is None and self._process is not None and (begun := self._process.begin(allocation.netns)) is not None:
            begun.create(Wiring.of(allocation))
        if begun is not None:
            begun.bring_up(announced)
            await outlast(begun.up)
            if (link := begun.up.result()) is not None:
                return link
        making = self.thread.run(self.links.attach, allocation, announced=announced, claimed=claimed)
        making.add_done_callback(unheard)
        return await settled(making)
