"""Which refused policies are told to the people who wrote them: they see their policies, and not the nodes' status.

Only nodes whose pods a policy isolates tell, each version once, and at most one per namespace and PACE: whatever a
tenant writes, what is told about others' pods is not crowded out by it.
"""

import time
from collections.abc import Mapping

from flock.agent.happened import Happened
from flock.core.happenings import PolicyRefused
from flock.core.policy.compiled import PolicyKey

PACE = 60.0  # a node may write twelve times as many events


class Refusals:
    def __init__(self, happened: Happened) -> None:
        self._happened = happened
        self._told: dict[PolicyKey, str] = {}
        self._told_at: dict[str, float] = {}  # by namespace

    def tell(self, problems: Mapping[PolicyKey, str]) -> None:
        """What was not told yet, as far as the pace allows."""
        now = time.monotonic()
        self._told_at = {namespace: at for namespace, at in self._told_at.items() if now - at < PACE}
        self._told = {key: said for key, said in self._told.items() if problems.get(key) == said}
        for key, problem in problems.items():
            namespace, name = key
            if key not in self._told and namespace not in self._told_at:
                self._happened.note(PolicyRefused(policy=f"{namespace}/{name}", problem=problem))
                self._told[key], self._told_at[namespace] = problem, now
