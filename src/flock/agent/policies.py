"""NetworkPolicy and ClusterNetworkPolicy in force: objects in, rules in the kernel.

Events are taken into the index as they come and put into force in batches: whoever needs a change in force waits for
the next transaction, and all who wait share it.  A new pod's rules are there before its link comes up (invariant 3).
Until the first full picture is known, nothing is touched: what an earlier life of the agent put into force stays.
Whenever a transaction fails, or somebody else changes our tables, the whole ruleset is made anew in one transaction.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

from flock.agent.attached import Attached
from flock.agent.configured import Configured
from flock.agent.drops import HeardDrops
from flock.agent.happened import Happened
from flock.agent.intake import Intake
from flock.agent.outlook import Outlook
from flock.agent.preparing import Preparing
from flock.agent.reconciling import Reconciler
from flock.agent.refusals import Refusals
from flock.agent.settling import Settling
from flock.core.dropsums import DropSums
from flock.core.errors import FlockError, KernelRefused, TryAgain
from flock.core.happenings import RulesMadeAnew
from flock.core.kinds import PODS
from flock.core.model import NO_MAP, Allocation, Pod
from flock.core.policy.budget import POD_POLICIES
from flock.core.policy.compiled import DIRECTIONS
from flock.core.policy.dropping import AUDIT_GROUP
from flock.core.policy.index import PolicyIndex
from flock.core.policy.numbers import HIGHEST, Numbers
from flock.core.policy.podfacts import local_pod, pod_ports
from flock.core.policy.render import Ruleset
from flock.core.policy.rendered import Transaction
from flock.edge.batching import Rounds
from flock.edge.cache import Cache
from flock.edge.nft import observe
from flock.edge.nft.apply import Nft, Sender
from flock.edge.nft.watch import Watch

log = logging.getLogger("policy")

LOOK_EVERY = 120.0  # a comparison of everything that is in force; events tell most of what happens between
COUNT_EVERY = 30.0  # how old the number of dropped packets may be
RETRY, FIRST_RETRY = 1.0, 0.05  # whoever flushed the tables may still be at it: soon at first
NEVER = float("-inf")
TURNS = 20  # that an ADD waits for its own namespace's policies, should they be so many or change so often


class Policies(Reconciler):
    def __init__(
        self,
        *,
        cache: Cache,
        requires_pods: bool,
        configured: Configured,
        preparing: Preparing,
        happened: Happened,
        attached: Attached,
        sender: Sender | None = None,
        state_dir: Path,
        strict: bool,
        antispoofing: bool,
        on_others: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(log, "rules not in force", period=COUNT_EVERY, pauses=(FIRST_RETRY, RETRY))
        self._outlook = Outlook(cache)
        self.index = PolicyIndex(self._outlook.sees)
        self.problem = "the rules are not in force yet"
        self.disturbed = False  # somebody else changed what is in the kernel; it is being made anew
        self.transactions = 0  # that changed something
        self.counted: observe.Counted | None = None  # packets that were dropped
        self._counted_at = NEVER
        self._pods = cache.table(PODS)
        self._requires_pods = requires_pods
        self._attached = attached
        self._happened = happened
        self._sender = sender
        self._refusals = Refusals(self.index, happened)
        self._strict, self._antispoofing = strict, antispoofing
        self._on_others = on_others  # somebody else has another chain at a hook
        self._intake = Intake(
            cache, self.index, self._outlook, configured=configured, preparing=preparing, state_dir=state_dir
        )
        self._rules: Ruleset | None = None
        self._nft: Nft | None = None
        self._behind = True  # the kernel has not, or not surely, what the ruleset says
        self._changes = Rounds(self._transact)
        self._drops = HeardDrops(happened, attached.pod_at)
        self._audited = HeardDrops(happened, attached.pod_at, group=AUDIT_GROUP)
        self._numbers = Numbers()
        self._settling = Settling(self.trigger)
        self._looked = time.monotonic()  # when everything in force was last compared; NEVER: with the next transaction
        self._overfull: frozenset[str] = frozenset()  # pods, by interface, that open no further connections
        self._limited = self._overfull  # as rendered

    # --- for ADD and DEL ---

    async def admit(self, allocation: Allocation, *, pod: Pod | None) -> None:
        """Put a pod's rules into force.  `pod` is its object where ADD has found it, ahead of the watch perhaps.

        KernelRefused if that cannot be done: then it must not come up."""
        self._set_local(allocation, pod)
        try:
            await self._in_force_with(allocation.namespace)
        except FlockError as error:
            self.index.drop_local(allocation.host_interface)
            raise KernelRefused(
                f"the pod's rules cannot be put into force: {error.msg}",
                details="a pod without its rules would be open; the runtime tries again",
            ) from None
        if self.index.problems:  # it may be the first pod that a refused policy is about
            self.trigger()

    async def release(self, allocation: Allocation) -> None:
        """The link is gone.  Leftover rules harm nobody and go with the next transaction if this one fails."""
        if self._rules is None or allocation.host_interface not in self.index.locals:
            return
        self.index.drop_local(allocation.host_interface)
        try:
            await self._in_force()
        except FlockError as error:
            log.error("could not remove rules pod=%s problem=%s", allocation.pod, error)

    def _set_local(self, allocation: Allocation, pod: Pod | None) -> None:
        known = pod or self._pods.get((allocation.namespace, allocation.pod_name))
        pod = known if known and known.may_be(allocation.owner_uid) else None  # a namesake's labels are not the pod's
        # Without its object a pod may be anything; a container that need not have one has no labels.
        unknown = self._requires_pods and bool(allocation.pod_name)
        labels = pod.labels if pod else (None if unknown else NO_MAP)
        self.index.set_local(local_pod(allocation, labels=labels, ports=pod_ports(pod) if pod else ()))

    async def limit(self, overfull: Collection[str]) -> None:
        """These pods, by interface, open no further connections, and all others do again.  May raise KernelRefused."""
        self._overfull = frozenset(overfull)
        if self._limited != self._overfull:
            await self._in_force()

    def opened(self, by_number: Mapping[int, int]) -> dict[str, int]:
        """How many connections each pod has opened, by interface."""
        return self._numbers.opened(by_number)

    @property
    def dropped(self) -> DropSums:
        """Packets, by what dropped them."""
        return self._drops.sums

    @property
    def waiting(self) -> list[str]:
        """Namespaces that changed more than their share of late, and whose latest changes are not in force yet."""
        return self._intake.waiting

    def undecided(self, namespace: str) -> bool:
        """Do policies make it necessary to know the labels of a pod in this namespace?"""
        return self.index.needs_labels(namespace)

    # --- following the cluster ---

    async def begin(self) -> None:
        """The first full picture is there: take all of it in, and put it into force in one transaction.  What an
        earlier life put into force stays until then.  TryAgain while peers of the pods here are not known."""
        if self._nft is None:
            watch = Watch(on_change=self._tampered, on_lost=self._look_at_once, on_others=self._on_others)
            watch.start()
            self._nft = Nft(watch=watch, sender=self._sender)
        if self._rules is None:  # else an earlier attempt came further
            known = await self._nft.ask(observe.numbers)
            self._numbers = Numbers(known, start=random.randint(1, HIGHEST))
            self._rules = Ruleset(self._numbers, strict=self._strict, antispoofing=self._antispoofing)
        self._intake.take_everything()
        for allocation in self._attached.entries:
            self._set_local(allocation, None)
        self._rules.cut(self.index.commit())  # all of it is rendered anew
        self._intake.reach_out()
        if lacking := self._outlook.lacking:
            raise TryAgain(f"what policies of this node mean is not listed yet: {lacking}")
        await self._in_force()

    def consider(self) -> None:
        """Objects changed.  Of a pod's life that is hardly ever a matter of rules: ADD and DEL are, which wait for
        theirs.  While a transaction is under way, nobody takes anything in beside it."""
        settled = self._rules is not None and not (self._behind or self.problem)
        if settled and not self.changing and not self._triggered.is_set():
            try:
                if self._intake.take_quietly():
                    return
            except Exception:  # a mistake of ours: the transaction meets it again, and says so to whoever waits
                log.exception("could not take in what changed")
        self.trigger()

    async def _reconcile(self) -> str:
        self._drops.start()
        self._audited.start()
        if time.monotonic() - self._looked > LOOK_EVERY:
            self._looked = NEVER
        await self._in_force()
        if time.monotonic() - self._counted_at >= COUNT_EVERY:
            await self.count()
        self._refusals.tell(self._refusals.here())
        return self.problem  # of another transaction meanwhile

    # --- into the kernel ---

    async def _in_force(self) -> None:
        """Return once everything known at the time of the call is in force."""
        await self._changes.join(None)

    @property
    def changing(self) -> bool:
        """A transaction is under way, or about to be."""
        return self._changes.busy

    async def _in_force_with(self, namespace: str) -> None:
        """The same, and all that is known of the namespace, which may have changed more than its share of late; with
        the pods its policies mean, where the first of its pods makes these needed."""
        for _ in range(TURNS):
            await self._in_force()
            if await self._outlook.more_is_known():
                continue
            wait = self._intake.lags(namespace)
            if wait is None:
                return
            await asyncio.sleep(wait)
        raise KernelRefused(f"policies of namespace {namespace} change faster than they can be put into force")

    async def heed(self) -> None:
        """Return once what the index was told is in force, with the pods elsewhere that it means as far as they could
        be listed."""
        await self._in_force()
        while await self._outlook.more_is_known():
            await self._in_force()

    async def _transact(self, _: list[None]) -> None:
        """One transaction for all who wait."""
        try:
            await self._apply()
        except (FlockError, OSError) as error:
            failure = error if isinstance(error, FlockError) else KernelRefused(str(error))
        except Exception as error:
            log.exception("rules not in force")
            failure = KernelRefused(f"internal error: {error!r}")
        else:
            return
        self._behind = True
        self._tell(failure.msg)  # whoever waited may give up; the rules must be right all the same
        raise failure

    async def _apply(self) -> None:
        if self._rules is None or self._nft is None:
            raise KernelRefused("the first full picture of the cluster is not known yet")
        started, costs = time.monotonic(), self._intake.take_changes()
        change = self.index.commit()
        self._intake.reach_out()
        if self._behind:
            self._rules.cut(change)
            await self._change(self._nft.replace(self._rules, self.index.compiled), mends=True)
            self.transactions += 1
        else:
            await self._put(self._rules.transaction(change))
        self._tell("")
        self._intake.charge(costs, time.monotonic() - started)
        if (wait := self._intake.next_turn()) is not None:
            self.look_again(wait)
        await self._intake.settle()
        if self._limited != self._overfull:
            self._limited = self._overfull
            await self._put(self._rules.limit(self._limited))
        if ready := self._settling.ready(self._numbers.unsettled):
            await self._put(self._rules.settle(ready))
        if self._looked == NEVER and self.index.is_settled and not self._behind:
            await self._compare()

    async def _put(self, transaction: Transaction) -> None:
        assert self._nft is not None
        await self._change(self._nft.apply(transaction))
        self.transactions += not transaction.is_empty

    async def _change(self, work: Awaitable[None], *, mends: bool = False) -> None:
        """The kernel is behind until it succeeds, and stays so if our tables were changed and it does not mend that."""
        others = self._happened.count(RulesMadeAnew)
        self._behind, behind = True, self._behind and not mends
        await work
        self._behind = self.disturbed = behind or self._happened.count(RulesMadeAnew) != others

    def _tampered(self) -> None:
        """Somebody else changed our tables, or we do not know."""
        self._happened.note(RulesMadeAnew())
        self._behind = self.disturbed = True
        self.trigger()

    def _look_at_once(self) -> None:
        """Not making everything anew: that is what may have been too much to tell, and would be again."""
        self._looked = NEVER
        self.trigger()

    async def count(self) -> observe.Counted | None:
        """As of now, if the kernel tells."""
        with contextlib.suppress(FlockError):
            if self._nft is not None:
                self.counted = await self._nft.ask(observe.dropped)
                self._counted_at = time.monotonic()
        return self.counted

    async def _compare(self) -> None:
        """At the end of a transaction, nothing having been taken in since: what differs then is not of our doing."""
        assert self._rules is not None and self._nft is not None
        self._looked = time.monotonic()
        expected = self._rules.expected(self.index.compiled)
        try:
            if await self._nft.ask(observe.observe) != expected:
                self._tampered()
        except FlockError:  # nothing is out of force for that; the next transaction looks again
            self._looked = NEVER

    async def settled(self, *, repaired: bool = False) -> Ruleset:
        """What is to be in the kernel, once it is there; what somebody else changed is, only if `repaired` asks."""
        self._looked = NEVER if repaired else self._looked
        for _ in range(TURNS):
            if repaired or not self.disturbed:
                await self._in_force()
            if not (repaired and (self._looked == NEVER or self._behind)):
                break
        assert self._rules is not None
        return self._rules

    # --- telling ---

    @property
    def problems(self) -> dict[str, str]:
        """What is refused, why, and what is in force in its place."""
        found = self._refusals.problems
        for subject in self.index.compiled.subjects.values():
            if any(len(subject.verdicts.policies(direction) or ()) >= POD_POLICIES for direction in DIRECTIONS):
                found[f"Pod {subject.pod}"] = f"selected by {POD_POLICIES} policies or more; the rest allow it nothing"
        for what, heard in (("packet drops", self._drops), ("what audited policies would drop", self._audited)):
            if heard.problem:
                found[what] = f"not shown: {heard.problem}"
        return found

    @property
    def closed(self) -> int:
        """How many of those that are refused have no good version."""
        return sum(map(self.index.is_closed, self.index.problems))
