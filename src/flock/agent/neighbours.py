"""Looks at what kube-proxy does on this node, and says so where it goes around policies: rarely, and beside everything
else, for it changes with its own configuration alone."""

import asyncio
import logging
from collections.abc import Iterable

from flock.agent.aggregates import Aggregates
from flock.agent.reconciling import Reconciler
from flock.edge.kubeproxy import Harm, look

log = logging.getLogger("neighbours")

LOOK_EVERY = 120.0  # 40 ms of a core beside 5,000 Services


class Neighbours(Reconciler):
    """Nothing of ours depends on their tables: that they could not be looked at is minor."""

    def __init__(self, aggregates: Aggregates) -> None:
        super().__init__(log, "could not look at kube-proxy", minor=True, period=LOOK_EVERY, pauses=(LOOK_EVERY,) * 2)
        self.harm = Harm()
        self._aggregates = aggregates

    def complaints(self) -> Iterable[str]:
        return self.harm.ipvs, self.harm.masquerade

    async def _reconcile(self) -> str:
        if not self._aggregates.networks:
            return ""
        found = await asyncio.to_thread(look, self._aggregates.networks)
        for before, now in ((self.harm.ipvs, found.ipvs), (self.harm.masquerade, found.masquerade)):
            if now and now != before:
                log.error("%s", now)
        self.harm = found
        return ""
