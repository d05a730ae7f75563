"""The cache and its feeder under one name, for those who still ask for both in one place."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flock.core.kinds import NAMESPACES, NODE_CONFIGS, NODES, PODS, POLICIES, TEMPLATES, Key
from flock.core.model import Namespace, Node, Pod
from flock.edge.cache import Cache, Problem, Watch
from flock.edge.feeder import Feeder

PodKey = Key


class _ByName(Mapping[str, Namespace]):
    def __init__(self, objects: Mapping[Key, Namespace]) -> None:
        self._objects = objects

    def __getitem__(self, name: str) -> Namespace:
        return self._objects["", name]

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._objects)

    def __len__(self) -> int:
        return len(self._objects)


class Source:
    def __init__(self, cache: Cache, feeder: Feeder) -> None:
        self.cache, self.feeder = cache, feeder
        self.requires_pods = feeder.requires_pods
        self.pods: Mapping[PodKey, Pod] = cache.table(PODS)
        self.namespaces: Mapping[str, Namespace] = _ByName(cache.table(NAMESPACES))
        self.network_policies: Mapping[tuple[str, str], Mapping[str, Any]] = cache.table(POLICIES)
        self.subscribe: Callable[[Callable[[], None]], None] = cache.subscribe
        self.start = feeder.start
        self.refresh = feeder.refresh
        self.pod = feeder.pod
        self.secret = feeder.secret
        self.close = feeder.close

    @property
    def synced(self) -> bool:
        return self.cache.synced

    @property
    def complete(self) -> bool:
        return self.cache.complete

    @property
    def node(self) -> Node | None:
        return self.cache.own(NODES)

    @property
    def node_config(self) -> Mapping[str, Any] | None:
        return self.cache.own(NODE_CONFIGS)

    @property
    def templates(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.cache.table(TEMPLATES).values())

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self.cache.problems

    @property
    def watches(self) -> tuple[Watch, ...]:
        return self.cache.watches
