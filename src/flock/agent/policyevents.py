"""Events about refused policies, for the people who wrote them: they see their policies, and not the nodes' status.

Only nodes whose pods a policy isolates tell, each version once, and at most one event per namespace and PACE: whatever
a tenant writes, events about others' pods are not crowded out by it.
"""

import time

from flock.agent.policies import Policies
from flock.core.policy.compiled import PolicyKey
from flock.edge.kube.writer import KubeWriter
from flock.edge.source import Source

PACE = 60.0  # a node may tell twelve times as often


class PolicyEvents:
    def __init__(self, *, policies: Policies, source: Source, writer: KubeWriter) -> None:
        self._policies = policies
        self._source = source
        self._writer = writer
        self._told: dict[PolicyKey, str] = {}
        self._told_at: dict[str, float] = {}  # by namespace

    async def tell(self) -> None:
        """What was not told yet, as far as the pace allows.  Never fails."""
        now = time.monotonic()
        self._told_at = {namespace: at for namespace, at in self._told_at.items() if now - at < PACE}
        problems = self._policies.problems_here()
        self._told = {key: said for key, said in self._told.items() if problems.get(key) == said}
        for key, problem in problems.items():
            namespace, name = key
            if key in self._told or namespace in self._told_at:
                continue
            metadata = self._source.network_policies.get(key, {}).get("metadata") or {}
            await self._writer.policy_event(
                namespace=namespace, name=name, uid=str(metadata.get("uid", "")), message=problem
            )
            self._told[key], self._told_at[namespace] = problem, now
