"""Kubernetes events: what happened, for people who can do something about it.  Only with an API server, best effort.

What the operator is told comes before what pods' owners are, however many of those there are.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from flock.agent.happened import Happened
from flock.core.happenings import AddFailed, ConfigRefused, Happening, PolicyRefused, ServiceRefused, Share
from flock.core.kinds import CLUSTER_POLICIES, NODE_CONFIGS, POLICIES, SERVICES
from flock.edge.cache import Cache
from flock.edge.kube.writer import KubeWriter

GATHER = 1.0  # seconds between looks at what happened: pods come and go, and most of that is no event


class Events:
    def __init__(self, *, happened: Happened, cache: Cache, writer: KubeWriter) -> None:
        self._happened = happened
        self._cache = cache
        self._writer = writer
        self._read_to = {Share.NODE: 0, Share.PODS: 0}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._happened.wait(self._read_to, None)
            for share, number in self._read_to.items():
                entries, _ = self._happened.after(share, number)
                for entry in entries:
                    self._read_to[share] = entry.number
                    await self._tell(entry.what)
            await asyncio.sleep(GATHER)

    async def _tell(self, happening: Happening) -> None:
        """Never fails."""
        match happening:
            case AddFailed() if happening.reason:
                namespace, _, name = happening.pod.partition("/")
                await self._writer.pod_event(
                    namespace=namespace,
                    name=name,
                    uid=happening.uid,
                    reason=happening.reason,
                    message=happening.problem,
                )
            case ConfigRefused():
                uid = _uid(self._cache.own(NODE_CONFIGS))
                await self._writer.config_event(reason="FlockConfigRefused", message=happening.problem, uid=uid)
            case ServiceRefused():
                namespace, _, name = happening.service.partition("/")
                service = self._cache.table(SERVICES).get((namespace, name))
                await self._writer.service_event(
                    namespace=namespace,
                    name=name,
                    uid=service.metadata.uid if service else "",
                    message=f"{happening.address}: {happening.problem}",
                )
            case PolicyRefused():
                namespace, _, name = happening.policy.rpartition("/")
                kind = POLICIES if namespace else CLUSTER_POLICIES
                uid = _uid(self._cache.table(kind).get((namespace, name)))
                await self._writer.policy_event(
                    kind=kind, namespace=namespace, name=name, uid=uid, message=happening.problem
                )


def _uid(found: Mapping[str, Any] | None) -> str:
    return str(((found or {}).get("metadata") or {}).get("uid", ""))
