"""The API server as the source of cluster objects.

Watched: this node's pods, all namespaces and policies, this node's Node and NodeConfig, the templates.  Pods of the
whole cluster are watched only once somebody asks for them, because only policies with peers need them.  Objects are
trimmed to what is read (`core/decoding.py`).
"""

import asyncio
import base64
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from flock.core.decoding import (
    decode,
    decode_cluster_pod,
    decode_config,
    decode_namespace,
    decode_node,
    decode_pod,
    decode_policy,
)
from flock.core.errors import FlockError
from flock.core.model import PREFIX, Namespace, Node, Pod
from flock.edge.kube.client import KubeClient
from flock.edge.kube.memory import Memory
from flock.edge.kube.reflector import Key, Reflector
from flock.edge.source import ChangeKey, PodKey, Problem, WatchState
from flock.edge.supervising import Supervisor

GROUP = f"/apis/{PREFIX}/v1alpha1"
RECALL_AFTER = 10.0  # an API server that restarts with us is back by then
SAVE_AFTER = 5.0  # gathers changes: a write in this long at most
SAVE_RATE = 200  # and so many objects a second at most: pods of a large cluster change all the time
CLUSTER_POD = "ClusterPod"  # the name under which pods of other nodes are remembered
PATIENCE = 3.0  # how long ADD waits for a pod to become known; the runtime retries after that


class _Secret(msgspec.Struct, frozen=True):
    data: dict[str, str] | None = None


class _ByName(Mapping[str, Namespace]):
    """Objects without a namespace, by their names alone; a view, as current as what it looks at."""

    def __init__(self, objects: Mapping[Key, Namespace]) -> None:
        self._objects = objects

    def __getitem__(self, name: str) -> Namespace:
        return self._objects["", name]

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._objects)

    def __len__(self) -> int:
        return len(self._objects)


class KubeSource:
    """Implements `flock.edge.source.Source`.  `supervisor` holds all that runs for it."""

    requires_pods = True

    def __init__(
        self, client: KubeClient, supervisor: Supervisor, *, node: str, namespace: str, state_dir: Path
    ) -> None:
        self._client = client
        self._supervisor = supervisor
        self._memory = Memory(state_dir)
        self._unsaved = asyncio.Event()
        self._restored = False
        self._recalled_cluster_pods: Mapping[Key, Pod] = {}
        self._remembered: dict[str, tuple[Reflector[Any], Callable[[bytes], Any]]] = {}
        self._namespace = namespace
        self._node_name = node
        self._callbacks: list[Callable[[], None]] = []
        self._changes: set[ChangeKey] = set()
        self._notified = False
        self._problems: dict[tuple[str, Key], str] = {}
        self._arrival = asyncio.Event()
        named = {"fieldSelector": f"metadata.name={node}"}
        here = {"fieldSelector": f"spec.nodeName={node}"}
        self._pods = self._reflector("Pod", "/api/v1/pods", decode_pod, selector=here)
        self._namespaces = self._reflector("Namespace", "/api/v1/namespaces", decode_namespace)
        self._node = self._reflector("Node", "/api/v1/nodes", decode_node, selector=named)
        self._configs = self._reflector("NodeConfig", f"{GROUP}/nodeconfigs", decode_config, selector=named)
        self._templates = self._reflector("NodeConfigTemplate", f"{GROUP}/nodeconfigtemplates", decode_config)
        policies = "/apis/networking.k8s.io/v1/networkpolicies"
        self._policies = self._reflector("NetworkPolicy", policies, decode_policy)
        self._by_name = _ByName(self._namespaces.objects)
        self._cluster_pods: Reflector[Pod] | None = None
        self._remembered = {
            "Pod": (self._pods, decode_pod),
            "Namespace": (self._namespaces, decode_namespace),
            "Node": (self._node, decode_node),
            "NodeConfig": (self._configs, decode_config),
            "NodeConfigTemplate": (self._templates, decode_config),
            "NetworkPolicy": (self._policies, decode_policy),
        }
        self._reflectors: list[Reflector[Any]] = [
            self._pods,
            self._namespaces,
            self._node,
            self._configs,
            self._templates,
            self._policies,
        ]

    def _reflector(
        self, kind: str, path: str, decode: Callable[[bytes], Any], *, selector: Mapping[str, str] | None = None
    ) -> Reflector[Any]:
        def refused(key: Key, problem: str) -> None:
            if problem:
                self._problems[kind, key] = problem
            else:
                self._problems.pop((kind, key), None)

        def changed(key: Key) -> None:
            self._changes.add((kind, *key))
            self._notify_soon()

        return Reflector(
            self._client,
            path,
            decode,
            changed=changed,
            on_sync=self._notify_soon,
            on_recovery=self._hurry,
            selector=selector,
            refused=refused,
        )

    def _hurry(self) -> None:
        """What is wrong with the server or the way to it concerns all kinds alike, and so does its end."""
        for reflector in self._reflectors:
            reflector.hurry()

    # --- Source ---

    @property
    def synced(self) -> bool:
        return all(reflector.synced.is_set() for reflector in self._reflectors if reflector is not self._cluster_pods)

    @property
    def complete(self) -> bool:
        return all(reflector.synced.is_set() for reflector in self._reflectors)

    @property
    def pods(self) -> Mapping[PodKey, Pod]:
        return self._pods.objects

    @property
    def cluster_pods(self) -> Mapping[PodKey, Pod]:
        return self._cluster_pods.objects if self._cluster_pods else self._pods.objects

    def watch_cluster_pods(self) -> None:
        if self._cluster_pods is None:
            self._cluster_pods = self._reflector("Pod", "/api/v1/pods", decode_cluster_pod)
            self._remembered[CLUSTER_POD] = (self._cluster_pods, decode_cluster_pod)
            self._reflectors.append(self._cluster_pods)
            if self._restored:
                self._cluster_pods.restore(self._recalled_cluster_pods)
            self._supervisor.keep(f"watch of {CLUSTER_POD}", self._cluster_pods.run)

    @property
    def namespaces(self) -> Mapping[str, Namespace]:
        return self._by_name

    @property
    def network_policies(self) -> Mapping[tuple[str, str], Mapping[str, Any]]:
        return self._policies.objects

    @property
    def node(self) -> Node | None:
        return self._node.objects.get(("", self._node_name))

    @property
    def node_config(self) -> Mapping[str, Any] | None:
        return self._configs.objects.get(("", self._node_name))

    @property
    def templates(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self._templates.objects.values())

    @property
    def problems(self) -> tuple[Problem, ...]:
        refused = [Problem(f"{kind} {'/'.join(filter(None, key))}", p) for (kind, key), p in self._problems.items()]
        watches = [Problem(f"watch of {r.path}", r.problem) for r in self._reflectors if r.problem]
        if self._lives_on_memory:
            watches.append(Problem("the API server", "away since this agent started; the last known state is in force"))
        return (*refused, *watches)

    @property
    def watches(self) -> tuple[WatchState, ...]:
        now = time.monotonic()
        return tuple(
            WatchState(
                kind=kind,
                up=reflector.healthy,
                problem=reflector.problem,
                heard=round(now - reflector.heard, 1),
                silences=reflector.silences,
            )
            for kind, (reflector, _) in self._remembered.items()
        )

    def subscribe(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def drain_changes(self) -> set[ChangeKey]:
        drained, self._changes = self._changes, set()
        return drained

    async def start(self) -> None:
        for kind, (reflector, _) in self._remembered.items():
            self._supervisor.keep(f"watch of {kind}", reflector.run)
        self._supervisor.keep("memory of the cluster", self._remember)

    def refresh(self) -> None:
        """Events are taken in as they arrive; there is nothing that could be pending."""

    async def pod(self, namespace: str, name: str, *, uid: str) -> Pod | None:
        """From the cache; else asked for directly, because a watch may lag behind the kubelet; else waited for."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = self._cached(namespace, name, uid) or await self._asked(namespace, name, uid)
            remaining = deadline - time.monotonic()
            if found is not None or remaining <= 0:
                return found
            self._arrival.clear()
            try:
                async with asyncio.timeout(min(remaining, 0.5)):
                    await self._arrival.wait()
            except TimeoutError:
                continue

    def _cached(self, namespace: str, name: str, uid: str) -> Pod | None:
        return _same_pod(self._pods.objects.get((namespace, name)), uid)

    async def _asked(self, namespace: str, name: str, uid: str) -> Pod | None:
        try:
            raw = await self._client.get(f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}")
            return _same_pod(await asyncio.to_thread(decode_pod, raw), uid)  # a tenant may have made it large
        except FlockError:
            return None  # away, not there, or unreadable: the caller says what it could not learn

    async def secret(self, name: str, key: str) -> str | None:
        try:
            raw = await self._client.get(f"/api/v1/namespaces/{quote(self._namespace)}/secrets/{quote(name)}")
            return base64.b64decode((decode(raw, _Secret).data or {})[key]).decode()
        except (FlockError, KeyError, ValueError):
            return None

    async def close(self) -> None:
        """What runs is ended by whoever ends the supervisor."""

    # --- the last known state ---

    @property
    def _lives_on_memory(self) -> bool:
        return self._restored and not all(reflector.lists for reflector in self._reflectors)

    async def _recall(self) -> None:
        """If the API server does not answer at start, go on with what was known before."""
        await asyncio.sleep(RECALL_AFTER)
        if self.synced:
            return
        decoders = {kind: decode for kind, (_, decode) in self._remembered.items()}
        known = await asyncio.to_thread(self._memory.load, {**decoders, CLUSTER_POD: decode_cluster_pod})
        if known["NodeConfig"] or known["NodeConfigTemplate"]:
            self._restored = True
            self._recalled_cluster_pods = known[CLUSTER_POD]
            for kind, (reflector, _) in list(self._remembered.items()):
                reflector.restore(known[kind])

    async def _remember(self) -> None:
        """Until cancelled."""
        await self._recall()
        while True:
            await self._unsaved.wait()
            size = sum(len(reflector.objects) for reflector, _ in self._remembered.values())
            await asyncio.sleep(max(SAVE_AFTER, size / SAVE_RATE))
            self._unsaved.clear()
            if self.synced and not self._lives_on_memory:
                content = {kind: dict(reflector.objects) for kind, (reflector, _) in self._remembered.items()}
                await asyncio.to_thread(self._memory.save, content)

    # --- inside ---

    def _notify_soon(self) -> None:
        """Many objects may change in one turn of the loop; subscribers hear of it once."""
        self._arrival.set()
        self._unsaved.set()
        if not self._notified:
            self._notified = True
            asyncio.get_running_loop().call_soon(self._notify)

    def _notify(self) -> None:
        self._notified = False
        for callback in self._callbacks:
            callback()


def _same_pod(pod: Pod | None, uid: str) -> Pod | None:
    """A pod with another uid than the one asked for is a namesake."""
    return pod if pod is not None and pod.may_be(uid) else None
