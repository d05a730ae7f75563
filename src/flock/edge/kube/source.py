"""The API server as the source of cluster objects.

Watched: this node's pods, all namespaces and policies, this node's Node and NodeConfig, the templates.  Pods of the
whole cluster are watched only once somebody asks for them, because only policies with peers need them.  Objects are
trimmed to what is read and equal strings are shared.
"""

import asyncio
import base64
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from flock.core.errors import FlockError
from flock.core.model import PREFIX, Container, Metadata, Namespace, Node, Pod, PodSpec, PodStatus, own_annotations
from flock.edge.kube.client import KubeClient
from flock.edge.kube.memory import Memory
from flock.edge.kube.reflector import Key, Reflector
from flock.edge.source import ChangeKey, PodKey, Problem

GROUP = f"/apis/{PREFIX}/v1alpha1"
RECALL_AFTER = 10.0  # an API server that restarts with us is back by then
SAVE_AFTER = 5.0  # gathers changes: a write in this long at most
SAVE_RATE = 200  # and so many objects a second at most: pods of a large cluster change all the time
CLUSTER_POD = "ClusterPod"  # the name under which pods of other nodes are remembered
PATIENCE = 3.0  # how long ADD waits for a pod to become known; the runtime retries after that

_pods = msgspec.json.Decoder(Pod)
_namespaces = msgspec.json.Decoder(Namespace)
_nodes = msgspec.json.Decoder(Node)
_raw = msgspec.json.Decoder(dict[str, Any])


class KubeSource:
    """Implements `flock.edge.source.Source`."""

    requires_pods = True

    def __init__(self, client: KubeClient, *, node: str, namespace: str, state_dir: Path) -> None:
        self._client = client
        self._memory = Memory(state_dir)
        self._unsaved = asyncio.Event()
        self._restored = False
        self._recalled_cluster_pods: Mapping[Key, Pod] = {}
        self._remembered: dict[str, tuple[Reflector[Any], Callable[[bytes], Any]]] = {}
        self._namespace = namespace
        self._node_name = node
        self._callbacks: list[Callable[[], None]] = []
        self._changes: set[ChangeKey] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._notified = False
        self._problems: dict[tuple[str, Key], str] = {}
        self._arrival = asyncio.Event()
        named = {"fieldSelector": f"metadata.name={node}"}
        here = {"fieldSelector": f"spec.nodeName={node}"}
        self._pods = self._reflector("Pod", "/api/v1/pods", decode_pod, selector=here)
        self._namespaces = self._reflector("Namespace", "/api/v1/namespaces", _decode_namespace)
        self._node = self._reflector("Node", "/api/v1/nodes", _nodes.decode, selector=named)
        self._configs = self._reflector("NodeConfig", f"{GROUP}/nodeconfigs", _raw.decode, selector=named)
        self._templates = self._reflector("NodeConfigTemplate", f"{GROUP}/nodeconfigtemplates", _raw.decode)
        policies = "/apis/networking.k8s.io/v1/networkpolicies"
        self._policies = self._reflector("NetworkPolicy", policies, _raw.decode)
        self._cluster_pods: Reflector[Pod] | None = None
        self._remembered = {
            "Pod": (self._pods, decode_pod),
            "Namespace": (self._namespaces, _decode_namespace),
            "Node": (self._node, _nodes.decode),
            "NodeConfig": (self._configs, _raw.decode),
            "NodeConfigTemplate": (self._templates, _raw.decode),
            "NetworkPolicy": (self._policies, _raw.decode),
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
            self._tasks.append(asyncio.get_running_loop().create_task(self._cluster_pods.run()))

    @property
    def namespaces(self) -> Mapping[str, Namespace]:
        return {name: namespace for (_, name), namespace in self._namespaces.objects.items()}

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

    def subscribe(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def drain_changes(self) -> set[ChangeKey]:
        drained, self._changes = self._changes, set()
        return drained

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks += [loop.create_task(reflector.run()) for reflector in self._reflectors]
        self._tasks += [loop.create_task(self._remember()), loop.create_task(self._recall())]

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
            return _same_pod(decode_pod(raw), uid)
        except (FlockError, msgspec.DecodeError):
            return None  # away, not there, or unreadable: the caller says what it could not learn

    async def secret(self, name: str, key: str) -> str | None:
        try:
            raw = await self._client.get(f"/api/v1/namespaces/{quote(self._namespace)}/secrets/{quote(name)}")
            return base64.b64decode(msgspec.json.decode(raw)["data"][key]).decode()
        except (FlockError, KeyError, TypeError, ValueError):
            return None

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

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
    return None if pod is None or (uid and pod.metadata.uid and pod.metadata.uid != uid) else pod


def decode_pod(raw: bytes) -> Pod:
    pod = _pods.decode(raw)
    return msgspec.structs.replace(pod, metadata=_trimmed(pod.metadata))


def decode_cluster_pod(raw: bytes) -> Pod:
    """Only what policies read of a peer: there may be ten thousand."""
    pod = _pods.decode(raw)
    ports = tuple(port for container in pod.spec.containers or () for port in container.ports or () if port.name)
    return Pod(
        msgspec.structs.replace(_trimmed(pod.metadata), owner_references=None, resource_version=""),
        PodSpec(
            host_network=pod.spec.host_network,
            containers=(Container(ports=ports),) if ports else None,
        ),
        PodStatus(phase=sys.intern(pod.status.phase), pod_ips=pod.status.pod_ips),
    )


def _decode_namespace(raw: bytes) -> Namespace:
    return Namespace(_trimmed(_namespaces.decode(raw).metadata))


def _trimmed(metadata: Metadata) -> Metadata:
    annotations = own_annotations(metadata.annotations or {})
    labels = {sys.intern(k): sys.intern(v) for k, v in (metadata.labels or {}).items()}
    return msgspec.structs.replace(
        metadata,
        namespace=sys.intern(metadata.namespace),
        annotations=annotations or None,
        labels=labels or None,
    )
