"""Attaching and detaching containers: the one place that changes who is attached, the address book and pods' links.

Attach:  pick addresses -> note `pending` -> rules -> link, addresses, routes, up -> `committed` on disk.
Detach:  note `pending` -> link deleted -> rules gone -> entry gone from the disk, addresses cooling.

So whatever dies when, a `committed` entry is in the kernel (invariant 5), an address never reaches the kernel before
it is on record (invariant 1), and what is `pending` is finished or undone by the next ADD, DEL or start (invariant 2).
A note outlives the agent and not the machine, and neither does anything of a half-made pod: one flush is enough.  It
need not wait for the kernel, for what it writes says that it is unfinished until the link is up.
Work on one container is serialised by its lock; everything here is safe to repeat (invariant 6).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec

from flock.agent.aggregates import Aggregates
from flock.agent.attached import Attached
from flock.agent.happened import Happened
from flock.agent.podinfo import Asked, Learner, PodInfo
from flock.agent.policies import Policies
from flock.agent.preparing import Preparing
from flock.core import happenings
from flock.core.errors import AddressInUse, AnotherNamespaces, Code, FlockError, TryAgain
from flock.core.faults import Point, faults
from flock.core.ipam import Ipam
from flock.core.model import Allocation, Pod
from flock.core.naming import format_mac, pod_mac
from flock.core.reserving import Named, reserve
from flock.core.whose import Identity, Whose
from flock.core.wiring import Wiring
from flock.edge.kernel.linkprocess import Begun
from flock.edge.kernel.podlink import Attached as Link
from flock.edge.kernel.threads import Kernel

log = logging.getLogger("attach")

# Taking an address over needs the lock of the sandbox that holds it, which a DEL may have for some time.
TAKE_OVER_PATIENCE = 5.0


def _committed(pending: Allocation, netns: Identity) -> Allocation:
    return msgspec.structs.replace(pending, state="committed", **netns._asdict())


class Attachments:
    def __init__(
        self,
        *,
        attached: Attached,
        learner: Learner,
        ipam: Ipam,
        kernel: Kernel,
        preparing: Preparing,
        aggregates: Aggregates,
        policies: Policies,
        happened: Happened,
    ) -> None:
        self._attached = attached
        self._learner = learner
        self._happened = happened
        self._ipam = ipam
        self._kernel = kernel
        self._preparing = preparing
        self._aggregates = aggregates
        self._policies = policies
        self._detaching: set[asyncio.Task[None]] = set()  # take-overs that nobody waits for any more

    # --- attaching ---

    async def attach(self, asked: Asked) -> Allocation:
        async with self._attached.hold(asked.container_id):
            known = self._attached.of(asked.container_id)
            if known is None:
                async with self._kernel.begun(asked.netns) as begun:
                    return await self._attach_new(asked, await self._learner.learn(asked), begun)
            if known.ifname != asked.ifname:
                raise FlockError(
                    f"CNI_IFNAME: container {asked.container_id} is attached as {known.ifname}, not {asked.ifname}",
                    details="flock makes one attachment per container",
                    code=Code.SECOND_INTERFACE,
                )
            if known.state == "committed" and await self._kernel.is_intact(known, asked.netns):
                return known
            return await self._attach_again(known, netns=asked.netns, network=asked.network)

    async def rebuild(self, container_id: str) -> bool:
        """Make a committed container's lost link again in its namespace.  False if that failed."""
        async with self._attached.hold(container_id):
            known = self._attached.of(container_id)
            if known is None or not (known.state == "committed" or await self._is_half_rebuilt(known)):
                return False
            try:
                if known.state == "pending" or not await self._kernel.is_intact(known, known.netns):
                    await self._attach_again(known, netns=known.netns, network=known.network)
            except (FlockError, OSError) as error:
                log.error("could not rebuild container=%s pod=%s problem=%s", container_id, known.pod, error)
                return False
            return True

    async def _attach_new(self, asked: Asked, pod: PodInfo, begun: Begun | None) -> Allocation:
        allocation = await self._allocate(asked, pod)
        try:
            faults.reach(Point.ADD_PICKED)
            return await self._set_up(allocation, pod.object, begun, ahead=True)
        except BaseException:
            await self._undo(allocation)
            raise

    async def _attach_again(self, known: Allocation, *, netns: str, network: str) -> Allocation:
        """A half-done attachment, or one whose namespace was replaced: the same addresses, set up anew."""
        allocation = msgspec.structs.replace(
            known,
            netns=netns,
            network=network,
            mac=known.mac or format_mac(pod_mac(known.container_id)),
            mtu=self._preparing.mtu,
            state="pending",
        )
        async with self._kernel.begun(netns) as begun:
            return await self._set_up(allocation, None, begun)

    async def _allocate(self, asked: Asked, pod: PodInfo) -> Allocation:
        """Reserve everything in memory, or nothing."""
        cid = asked.container_id
        for named in pod.named:
            await self._make_way(named, cid, pod)
        now = time.time()
        reserved = reserve(
            self._ipam,
            pod.request,
            container_id=cid,
            namespace=pod.namespace,
            named=pod.named,
            limits=pod.limits,
            compose=pod.composed.get,
            now=now,
        )
        if reserved.warning:
            log.warning("pod=%s/%s %s", pod.namespace, pod.name, reserved.warning)
        return Allocation(
            container_id=cid,
            namespace=pod.namespace,
            pod_name=pod.name,
            owner_uid=pod.uid,
            ip6=reserved.ip6,
            ip4=reserved.ip4,
            anycast=tuple(map(str, pod.request.anycast)),
            addresses=tuple(map(str, pod.request.addresses)),
            state="pending",
            allocated_at=datetime.fromtimestamp(now, UTC).isoformat().replace("+00:00", "Z"),
            network=asked.network,
            netns=asked.netns,
            ifname=asked.ifname,
            host_interface=self._attached.name_for(cid),
            mac=asked.fixed.mac or format_mac(pod_mac(cid)),
            mtu=pod.mtu,
            annotations=dict(pod.annotations),
        )

    async def _make_way(self, named: Named, container_id: str, pod: PodInfo) -> None:
        """Detach sandboxes that have the address and are gone, or of the same pod; a living one keeps it."""
        rivals = self._ipam.rivals(
            named.address, namespace=pod.namespace, shares=named.kind == "anycast", granted=named.granted
        )

        async def stays(old: Allocation) -> bool:
            same_pod = bool(pod.name) and (old.namespace, old.pod_name) == (pod.namespace, pod.name)
            return not same_pod and await self._kernel.whose_is_at_its_path(old) is not Whose.ANOTHERS

        for rival in [rival for rival in rivals if rival != container_id]:
            old = self._attached.of(rival)
            if old is None or await stays(old):
                raise self._refused(named, pod, rival, old)
            log.info("taking over address=%s from=%s for=%s", named.address, rival, container_id)
            detaching = asyncio.create_task(self.detach(rival, unless=stays))  # goes on whatever becomes of this ADD
            self._detaching.add(detaching)
            detaching.add_done_callback(self._detached)
            done, _ = await asyncio.wait({detaching}, timeout=TAKE_OVER_PATIENCE)
            if not done:
                raise TryAgain(f"address {named.address} is still being released by container {rival}")
            await detaching

    def _detached(self, detaching: "asyncio.Task[None]") -> None:
        """Perhaps nobody waits for it any more: what went wrong is said here."""
        self._detaching.discard(detaching)
        if not detaching.cancelled() and (error := detaching.exception()) is not None:
            log.warning("could not take over an address problem=%s", error)

    def _refused(self, named: Named, pod: PodInfo, rival: str, old: Allocation | None) -> FlockError:
        """Another namespace's names are for the log: the error is shown to whoever made the pod."""
        whose = f"pod {old.pod}" if old else f"container {rival}"
        if old is None or old.namespace == pod.namespace:
            hint = "delete that pod first, or ask for another address"
            return AddressInUse(f"address {named.address} is in use by {whose}", details=hint)
        log.warning("refused address=%s pod=%s/%s holder=%s", named.address, pod.namespace, pod.name, old.pod)
        hint = "ask for another address; whoever runs this node finds the holder in the agent's log"
        if named.kind == "anycast" and rival in self._ipam.sharers(named.address):
            problem = f"anycast address {named.address} is shared by pods of another namespace"
            return AnotherNamespaces(problem, details=hint)
        return AddressInUse(f"address {named.address} is in use by a pod of another namespace", details=hint)

    async def _set_up(
        self, pending: Allocation, pod: Pod | None, begun: Begun | None, *, ahead: bool = False
    ) -> Allocation:
        """From a pending allocation to a committed one.  On failure the caller decides what stays.

        `ahead`: the disk works at the same time as the kernel, for a caller who forgets what was written if anything
        fails."""
        self._attached.begin(pending)
        faults.reach(Point.ADD_PENDING)
        link = await self._rules_and_link(pending, pod, begun, ahead=ahead)
        committed = _committed(pending, link.netns)
        await self._attached.record(committed, link=link.host_index)
        faults.reach(Point.ADD_COMMITTED)
        self._attached.tell(committed)
        addresses = ",".join((*committed.held, *committed.anycast))
        self._happened.note(
            happenings.Attached(pod=committed.pod, container=committed.container_id, addresses=addresses)
        )
        return committed

    async def _rules_and_link(self, pending: Allocation, pod: Pod | None, begun: Begun | None, *, ahead: bool) -> Link:
        """Rules are in force before the link is up.  Both ends are made meanwhile, on another core."""

        def identified(netns: "asyncio.Future[Identity]") -> None:
            if not netns.cancelled():  # as it is when the link was given up before
                self._attached.record_ahead(_committed(pending, netns.result()))

        if begun is not None:
            begun.create(Wiring.of(pending))
            if ahead:
                begun.identified.add_done_callback(identified)
        try:
            await self._policies.admit(pending, pod=pod)
            faults.reach(Point.ADD_RULES)
            announced = self._aggregates.uncovered(pending)
        except BaseException:
            if begun is not None:
                await self._kernel.give_up(begun)
            raise

        def claimed(name: str) -> bool:
            return self._attached.owner_of(name) not in (None, pending.container_id)

        return await self._kernel.attach(pending, announced=announced, claimed=claimed, begun=begun)

    async def _undo(self, allocation: Allocation) -> None:
        """A failed ADD leaves nothing; if even that fails, a pending entry that ADD, DEL or start resolves."""
        try:
            await self._kernel.detach(allocation)
            await self._policies.release(allocation)
            await self._attached.forget(allocation, released=())
        except (FlockError, OSError) as error:
            log.error("could not undo a failed ADD container=%s problem=%s", allocation.container_id, error)
            if self._attached.of(allocation.container_id) is not None:
                return
        self._ipam.give_back(allocation)

    # --- detaching ---

    async def detach(
        self, container_id: str, *, ifname: str = "", unless: Callable[[Allocation], Awaitable[bool]] | None = None
    ) -> None:
        """Forget a container.  Unknown ones, other interfaces than ours and what `unless` spares are left alone."""
        async with self._attached.hold(container_id):
            known = self._attached.of(container_id)
            if known is None or (ifname and known.ifname != ifname):
                return
            if unless is not None and await unless(known):
                return
            await self._take_down(known)

    async def _take_down(self, known: Allocation) -> None:
        if known.state == "committed":
            known = msgspec.structs.replace(known, state="pending")
            self._attached.begin(msgspec.structs.replace(known, netns_id="", netns_cookie=0, boot_id=""))
            self._attached.tell(known)  # what it carries is withdrawn while its link still stands
        faults.reach(Point.DEL_PENDING)
        await self._kernel.detach(known)
        faults.reach(Point.DEL_UNLINKED)
        await self._policies.release(known)
        resting = self._ipam.resting(known, time.time())
        await self._attached.forget(known, released=resting)
        faults.reach(Point.DEL_FORGOTTEN)
        self._ipam.give_back(known, resting)
        self._attached.tell(known)
        self._happened.note(happenings.Detached(pod=known.pod, container=known.container_id))

    async def resolve_pending(self) -> None:
        """Undo what an earlier life, or a failure, left half done and nobody is at work on."""
        for allocation in self._attached.entries:
            if allocation.state != "pending" or await self._is_half_rebuilt(allocation):
                continue
            unchanged = self._attached.of(allocation.container_id) is allocation
            if unchanged and not self._attached.is_busy(allocation.container_id):
                log.info("undoing half-done container=%s pod=%s", allocation.container_id, allocation.pod)
                await self.detach(allocation.container_id)

    def perhaps_half_rebuilt(self) -> list[Allocation]:
        """Running pods whose link was being made again when something went wrong, unless they ended since; nobody works
        on them.  `rebuild` finds out."""
        recorded = (a for a in self._attached.entries if a.state == "pending" and a.netns_id)
        return [a for a in recorded if not self._attached.is_busy(a.container_id)]

    async def _is_half_rebuilt(self, allocation: Allocation) -> bool:
        """Pending, and in a living namespace that a commit recorded: ADD records none before, DEL removes it first."""
        if allocation.state != "pending" or not allocation.netns_id:
            return False
        return await self._kernel.whose_is_at_its_path(allocation) is Whose.ITS_OWN
