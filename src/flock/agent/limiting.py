"""No pod opens more connections than its share of what the kernel tracks.

When that table is full, every new connection of the node fails, whoever filled it.  So the number of entries is looked
at, whenever somebody could have come from there to what one pod may have; as long as it is below that, nobody has more.
Beyond, the table is listed and counted by pod, and whoever has opened more opens no further connection until it has
markedly less.  What it has goes on.

What a pod takes does not count: others open it, as many as they like, and would decide whether it is reached.

Not by nft's `ct count`: that walks all of a pod's connections for each new one (0.3 ms where there are 40,000, against
0.01), within the kernel, which would hand a tenant the means it is to be kept from.
"""

import asyncio
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path

from flock.agent.attached import Attached
from flock.agent.configured import Configured
from flock.agent.happened import Happened
from flock.agent.policies import Policies
from flock.agent.reconciling import Reconciler
from flock.core.happenings import Overfull, OverfullNoMore
from flock.edge.kernel.connections import opened_by_number

log = logging.getLogger("limit")

QUICKEST = 100_000 * (os.cpu_count() or 1)  # connections a second that a pod may open, one core as many as another
SOONEST, LATEST = 0.25, 2.0  # seconds from one look to the next; a pod oversteps by what it opens in the shorter
STALE = 30.0  # seconds after which a busy node is counted again, though it has not grown
CALM = 10  # times as long as a count took, nothing is counted: at most a tenth of a core goes into it
ENOUGH = 0.9  # of what it may have: below this a pod is let go on


class ConnectionLimit(Reconciler):
    """What the kernel refuses is shown where the rules are."""

    def __init__(
        self, *, attached: Attached, policies: Policies, configured: Configured, sysctl: Path, happened: Happened
    ) -> None:
        super().__init__(log, "could not limit connections", minor=True, pauses=(SOONEST, SOONEST))
        self._attached = attached
        self._happened = happened
        self._policies = policies
        self._configured = configured
        self._netfilter = f"{sysctl}/netfilter"
        self.overfull: dict[str, int] = {}  # connections of pods that open no further ones, by interface
        self._counted_at = float("-inf")
        self._took = 0.0
        self._total = 0  # entries at that time
        self._most = 0  # connections of the pod that had opened most of them

    def complaints(self) -> Iterable[str]:
        """Who is restricted, in words."""
        if pods := sorted(self._attached.pod_on(interface) for interface in self.overfull):
            shown = ", ".join(pods[:3]) + (f" and {len(pods) - 3} more" if len(pods) > 3 else "")
            limit = f"{self._limit()} (spec.limits.connectionsPerPod)"
            yield f"no further connections for {shown}: opened more than {limit}"

    async def _reconcile(self) -> str:
        limit, total = self._limit(), self._read("nf_conntrack_count")
        if not limit or total < limit * ENOUGH:
            await self._restrict({}, limit)
        elif (total > limit or self.overfull) and self._worth_counting(total, limit):
            started = time.monotonic()
            opened = self._policies.opened(await asyncio.to_thread(opened_by_number))
            self._counted_at, self._total = time.monotonic(), total
            self._took = self._counted_at - started
            self._most = max(opened.values(), default=0)
            await self._restrict(
                {i: n for i, n in opened.items() if n > limit * (ENOUGH if i in self.overfull else 1)}, limit
            )
        room = (limit - total) / QUICKEST if limit else LATEST
        self.look_again(min(max(room, SOONEST), LATEST))
        return ""

    def _worth_counting(self, total: int, limit: int) -> bool:
        """Could the pod that had most have come half-way to the limit since, or is it time to see who has fewer?"""
        ago = time.monotonic() - self._counted_at
        if ago < CALM * self._took:
            return False
        return bool(self.overfull) or ago > STALE or total - self._total >= (limit - self._most) / 2

    async def _restrict(self, overfull: dict[str, int], limit: int) -> None:
        await self._policies.limit(overfull.keys())  # first: what is told is in force
        for interface in overfull.keys() - self.overfull.keys():
            pod = self._attached.pod_on(interface)
            self._happened.note(Overfull(pod=pod, has=overfull[interface], limit=limit))
        for interface in self.overfull.keys() - overfull.keys():
            self._happened.note(OverfullNoMore(pod=self._attached.pod_on(interface)))
        self.overfull = overfull

    def _limit(self) -> int:
        config = self._configured.config
        configured = config.limits.connections_per_pod if config else None
        return self._read("nf_conntrack_max") // 2 if configured is None else configured

    def _read(self, name: str) -> int:
        """0 where connections are not tracked."""
        try:
            with open(f"{self._netfilter}/{name}", "rb", buffering=0) as file:
                return int(file.read())
        except (OSError, ValueError):
            return 0
