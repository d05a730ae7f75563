"""The API server feeds the cache: every kind, as far as it is needed, listed and watched.

Which objects of a kind concern this node, and what is kept of them, is in the kinds' rows (`core/kinds.py`).
"""

import asyncio
import base64
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

import msgspec

from flock.core.decoding import decode, decode_pod
from flock.core.errors import FlockError
from flock.core.kinds import ALL, PODS, Extent, Kind
from flock.core.model import Pod
from flock.edge.cache import Cache
from flock.edge.kube.client import KubeClient
from flock.edge.kube.following import Following
from flock.edge.kube.lastknown import LastKnown
from flock.edge.kube.merging import Whole
from flock.edge.kube.reflector import Reflector, Sink
from flock.edge.supervising import Supervisor

PATIENCE = 3.0  # how long ADD waits for a pod to become known; the runtime retries after that


class _Secret(msgspec.Struct, frozen=True):
    data: dict[str, str] | None = None


class KubeFeeder:
    """Implements `flock.edge.feeder.Feeder`.  `supervisor` holds all that runs for it."""

    requires_pods = True

    def __init__(
        self, cache: Cache, client: KubeClient, supervisor: Supervisor, *, namespace: str, state_dir: Path
    ) -> None:
        self._cache = cache
        self._client = client
        self._supervisor = supervisor
        self._namespace = namespace
        self._reflectors: WeakSet[Reflector] = WeakSet()
        self._followings = [Following(cache, kind, self._reflector) for kind in cache.kinds if kind.partial]
        self._last_known = LastKnown(state_dir, cache, self._followings)

    async def start(self) -> None:
        for kind in self._cache.kinds:
            if not kind.partial:
                listed = partial(self._listed, kind)
                reflector = self._reflector(kind, Whole(self._cache, kind), ALL, listed)
                self._supervisor.keep(f"watch of {kind.name}", reflector.run)
        for following in self._followings:
            self._supervisor.keep(f"watch of {following.kind.name}", following.run)
        self._supervisor.keep("memory of the cluster", self._last_known.run)

    def _reflector(self, kind: Kind[Any], sink: Sink, extent: Extent, on_list: Callable[[], None]) -> Reflector:
        reflector = Reflector(
            self._client,
            kind,
            sink,
            self._cache.watch(kind, extent),
            node=self._cache.node,
            extent=extent,
            on_list=on_list,
            on_recovery=self._hurry,
            on_absent=partial(self._last_known.recall, kind),
        )
        self._reflectors.add(reflector)
        return reflector

    def _listed(self, kind: Kind[Any]) -> None:
        self._cache.listed(kind)
        self._last_known.listed(kind)

    def _hurry(self) -> None:
        """What is wrong with the server or the way to it concerns all kinds alike, and so does its end."""
        for reflector in self._reflectors:
            reflector.hurry()

    def refresh(self) -> None:
        """Events are taken in as they arrive; there is nothing that could be pending."""

    async def pod(self, namespace: str, name: str, *, uid: str) -> Pod | None:
        """From the cache; else asked for directly, because a watch may lag behind the kubelet; else waited for."""
        found = self._known(namespace, name, uid)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                found = found or await self._asked(namespace, name, uid)
                while (found := found or self._known(namespace, name, uid)) is None:
                    await self._cache.changed()
        return found or self._known(namespace, name, uid)

    def _known(self, namespace: str, name: str, uid: str) -> Pod | None:
        return _same_pod(self._cache.table(PODS).get((namespace, name)), uid)

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


def _same_pod(pod: Pod | None, uid: str) -> Pod | None:
    """A pod with another uid than the one asked for is a namesake."""
    return pod if pod is not None and pod.may_be(uid) else None
