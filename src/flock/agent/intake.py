"""What policies depend on, from the source into the index: policies, namespaces, pods, and what the node's
configuration grants of their addresses.

Everything once the first full picture is there, then what changed, a bounded part of it at a time and no namespace more
than its share (`pacing`).  A policy that is refused leaves its last good
version in force, and that one is kept on disk for as long.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flock.agent.lastgood import LastGood, same_object
from flock.agent.nodeview import NodeView
from flock.agent.pacing import Pacing
from flock.core.policy import budget
from flock.core.policy.compiled import PolicyKey
from flock.core.policy.index import PolicyIndex
from flock.core.policy.vouching import PodKey, Vouching
from flock.edge.source import ChangeKey, Source

# Policies of a namespace for one transaction, counted by the sets they need, and one for each: a tenth of a second.
AT_ONCE = 1024


class Intake:
    def __init__(self, source: Source, index: PolicyIndex, *, view: NodeView, state_dir: Path) -> None:
        self._source = source
        self._index = index
        self._view = view
        self._vouching = Vouching()
        self._last_good = LastGood(state_dir)
        self._pacing = Pacing(time.monotonic)
        self._later: dict[str, set[ChangeKey]] = {}  # by namespace: changes to be taken in when it is its turn
        self._policies_changed = True  # since their last good versions were kept

    def take_everything(self) -> None:
        self.take_changes()
        self._later.clear()
        self._take({("Namespace", "", name) for name in self._source.namespaces})
        self._take({("NetworkPolicy", *key) for key in self._source.network_policies})
        self._take({("Pod", *key) for key in self._source.cluster_pods})

    def take_changes(self) -> set[str]:
        """The namespaces of which something was taken in that may change chains, to be charged for the time."""
        self._take_pods(self._vouching.configure(self._view.config, self._view.facts))
        changes = self._source.drain_changes()
        dear = {change for change in changes if self._is_dear(change)}
        self._take(changes - dear)
        for change in dear:
            self._later.setdefault(change[1], set()).add(change)
        turn = {namespace for namespace in self._later if not self._pacing.wait(namespace)}
        for namespace in turn:
            self._take_some(namespace)
        return turn

    def charge(self, namespaces: set[str], seconds: float) -> None:
        self._pacing.charge(namespaces, seconds)

    def lags(self, namespace: str) -> float | None:
        """Seconds until it is the turn of changes of the namespace that were not taken in yet; None: there are none."""
        return self._pacing.wait(namespace) if namespace in self._later else None

    @property
    def waiting(self) -> list[str]:
        return sorted(self._later)

    def next_turn(self) -> float | None:
        return min(map(self._pacing.wait, self._later), default=None)

    def _is_dear(self, change: ChangeKey) -> bool:
        kind, namespace, name = change
        return kind == "NetworkPolicy" or (kind == "Pod" and self._index.is_here((namespace, name)))

    def _take_some(self, namespace: str) -> None:
        taken, waiting = 0, self._later[namespace]
        for change in sorted(waiting):
            if taken >= AT_ONCE:
                return
            self._take([change])
            waiting.discard(change)
            policy = self._index.policies.get(change[1:]) if change[0] == "NetworkPolicy" else None
            taken += 1 + (budget.sets(policy.compiled) if policy else 0)
        del self._later[namespace]

    async def settle(self) -> None:
        """What was taken in is in force."""
        if self._policies_changed:
            due = self._last_good.due(self._index.problems)
            self._policies_changed = due is not None and not await asyncio.to_thread(self._last_good.save, due)

    def _take(self, changes: Iterable[ChangeKey]) -> None:
        for kind, namespace, name in changes:
            if kind == "Pod":
                self._take_pods([(namespace, name)])
            elif kind == "Namespace":
                self._take_namespace(name)
            elif kind == "NetworkPolicy":
                self._take_policy((namespace, name))

    def _take_pods(self, keys: Iterable[PodKey]) -> None:
        for key in keys:
            pod = self._source.cluster_pods.get(key)
            if pod is None:
                self._vouching.forget(key)
                self._index.drop_pod(key)
            else:
                self._index.set_pod(self._vouching.facts(pod))

    def _take_namespace(self, name: str) -> None:
        known = self._source.namespaces.get(name)
        if known is None:
            self._index.drop_namespace(name)
            self._take_pods(self._vouching.drop_namespace(name))
        else:
            self._index.set_namespace(name, known.labels)
            self._take_pods(self._vouching.set_namespace(name, known.labels))

    def _take_policy(self, key: PolicyKey) -> None:
        self._policies_changed = True
        policy = self._source.network_policies.get(key)
        if policy is None:
            self._index.drop_policy(key)
            self._last_good.drop(key)
        else:
            self._set_policy(key, policy)
            self._source.watch_cluster_pods()

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
