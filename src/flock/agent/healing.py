"""Keeps the kernel as the store says: desired, observed, diff, apply.

A pass runs at start, every PERIOD, and as soon as the kernel reports that something of ours changed.  Losses are
repaired at once.  Leftovers (links and routes of ours that no allocation explains) go after two observations, because
one may catch a change half-way; a link that leads into a living namespace is never taken for one, but shown.  A
committed allocation whose link and namespace are both gone (the host was rebooted) is dead: nothing is made for it, and
its addresses stay reserved until DEL, GC, or two observations and a grace time.
"""

import errno
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Collection, Iterable

from flock.agent.aggregates import Aggregates
from flock.agent.attached import Attached
from flock.agent.attachments import Attachments
from flock.agent.happened import Happened
from flock.agent.preparing import Preparing
from flock.agent.reconciling import Reconciler
from flock.core.errors import FlockError
from flock.core.happenings import Buried, Repaired
from flock.core.model import Allocation
from flock.core.naming import HOST_MAC, is_host_interface
from flock.core.whose import Whose
from flock.edge.kernel.compare import Difference, Kind, compare, orphans
from flock.edge.kernel.monitor import Event, Monitor
from flock.edge.kernel.observe import OUR_PROTOCOLS, Observed
from flock.edge.kernel.threads import Kernel
from flock.edge.netlink import wire as w

log = logging.getLogger("heal")

PERIOD = 30.0  # bounds what no event tells: replaced routes, and events lost in an overrun
SPACING = 1.0  # between passes that events ask for: a flood of them costs one pass a second
ORPHAN_OBSERVATIONS = 2
GONE = (errno.ENODEV, errno.ESRCH)  # what a repair is for may have gone meanwhile


class Healer(Reconciler):
    def __init__(
        self,
        *,
        attached: Attached,
        attachments: Attachments,
        kernel: Kernel,
        aggregates: Aggregates,
        preparing: Preparing,
        happened: Happened,
        grace: float,
    ) -> None:
        super().__init__(log, "healing failed", period=PERIOD, spacing=SPACING)
        self._attached = attached
        self._happened = happened
        self._attachments = attachments
        self._kernel = kernel
        self._aggregates = aggregates
        self._preparing = preparing
        self._grace = grace
        # Every link of ours that was ever reported, by index, and whether it has been up.
        self._pod_links: dict[int, bool] = {}
        self._orphans_seen: Counter[str] = Counter()
        self._dead_since: dict[str, float] = {}
        self._refusals: list[str] = []  # of the pass under way
        self.unrecorded: tuple[str, ...] = ()  # links that lead into a living namespace, and nobody knows of which pod

    @property
    def dead(self) -> Collection[str]:
        """Containers whose link and namespace are gone."""
        return self._dead_since.keys()

    def complaints(self) -> Iterable[str]:
        yield self.problem
        if self.unrecorded:
            yield f"links of pods that are not on record, and left alone: {', '.join(self.unrecorded)}"

    async def run(self) -> None:
        """Until cancelled."""
        monitor = Monitor(on_event=self._on_event, on_overrun=self.trigger)
        monitor.start()
        try:
            await super().run()
        finally:
            monitor.close()

    async def _reconcile(self) -> str:
        """One pass, of which the first needs rules in force."""
        try:
            return await self._pass(leftovers_after=ORPHAN_OBSERVATIONS)
        finally:
            self._notify()

    async def look(self) -> Observed:
        """What the kernel has, as others go by it: links, and aggregates.  KernelRefused."""
        observed = await self._kernel.observe()
        self._attached.note_links({link.index: name for name, link in observed.links.items()})
        self._pod_links |= {link.index: True for link in observed.links.values() if link.up}
        self._aggregates.take_stock(observed, self._attached.entries)
        return observed

    async def differences(self) -> list[Difference]:
        """What a pass would find now, for people to look at."""
        observed = await self._kernel.observe()
        return self._aggregates.differences(observed) + self._losses(observed) + self._leftovers(observed)

    async def repair_now(self) -> None:
        """A pass an operator asked for: leftovers go at the first sight."""
        async with self._alone:  # two passes at once would count one sight as two observations
            self._tell(await self._pass(leftovers_after=1))

    async def _pass(self, *, leftovers_after: int) -> str:
        """What was refused; one refusal keeps nothing else waiting."""
        observed = await self.look()
        self._refusals = []
        for difference in self._aggregates.differences(observed):
            if await self._attempt(difference, self._kernel.apply(list(difference.repair), ignore=GONE)):
                log.info("followed the NodeConfig %s", difference)
        await self._repair_losses(observed)
        await self._remove_leftovers(observed, after=leftovers_after)
        return "; ".join(self._refusals)

    async def _attempt(self, what: object, work: Awaitable[object]) -> bool:
        """False if it was refused, which keeps nothing else waiting."""
        try:
            await work
        except (FlockError, OSError) as error:
            self._refusals.append(f"{what}: {error}")
            return False
        return True

    # --- losses ---

    def _losses(self, observed: Observed) -> list[Difference]:
        return compare(self._attached.entries, observed, announced=self._aggregates.uncovered)

    async def _repair_losses(self, observed: Observed) -> None:
        missing: dict[str, Difference] = {}
        for difference in self._losses(observed):
            if difference.kind is Kind.LINK_MISSING:
                missing[difference.container_id] = difference
            elif not self._attached.is_busy(difference.container_id):
                await self._repair(difference)
        for container_id in list(self._dead_since):
            if container_id not in missing:
                del self._dead_since[container_id]
        for container_id, difference in missing.items():
            await self._attempt(difference, self._resurrect_or_bury(container_id, difference))
        for allocation in self._attachments.perhaps_half_rebuilt():
            await self._attempt(allocation.pod, self._attachments.rebuild(allocation.container_id))

    async def _repair(self, difference: Difference) -> None:
        if not await self._attempt(difference, self._mend(difference)):
            return
        if difference.kind in (Kind.LINK, Kind.SWITCH):
            self._preparing.trigger()  # who switched a link off may do so for all
        self._note(difference)

    def _note(self, repaired: Difference) -> None:
        self._happened.note(Repaired(kind=repaired.kind, what=repaired.what, pod=repaired.pod))

    async def _mend(self, difference: Difference) -> None:
        if difference.kind in (Kind.GATEWAY, Kind.SWITCH, Kind.LISTENS):
            ipv6 = difference.kind is not Kind.LISTENS
            await self._kernel.prepare_host_side(difference.what.split()[-1], ipv6=ipv6)
        await self._kernel.apply(list(difference.repair), ignore=GONE)

    async def _resurrect_or_bury(self, container_id: str, difference: Difference) -> None:
        allocation = self._attached.of(container_id)
        if allocation is None or self._attached.is_busy(container_id):
            return
        whose = await self._kernel.whose_is_at_its_path(allocation)
        if self._attached.of(container_id) is not allocation or self._attached.is_busy(container_id):
            return  # somebody came meanwhile
        if whose is Whose.ITS_OWN:
            self._dead_since.pop(container_id, None)
            if await self._attachments.rebuild(container_id):
                self._note(difference)
            return
        first_seen = self._dead_since.get(container_id)
        if first_seen is None:
            self._dead_since[container_id] = time.monotonic()
        elif first_seen + self._grace <= time.monotonic():
            self._happened.note(Buried(pod=allocation.pod, container=container_id))
            await self._attachments.detach(container_id)
            self._dead_since.pop(container_id, None)

    # --- leftovers ---

    def _leftovers(self, observed: Observed) -> list[Difference]:
        return orphans(observed, owner=self._owner, busy=self._busy)

    def _owner(self, name: str) -> Allocation | None:
        container_id = self._attached.owner_of(name)
        return None if container_id is None else self._attached.of(container_id)

    def _busy(self, name: str) -> bool:
        container_id = self._attached.owner_of(name)
        return container_id is not None and self._attached.is_busy(container_id)

    async def _remove_leftovers(self, observed: Observed, *, after: int) -> None:
        leftovers = self._leftovers(observed)
        self.unrecorded = tuple(sorted(d.what for d in leftovers if d.kind is Kind.UNRECORDED))
        found = {str(d): d for d in leftovers if d.kind is not Kind.UNRECORDED}
        self._orphans_seen = Counter({key: self._orphans_seen[key] + 1 for key in found})
        ripe = [d for key, d in found.items() if self._orphans_seen[key] >= after]
        links = [d for d in ripe if d.kind is Kind.ORPHAN_LINK]
        if await self._attempt("leftover links", self._kernel.delete_links([d.link_index for d in links])):
            for difference in links:
                self._note(difference)
        for difference in ripe:
            if difference.repair:
                await self._repair(difference)
        if len(ripe) < len(found):
            self.trigger()  # look again soon rather than in PERIOD

    # --- events ---

    def _on_event(self, event: Event) -> None:
        if event.kind == w.RTM_NEWLINK and event.index not in self._pod_links and is_host_interface(event.name):
            self._pod_links[event.index] = False
            if self._attached.owner_of(event.name) is None:
                self.trigger()  # nobody's ADD made it
        sound = event.index in self._pod_links and _is_sound(event)
        # What is told of a link that has not been up is from its ADD, though that may be over: events are read a moment
        # later than they come.
        making = event.kind == w.RTM_NEWLINK and not self._pod_links.get(event.index, True)
        if sound:
            self._pod_links[event.index] = True
        if self._attached.interface_at(event.index) is not None:
            if not (sound or making or event.kind == w.RTM_NEWADDR):
                self.trigger()
        elif event.index in self._pod_links:
            pass  # an ADD or a DEL at work
        elif event.protocol in OUR_PROTOCOLS:
            self.trigger()
        elif event.kind in (w.RTM_NEWLINK, w.RTM_NEWADDR, w.RTM_DELADDR):
            self._preparing.trigger()  # the node's own addresses, networks or uplinks
        if event.kind == w.RTM_DELLINK:
            self._pod_links.pop(event.index, None)
            self._attached.drop_link(event.index)


def _is_sound(event: Event) -> bool:
    """Does it tell of a link that is as it should be?"""
    return event.up and event.mac == HOST_MAC
