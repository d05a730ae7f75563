"""What policies depend on, from the cache into the index: policies, namespaces, pods, and what the node's
configuration grants of their addresses.

Everything once the first full picture is there, then what changed, a bounded part of it at a time and no namespace more
than its share (`pacing`): of policies, and of pods, wherever they are, for hundreds of selectors may mean one.  First
come, first served within a namespace: whatever else it changes, each change has its turn.  A policy that is refused
leaves its last good version in force, and that one is kept on disk for as long.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flock.agent.configured import Configured
from flock.agent.lastgood_policies import LastGoodPolicies, same_object
from flock.agent.preparing import Preparing
from flock.core.kinds import CLUSTER_PODS, NAMESPACES, PODS, POLICIES, Extent
from flock.core.policy import budget
from flock.core.policy.compiled import PolicyKey
from flock.core.policy.index import PolicyIndex
from flock.core.policy.pacing import Pacing
from flock.core.policy.reach import Reach, extents
from flock.core.policy.vouching import PodKey, Vouching
from flock.edge.cache import Cache, ChangeKey

# Of a namespace for one transaction, a tenth of a second each: policies, counted by the sets and rules they need and
# one for each; pods elsewhere, counted by the selectors they are compared with and the members of groups they move.
AT_ONCE, MOVES_AT_ONCE = 1024, 2048
PATIENCE = 3.0  # of an ADD, for pods elsewhere to be listed
NAMED = 5  # extents in a message
UNNOTICED = 64  # of the latter make no transaction longer, and are not charged: the pods of large clusters come and go


class Intake:
    def __init__(
        self, cache: Cache, index: PolicyIndex, *, configured: Configured, preparing: Preparing, state_dir: Path
    ) -> None:
        self._cache = cache
        self._reader = cache.reader(NAMESPACES, POLICIES, PODS, CLUSTER_PODS)
        self._namespaces = cache.table(NAMESPACES)
        self._policies = cache.table(POLICIES)
        self._pods, self._cluster_pods = cache.table(PODS), cache.table(CLUSTER_PODS)
        self._index = index
        self._configured, self._preparing = configured, preparing
        self._vouching = Vouching()
        self._last_good = LastGoodPolicies(state_dir)
        self._pacing = Pacing(time.monotonic)
        # By namespace, in the order in which they came: changes to be taken in when it is its turn.
        self._later: dict[str, dict[ChangeKey, None]] = {}
        self._taken: frozenset[str] = frozenset()  # namespaces whose changes were taken in and are not in force yet
        self._policies_changed = True  # since their last good versions were kept
        self._reach: frozenset[Reach] | None = None  # for which pods elsewhere were asked
        self._lacked: frozenset[Extent] = frozenset()  # what was not listed when changes were last taken in
        self._grown = False  # some of that has been since, and is being taken in

    def take_everything(self) -> None:
        """All that is known, at once."""
        self._gather()
        for waiting in self._later.values():
            self._take(waiting)
        self._later.clear()
        self._recount()

    def take_changes(self) -> dict[str, int]:
        """The namespaces of which something was taken in that costs time, with how much: to be charged for it."""
        self._gather()
        turn = [namespace for namespace in self._later if not self._pacing.wait(namespace)]
        self._taken |= frozenset(turn)
        costs = {namespace: self._take_some(namespace) for namespace in turn}
        self._recount()
        return {namespace: cost for namespace, cost in costs.items() if cost}

    def reach_out(self) -> None:
        """Say which pods elsewhere have to be known, now that policies in use have changed."""
        if self._index.reach is not self._reach:
            self._reach, before = self._index.reach, self._cache.needed(CLUSTER_PODS)
            needed = extents(self._reach, namespaces=len(self._namespaces), before=before)
            self._cache.need(CLUSTER_PODS, needed)
            self._lacked |= frozenset(self._cache.lacking(CLUSTER_PODS))

    @property
    def lacking(self) -> str:
        """What of it is not known yet, in words."""
        return ", ".join(map(str, sorted(self._cache.lacking(CLUSTER_PODS))[:NAMED]))

    @property
    def awaited(self) -> list[float]:
        """For how many seconds by now, of what is not known yet and soon may be."""
        now = time.monotonic()
        ages = (now - since for since in self._cache.lacking(CLUSTER_PODS).values())
        return [age for age in ages if age < PATIENCE]

    async def more_is_known(self) -> bool:
        """Once pods elsewhere are listed that only just became needed; False if there were none.  A pod that comes up
        without them is closed to them until they are: for a listing that fails, nobody waits longer than PATIENCE."""
        waited = False
        with contextlib.suppress(TimeoutError):
            while awaited := self.awaited:
                waited = True
                async with asyncio.timeout(PATIENCE - min(awaited)):
                    await self._cache.changed()
        return waited

    def _gather(self) -> None:
        """What changed, to wait for its turn; namespaces themselves need not."""
        lacking = frozenset(self._cache.lacking(CLUSTER_PODS))
        self._grown = self._grown or bool(self._lacked - lacking)
        self._lacked = lacking
        self._take_pods(self._vouching.configure(self._configured.config, self._preparing.facts))
        changes = self._reader.changes()
        self._take(change for change in changes if change[0] == NAMESPACES.name)
        changes += ((POLICIES.name, *key) for key in self._index.again)
        for kind, namespace, name in changes:
            if kind != NAMESPACES.name:
                kind = POLICIES.name if kind == POLICIES.name else PODS.name  # wherever the pod is
                self._later.setdefault(namespace, {}).setdefault((kind, namespace, name))

    def _recount(self) -> None:
        """With each part of what was listed, to the last."""
        if self._grown:
            self._index.recount()
            self._grown = bool(self._later)

    def charge(self, costs: Mapping[str, int], seconds: float) -> None:
        self._pacing.charge(costs, seconds)

    def lags(self, namespace: str) -> float | None:
        """Seconds until it is the turn of changes of the namespace that were not taken in yet; None: there are none.
        A policy that is to be tried again is no change: it is closed until then, and no pod need wait for it."""
        again = {(POLICIES.name, *key) for key in self._index.again}
        news = self._later.get(namespace, {}).keys() - again
        return self._pacing.wait(namespace) if news else None

    @property
    def waiting(self) -> list[str]:
        """Namespaces of which something is known and not in force."""
        return sorted(self._taken | self._later.keys())

    def next_turn(self) -> float | None:
        return min(map(self._pacing.wait, self._later), default=None)

    def _take_some(self, namespace: str) -> int:
        """What it cost, other than nothing to speak of."""
        taken = moved = 0
        waiting = self._later[namespace]
        for change in list(waiting):
            if taken >= AT_ONCE or moved >= MOVES_AT_ONCE:
                break
            kind, *key = change
            is_elsewhere = kind == PODS.name and not self._index.is_here((key[0], key[1]))
            before = self._index.spent
            self._take([change])
            del waiting[change]
            if is_elsewhere:
                moved += self._index.spent - before
            else:
                policy = self._index.policies.get((key[0], key[1])) if kind == POLICIES.name else None
                taken += 1 + (budget.effort(policy.compiled) if policy else 0)
        if not waiting:
            del self._later[namespace]
        return taken + (moved if moved > UNNOTICED else 0)

    async def settle(self) -> None:
        """What was taken in is in force."""
        self._taken = frozenset()
        if self._policies_changed:
            due = self._last_good.due(self._index.problems)
            self._policies_changed = due is not None and not await asyncio.to_thread(self._last_good.save, due)

    def _take(self, changes: Iterable[ChangeKey]) -> None:
        for kind, namespace, name in changes:
            if kind == PODS.name:
                self._take_pods([(namespace, name)])
            elif kind == NAMESPACES.name:
                self._take_namespace(name)
            elif kind == POLICIES.name:
                self._take_policy((namespace, name))

    def _take_pods(self, keys: Iterable[PodKey]) -> None:
        for key in keys:
            pod = self._pods.get(key) or self._cluster_pods.get(key)
            if pod is None:
                self._vouching.forget(key)
                self._index.drop_pod(key)
            else:
                self._index.set_pod(self._vouching.facts(pod))

    def _take_namespace(self, name: str) -> None:
        known = self._namespaces.get(("", name))
        if known is None:
            self._index.drop_namespace(name)
            self._take_pods(self._vouching.drop_namespace(name))
        else:
            self._index.set_namespace(name, known.labels)
            self._take_pods(self._vouching.set_namespace(name, known.labels))

    def _take_policy(self, key: PolicyKey) -> None:
        self._policies_changed = True
        policy = self._policies.get(key)
        if policy is None:
            self._index.drop_policy(key)
            self._last_good.drop(key)
        else:
            self._set_policy(key, policy)
            self._index.try_again(key)

    def _set_policy(self, key: PolicyKey, policy: Mapping[str, Any]) -> None:
        """A version that is refused leaves the last good one in force, also one an earlier life of the agent knew."""
        good = self._last_good.get(key)
        if good is not None and not same_object(good, policy):
            self._index.drop_policy(key)
            self._last_good.drop(key)
            good = None
        if self._index.set_policy(policy):
            self._last_good.keep(key, policy)
        elif self._index.policies[key].compiled.closed and good is not None:
            self._index.set_policy(good)
            self._index.set_policy(policy)
