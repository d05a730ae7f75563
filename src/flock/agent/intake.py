"""What policies depend on, from the source into the index: policies, namespaces, pods, and what the node's
configuration grants of their addresses.

Everything once the first full picture is there, then what changed.  A policy that is refused leaves its last good
version in force, and that one is kept on disk for as long.
"""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flock.agent.lastgood import LastGood, same_object
from flock.agent.nodeview import NodeView
from flock.core.policy.compiled import PolicyKey
from flock.core.policy.index import PolicyIndex
from flock.core.policy.vouching import PodKey, Vouching
from flock.edge.source import ChangeKey, Source


class Intake:
    def __init__(self, source: Source, index: PolicyIndex, *, view: NodeView, state_dir: Path) -> None:
        self._source = source
        self._index = index
        self._view = view
        self._vouching = Vouching()
        self._last_good = LastGood(state_dir)
        self._policies_changed = True  # since their last good versions were kept

    def take_everything(self) -> None:
        self.take_changes()
        self._take({("Namespace", "", name) for name in self._source.namespaces})
        self._take({("NetworkPolicy", *key) for key in self._source.network_policies})
        self._take({("Pod", *key) for key in self._source.cluster_pods})

    def take_changes(self) -> None:
        self._take_pods(self._vouching.configure(self._view.config, self._view.facts))
        self._take(self._source.drain_changes())

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
        self._index.set_policy(policy)
        if key not in self._index.problems:
            self._last_good.keep(key, policy)
        elif self._index.policies[key].compiled.closed and good is not None:
            self._index.set_policy(good)
            self._index.set_policy(policy)
