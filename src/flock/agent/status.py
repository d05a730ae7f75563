"""The state of the node, for `flockctl status`, and with lists of all there is at `/status.json`.

Every key is there from the first moment on, empty while nothing is known.  Nothing of it is secret: of passwords the
names of files and Secrets.  The whole is made piece by piece, at most every SPACING and then for all who wait, so that
neither its length nor who asks for it keeps a pod waiting.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from operator import itemgetter
from typing import Any

import msgspec

import flock
from flock.agent.parts import Parts
from flock.core.annotations import own_annotations
from flock.core.happenings import Repaired
from flock.core.kinds import PODS
from flock.core.model import Allocation, Pod
from flock.core.policy.compiled import PolicyKey
from flock.core.policy.wording import policy_text
from flock.edge.batching import Rounds
from flock.edge.http import Request

SPACING = 0.2  # between two that are made, whoever asks
BIRD_PATIENCE = 0.2  # then its sessions are told as last seen
ROWS = 50  # made in one turn of the loop: some tenths of a millisecond
PIECE = 1 << 16

Latencies = Callable[[], dict[str, Any]]
_encode = msgspec.json.Encoder().encode


class Status:
    def __init__(self, parts: Parts, *, latencies: Latencies) -> None:
        self._parts = parts
        self._latencies = latencies
        self._rounds: Rounds[None, bytes] = Rounds(self._made)
        self._not_before = 0.0

    async def page(self, _: Request) -> AsyncGenerator[bytes, None]:
        content = memoryview(await self._rounds.join(None))
        for start in range(0, len(content), PIECE):
            yield bytes(content[start : start + PIECE])

    async def _made(self, _: list[None]) -> bytes:
        await asyncio.sleep(self._not_before - time.monotonic())
        content = _encode(await self.whole())
        self._not_before = time.monotonic() + SPACING
        return content + b"\n"

    def short(self, sessions: list[dict[str, Any]]) -> dict[str, Any]:
        """What `flockctl status` tells."""
        parts, report = self._parts, self._parts.readiness.report()
        entries = parts.attached.entries
        return {
            "version": flock.__version__,
            "node": parts.configured.node,
            "ready": report.ready,
            "not_ready": report.not_ready,
            "degraded": report.degraded,
            "mtu": parts.preparing.mtu,
            "pods": {
                "committed": sum(a.state == "committed" for a in entries),
                "pending": sum(a.state == "pending" for a in entries),
                "dead": len(parts.healer.dead),
            },
            "pools": [use._asdict() for use in parts.ipam.use(parts.aggregates.networks, time.time())],
            "problems": [
                *({"where": p.where, "message": p.message} for p in parts.cache.problems),
                *({"where": where, "message": message} for where, message in parts.policies.problems.items()),
                *({"where": f"Service {which}", "message": why} for which, why in parts.services.conflicts),
            ],
            "watches": [msgspec.to_builtins(watch) for watch in parts.cache.watches],
            "repairs": parts.happened.counts(Repaired),
            "sessions": sessions,
            "announced": sorted(parts.announcer.announced),
            "withdrawn": parts.announcer.withdrawn,
            "services": sorted(parts.services.announced),
            "policies": len(parts.policies.index.policies),
            "clusterPolicies": len(parts.policies.index.cluster_policies),
            "policiesWaiting": parts.policies.waiting,
        }

    async def whole(self) -> dict[str, Any]:
        parts = self._parts
        sessions = await parts.routing.glance(BIRD_PATIENCE)
        pods = await _in_pieces(self._pod(allocation) for allocation in self.allocations)
        policies = await _in_pieces(self._policies())
        services = await _in_pieces(parts.services.rows())
        return {
            **self.short(sessions),
            "at": time.time(),
            "started": parts.happened.began,
            "config": self.config(),
            "podList": pods,
            "addressList": parts.announcer.rows(),
            "serviceList": services,
            "policyList": policies,
            "dropList": parts.policies.dropped.rows(),
            "latencies": self._latencies(),
        }

    def config(self) -> dict[str, Any]:
        """The configuration in force, who said what, and the node's own addresses that stay: its routers know one."""
        configured = self._parts.configured
        return {
            "node": configured.node,
            "problem": configured.problem,
            "spec": configured.layers.raw["spec"] if configured.layers else None,
            "origins": configured.layers.origins if configured.layers else {},
            "addresses": [str(a.address) for a in self._parts.preparing.facts.addresses if not a.temporary],
        }

    # --- pods ---

    @property
    def allocations(self) -> list[Allocation]:
        """In the order in which they are listed."""
        return sorted(self._parts.attached.entries, key=lambda a: (a.namespace, a.pod_name, a.container_id))

    def pod(self, allocation: Allocation) -> dict[str, Any]:
        pod = self._parts.cache.table(PODS).get((allocation.namespace, allocation.pod_name))
        state = "dead" if allocation.container_id in self._parts.healer.dead else allocation.state
        return {
            "namespace": allocation.namespace,
            "pod": allocation.pod_name,
            "container": allocation.container_id,
            "state": state,
            "ready": pod.ready if pod else None,
            "ip6": allocation.ip6,
            "ip4": allocation.ip4,
            "addresses": allocation.addresses,
            "anycast": allocation.anycast,
            "interface": allocation.host_interface,
            "netns": allocation.netns,
            "since": allocation.allocated_at,
            "pending_annotations": _changed(allocation, pod) if pod else [],
        }

    def _pod(self, allocation: Allocation) -> dict[str, Any]:
        index = self._parts.policies.index
        local = index.locals.get(allocation.host_interface)
        keys = sorted(local.subject_of) + sorted(local.selected_by) if local else ()
        return {**self.pod(allocation), "policies": [self._policy_name(key) for key in keys]}

    # --- policies ---

    def _policy_name(self, key: PolicyKey) -> str:
        above = self._parts.policies.index.cluster_policies.get(key)
        return f"{above.compiled.tier} {policy_text(key)}" if above else policy_text(key)

    def _policies(self) -> Iterable[dict[str, Any]]:
        index = self._parts.policies.index
        selected = Counter(key for pod in index.locals.values() for key in (*pod.selected_by, *pod.subject_of))
        problems = self._parts.policies.problems
        known = [(key, index.parsed(key).compiled) for key in (*index.cluster_policies, *index.policies)]
        for key, policy in sorted(known, key=itemgetter(0)):
            kind = "NetworkPolicy" if key[0] else "ClusterNetworkPolicy"
            yield {
                "kind": kind,
                "name": policy_text(key),
                "tier": policy.tier,
                "priority": policy.priority if policy.tier else None,
                "audit": policy.audited,
                "pods": selected[key],
                "problem": problems.get(f"{kind} {policy_text(key)}", ""),
            }


async def _in_pieces(rows: Iterable[dict[str, Any]]) -> list[msgspec.Raw]:
    """Encoded, a few in each turn of the loop."""
    made: list[msgspec.Raw] = []
    for row in rows:
        made.append(msgspec.Raw(_encode(row)))
        if len(made) % ROWS == 0:
            await asyncio.sleep(0)
    return made


def _changed(allocation: Allocation, pod: Pod) -> list[str]:
    """Annotations that were changed after ADD: they take effect with the next pod."""
    now, then = own_annotations(pod.annotations), own_annotations(allocation.annotations)
    return sorted(key for key in {*now, *then} if now.get(key) != then.get(key))
