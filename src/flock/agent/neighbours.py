"""Looks at what others do on this node to pods' packets, and says so: a kube-proxy that goes around policies, a packet
filter that drops what they allow, a BIRD that takes routes for its own.  At what tells of itself, which is a chain at a
hook of the packet filter, soon; at the rest rarely, for it changes with somebody's configuration alone."""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from flock.agent.aggregates import Aggregates
from flock.agent.reconciling import Reconciler
from flock.core.foreignrules import Obstacle
from flock.edge.around import other_birds
from flock.edge.kubeproxy import Harm, look
from flock.edge.nft.foreign import obstacles

log = logging.getLogger("neighbours")

LOOK_EVERY = 120.0  # 40 ms of a core beside 5,000 Services
SETTLE = 1.0  # a firewall that starts makes many chains
CURE = "`flockctl doctor` has the cure"


class Neighbours(Reconciler):
    """Nothing of ours depends on their tables: that they could not be looked at is minor."""

    def __init__(self, aggregates: Aggregates, run_dir: Path = Path("/run/flock")) -> None:
        super().__init__(log, "could not look at others", minor=True, period=LOOK_EVERY, pauses=(LOOK_EVERY,) * 2)
        self.harm = Harm()
        self._said: tuple[str, ...] = ()  # of packet filters and BIRDs
        self._aggregates = aggregates
        self._run_dir = run_dir

    def complaints(self) -> Iterable[str]:
        return self.harm.ipvs, self.harm.masquerade, *self._said

    def heard(self) -> None:
        """Somebody has another chain at a hook."""
        self.look_again(SETTLE)

    async def obstacles(self) -> list[Obstacle]:
        """As they are now.  KernelRefused, OSError."""
        return await asyncio.to_thread(obstacles, self._aggregates.networks)

    async def _reconcile(self) -> str:
        if not self._aggregates.networks:
            return ""
        found = await asyncio.to_thread(look, self._aggregates.networks)
        birds = await asyncio.to_thread(lambda: [*other_birds(self._run_dir)])
        said = (
            *(f"{obstacle}; {CURE}" for obstacle in await self.obstacles()),
            *(f"another BIRD runs on this host's network, and removes routes: {bird}; {CURE}" for bird in birds),
        )
        for now in {found.ipvs, found.masquerade, *said} - {"", self.harm.ipvs, self.harm.masquerade, *self._said}:
            log.error("%s", now)
        self.harm, self._said = found, said
        return ""
