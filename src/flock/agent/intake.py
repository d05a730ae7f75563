"""What policies depend on, from the cache into the index: policies of both kinds, namespaces, Nodes, pods, and what the
node's configuration grants of their addresses.

Everything once the first full picture is there, then what changed, a bounded part of it at a time and no namespace more
than its share (`pacing`): of policies, and of pods, wherever they are, for hundreds of selectors may mean one.  First
come, first served within a namespace: whatever else it changes, each change has its turn.  A policy that is refused
leaves its last good version in force, and that one is kept on disk for as long.

What the cluster's administrator changes is taken in at once.  But a ClusterNetworkPolicy denies, and while its peers
are not listed it would not: so its former version stays until they are, and with it what changed after it, for one
policy may take another's place.  What is not listed in time is closed then (`core/policy/sight.py`).
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from flock.agent.configured import Configured
from flock.agent.lastgood_policies import LastGoodPolicies, same_object
from flock.agent.outlook import PATIENCE, Outlook
from flock.agent.preparing import Preparing
from flock.core.kinds import CLUSTER_NODES, CLUSTER_PODS, CLUSTER_POLICIES, NAMESPACES, NODES, PODS, POLICIES, Aspect
from flock.core.model import NO_MAP
from flock.core.naming import GATEWAY6
from flock.core.policy import budget
from flock.core.policy.compiled import PolicyKey
from flock.core.policy.index import PolicyIndex
from flock.core.policy.pacing import Pacing
from flock.core.policy.podfacts import node_addresses, seen
from flock.core.policy.reach import Reach
from flock.core.policy.vouching import PodKey, Vouching
from flock.edge.cache import Cache, ChangeKey

# Of a namespace for one transaction, a tenth of a second each: policies, counted by the sets and rules they need and
# one for each; pods elsewhere, counted by the selectors they are compared with and the members of groups they move.
AT_ONCE, MOVES_AT_ONCE = 1024, 2048
READ = (NAMESPACES, POLICIES, CLUSTER_POLICIES, Aspect(PODS, seen), CLUSTER_PODS, NODES, CLUSTER_NODES)
PACED = {kind.name for kind in (POLICIES, PODS, CLUSTER_PODS)}
AT_ONCE_KINDS = {kind.name for kind in (NAMESPACES, NODES, CLUSTER_NODES)}
UNNOTICED = 64  # of the latter make no transaction longer, and are not charged: the pods of large clusters come and go


class Intake:
    def __init__(
        self,
        cache: Cache,
        index: PolicyIndex,
        outlook: Outlook,
        *,
        configured: Configured,
        preparing: Preparing,
        state_dir: Path,
    ) -> None:
        self._cache, self._reader = cache, cache.reader(*READ)
        self._namespaces = cache.table(NAMESPACES)
        self._policies, self._cluster_policies = cache.table(POLICIES), cache.table(CLUSTER_POLICIES)
        self._nodes, self._cluster_nodes = cache.table(NODES), cache.table(CLUSTER_NODES)
        self._pods, self._cluster_pods = cache.table(PODS), cache.table(CLUSTER_PODS)
        self._index, self._outlook = index, outlook
        self._configured, self._preparing = configured, preparing
        self._node, self._facts = cache.node, preparing.facts  # this one, as taken in
        self._vouching = Vouching()
        self._last_good = LastGoodPolicies(state_dir)
        self._pacing = Pacing(time.monotonic)
        # By namespace, in the order in which they came: changes to be taken in when it is its turn.
        self._later: dict[str, dict[ChangeKey, None]] = {}
        self._taken: frozenset[str] = frozenset()  # namespaces whose changes were taken in and are not in force yet
        self._policies_changed = True  # since their last good versions were kept
        # ClusterNetworkPolicies that changed and wait for their peers to be listed, in the order in which they came.
        self._proposed: dict[PolicyKey, None] = {}
        self._proposed_reach: frozenset[Reach] = frozenset()
        self._reach: frozenset[Reach] | None = None  # for which peers elsewhere were asked
        self._grown = False  # more of them have been listed since, and are being taken in
        self._owed: dict[str, int] = {}  # what was taken in and is not charged for yet cost, by namespace
        self._lasted = 0.0  # and how many seconds

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
        costs = Counter(self._owed)
        for namespace in turn:
            costs[namespace] += self._take_some(namespace)
        self._recount()
        self._owed = {namespace: cost for namespace, cost in costs.items() if cost}
        return self._owed

    def take_quietly(self) -> bool:
        """Take in pods that changed.  True if nobody's rules go by that, and nothing else changed: most often it is so,
        of all that a kubelet writes about a pod.  Else it is for the next transaction."""
        if self._proposed or self._later or not self._reader.is_all_of(PODS, CLUSTER_PODS):
            return False
        started = time.monotonic()
        costs = self.take_changes()
        seconds = time.monotonic() - started
        if self._later or not self._index.is_settled or self._index.reach is not self._reach:
            self._lasted += seconds
            return False
        self.charge(costs, seconds)
        self._taken = frozenset()
        return True

    def reach_out(self) -> None:
        """Say who elsewhere has to be known, now that policies in use have changed."""
        reach = self._index.reach
        if self._proposed_reach or reach is not self._reach:
            self._reach = None if self._proposed_reach else reach
            self._outlook.need(reach | self._proposed_reach, namespaces=len(self._namespaces))

    def _gather(self) -> None:
        """What changed, to wait for its turn; what tenants cannot change need not."""
        more, turned = self._outlook.look()
        self._grown = self._grown or more
        if more or turned:
            self._index.sight.change()
        self._take_pods(self._vouching.configure(self._configured.config, self._preparing.facts))
        if self._preparing.facts is not self._facts:
            self._facts = self._preparing.facts
            self._take_node(self._node)
        changes = self._reader.changes()
        self._take(change for change in changes if change[0] in AT_ONCE_KINDS)
        self._proposed |= {(change[1], change[2]): None for change in changes if change[0] == CLUSTER_POLICIES.name}
        self._take_proposed()
        for kind, namespace, name in (*changes, *self._again()):
            if kind in PACED:
                kind = PODS.name if kind == CLUSTER_PODS.name else kind  # wherever the pod is
                self._later.setdefault(namespace, {}).setdefault((kind, namespace, name))

    def _again(self) -> set[ChangeKey]:
        return {(POLICIES.name, *key) for key in self._index.again}

    def _take_proposed(self) -> None:
        reaches = {}
        for key in self._proposed:
            policy = self._cluster_policies.get(key)
            reaches[key] = self._index.reach_of(policy) if policy is not None else frozenset()
        for key, reach in reaches.items():
            if self._outlook.awaits(reach):
                break
            del self._proposed[key]
            self._take_policy(key)
        self._proposed_reach = frozenset(reach for key in self._proposed for reach in reaches[key])

    def _recount(self) -> None:
        """With each part of what was listed, to the last."""
        if self._grown:
            self._index.recount()
            self._grown = bool(self._later)

    def charge(self, costs: Mapping[str, int], seconds: float) -> None:
        """For what was taken in, and for the transaction, if it needed one."""
        self._pacing.charge(costs, seconds + self._lasted)
        self._owed, self._lasted = {}, 0.0

    def lags(self, namespace: str) -> float | None:
        """Seconds until it is the turn of changes of the namespace that were not taken in yet; None: there are none.
        A policy that is to be tried again is no change: it is closed until then, and no pod need wait for it."""
        news = self._later.get(namespace, {}).keys() - self._again()
        return self._pacing.wait(namespace) if news else None

    @property
    def waiting(self) -> list[str]:
        """Namespaces of which something is known and not in force; the empty one is that of ClusterNetworkPolicies."""
        return sorted(self._taken | self._later.keys() | ({""} if self._proposed else set()))

    def next_turn(self) -> float | None:
        """Or until something is not waited for any more, and closed."""
        depends = self._proposed or self._index.cluster_policies
        waits = [PATIENCE - age for age in self._outlook.awaited] if depends else []
        return min((*map(self._pacing.wait, self._later), *waits), default=None)

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
            due = self._last_good.due(self._index.problems, unheard=self._is_unheard)
            self._policies_changed = due is not None and not await asyncio.to_thread(self._last_good.save, due)

    def _is_unheard(self, policy: PolicyKey) -> bool:
        """Nobody has told in this life what it is now, or it waits to be taken in."""
        told = self._cache.is_told(POLICIES if policy[0] else CLUSTER_POLICIES)
        return not told or policy in self._proposed or (POLICIES.name, *policy) in self._later.get(policy[0], ())

    def _take(self, changes: Iterable[ChangeKey]) -> None:
        for kind, namespace, name in changes:
            if kind == PODS.name:
                self._take_pods([(namespace, name)])
            elif kind == NAMESPACES.name:
                self._take_namespace(name)
            elif kind == POLICIES.name:
                self._take_policy((namespace, name))
            else:
                self._take_node(name)

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

    def _take_node(self, name: str) -> None:
        """Of this one every address counts: a pod that may not speak to its node finds no other way to it."""
        node = self._nodes.get(("", name)) or self._cluster_nodes.get(("", name))
        if node is None:
            self._index.drop_node(name)
        else:
            own = (*sorted(self._facts.own, key=str), ip_address(GATEWAY6)) if name == self._node else ()
            addresses = tuple(dict.fromkeys((*node_addresses(node), *own)))
            self._index.set_node(name, node.metadata.labels or NO_MAP, addresses)

    def _take_policy(self, key: PolicyKey) -> None:
        """Of either kind."""
        if key in self._proposed:  # its latest version waits; this is about the one before
            self._index.try_again(key)
            return
        self._policies_changed = True
        policy = (self._policies if key[0] else self._cluster_policies).get(key)
        if policy is None:
            self._drop_policy(key)
        else:
            self._set_policy(key, policy)
            self._index.try_again(key)

    def _set_policy(self, key: PolicyKey, policy: Mapping[str, Any]) -> None:
        """A version that is refused leaves the last good one in force, also one an earlier life of the agent knew."""
        good = self._last_good.get(key)
        if good is not None and not same_object(good, policy):
            self._drop_policy(key)
            good = None
        put = self._index.set_policy if key[0] else self._index.set_cluster_policy
        if put(policy):
            self._last_good.keep(key, policy)
        elif self._index.parsed(key).compiled.closed and good is not None:
            put(good)
            put(policy)

    def _drop_policy(self, key: PolicyKey) -> None:
        (self._index.drop_policy if key[0] else self._index.drop_cluster_policy)(key)
        self._last_good.drop(key)
