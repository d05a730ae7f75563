"""Looks at what kube-proxy does on this node, and says so where it goes around policies: rarely, and beside everything
else, for it changes with its own configuration alone."""

import asyncio
import contextlib
import logging

from flock.agent.nodeview import NodeView
from flock.core.errors import FlockError
from flock.edge.kubeproxy import Harm, look

log = logging.getLogger("neighbours")

LOOK_EVERY = 120.0  # 40 ms of a core beside 5,000 Services


class Neighbours:
    def __init__(self, view: NodeView) -> None:
        self.harm = Harm()
        self._view = view
        self._wake = asyncio.Event()

    def trigger(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wake.clear()
            if self._view.config is not None:
                await self.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._wake.wait()

    async def look(self) -> None:
        try:
            found = await asyncio.to_thread(look, self._view.aggregates)
        except (FlockError, OSError) as error:  # somebody else's tables: nothing of ours depends on them
            log.info("could not look at kube-proxy problem=%s", error)
            return
        for before, now in ((self.harm.ipvs, found.ipvs), (self.harm.masquerade, found.masquerade)):
            if now and now != before:
                log.error("%s", now)
        self.harm = found
