"""Making pods' links, in a thread of its own, and from the moment on at which a pod is known.

What has to come before a link is up, the pod's rules, takes a thousandth of a second of its own.  So a link is begun,
down, while those are put into force, and brought up by the same thread.  In a burst that never pauses.
Which namespace the pod's is is told as soon as that is known, for whoever writes it down meanwhile.
"""

import asyncio
import functools
from pathlib import Path
from typing import NamedTuple

from flock.core.model import Allocation
from flock.core.whose import Identity
from flock.edge.ending import outlast
from flock.edge.kernel.podlink import Announced, Attached, Bare, Claimed, Identified, PodLinks
from flock.edge.worker import Worker, tell, unheard

# That wait to be brought up.  Each has a descriptor open; in a burst of more, the rest is made when it has its rules.
BEGUN = 64


class Begun(NamedTuple):
    """A link that is being made: in here when that is `done`, unless it failed.  `identified` is told before
    that, or never: where the namespace could not be entered, or the link was given up."""

    made: list[Bare]
    identified: "asyncio.Future[Identity]"
    done: "asyncio.Future[None]"


class Making:
    """For the event loop's thread.  `thread` and its `links` are for what else is to be done soon, too."""

    def __init__(self, *, sysctl: Path) -> None:
        self.thread, self.links = Worker("attach"), PodLinks(sysctl=sysctl)
        self._begun = 0

    def begin(self, allocation: Allocation, claimed: Claimed) -> Begun | None:
        """A pod's link, down, beside whatever has to be done before it may come up.  `attach` or `give_up` is next.
        None: too many are begun, and it is for `attach` alone."""
        if self._begun >= BEGUN:
            return None
        self._begun += 1
        made: list[Bare] = []
        identified: asyncio.Future[Identity] = asyncio.get_running_loop().create_future()
        done = self.thread.run(self._create, allocation, claimed, functools.partial(tell, identified), made)
        done.add_done_callback(unheard)
        return Begun(made, identified, done)

    async def give_up(self, begun: Begun) -> None:
        """Return when nobody makes it any more; what was made is for whoever deletes links."""
        self._begun -= 1
        begun.identified.cancel()
        try:
            await outlast(begun.done)
        finally:
            for bare in begun.made:
                bare.pod.close()

    async def attach(
        self, allocation: Allocation, begun: Begun | None, *, announced: Announced, claimed: Claimed
    ) -> Attached:
        """What was begun goes on in the thread that makes it, without asking here again.  Who is cancelled hears so
        when nobody makes it any more: what is undone then is not made after that."""
        making: asyncio.Future[Attached | None]
        if begun is None:
            making = self.thread.run(self.links.attach, allocation, announced=announced, claimed=claimed)
        else:
            self._begun -= 1
            making = self.thread.run(self._go_on, allocation, begun.made, announced=announced)
        making.add_done_callback(unheard)
        try:
            await asyncio.wait([making])
        finally:
            if begun is not None:  # nobody waits for the link any more, or it is known, or will never be
                begun.identified.cancel()
            await outlast(making)
        if begun is not None:
            await begun.done  # raises what went wrong
        link = making.result()
        assert link is not None
        return link

    def _create(self, allocation: Allocation, claimed: Claimed, identified: Identified, made: list[Bare]) -> None:
        made.append(self.links.create(allocation, claimed, identified))

    def _go_on(self, allocation: Allocation, made: list[Bare], *, announced: Announced) -> Attached | None:
        """None: it could not be made."""
        return self.links.bring_up(allocation, made[0], announced=announced) if made else None
