"""Which policies are refused, in whole or in part, with what that means; and which of them are told to the people who
wrote them: they see their policies, and not the nodes' status.

Only nodes whose pods a policy is about tell, each version once, and at most one per namespace and PACE: whatever a
tenant writes, what is told about others' pods is not crowded out by it.  A ClusterNetworkPolicy that does not even say
whom it is about is told by every node; of all nodes' events about one of these and one mistake there is one.
"""

import time
from collections.abc import Iterator, Mapping

from flock.agent.happened import Happened
from flock.core.happenings import PolicyRefused
from flock.core.kinds import CLUSTER_POLICIES, POLICIES
from flock.core.policy.compiled import TRIED, PolicyKey
from flock.core.policy.index import PolicyIndex
from flock.core.policy.wording import policy_text

PACE = 60.0  # a node may write twelve times as many events


class Refusals:
    def __init__(self, index: PolicyIndex, happened: Happened) -> None:
        self._index = index
        self._happened = happened
        self._told: dict[PolicyKey, str] = {}
        self._told_at: dict[str, float] = {}  # by namespace

    @property
    def problems(self) -> dict[str, str]:
        """What is refused, why, and what is in force in its place."""
        found = {_name(key): self._judgement(key, problem) for key, problem in self._refused()}
        for key in self._index.sight.unseen:
            found.setdefault(_name(key), "whom it denies or passes on is not listed yet; it denies everybody meanwhile")
        return found

    def tell(self, problems: Mapping[PolicyKey, str]) -> None:
        """What was not told yet, as far as the pace allows."""
        now = time.monotonic()
        self._told_at = {namespace: at for namespace, at in self._told_at.items() if now - at < PACE}
        self._told = {key: said for key, said in self._told.items() if problems.get(key) == said}
        for key, problem in problems.items():
            if key not in self._told and key[0] not in self._told_at:
                self._happened.note(PolicyRefused(kind=_kind(key), policy=policy_text(key), problem=problem))
                self._told[key], self._told_at[key[0]] = problem, now

    def here(self) -> dict[PolicyKey, str]:
        """Of those that are about pods of this node."""
        in_use = self._index.compiled.policies
        return {key: self._judgement(key, why) for key, why in self._refused() if key in in_use or self._is_mute(key)}

    def _refused(self) -> Iterator[tuple[PolicyKey, str]]:
        """Of what is only tried, who tries it is told."""
        return ((key, why) for key, why in self._index.problems.items() if not key[1].endswith(TRIED))

    def _is_mute(self, key: PolicyKey) -> bool:
        """It does not say whom it is about."""
        above = self._index.cluster_policies.get(key)
        return above is not None and above.subject is None

    def _judgement(self, key: PolicyKey, problem: str) -> str:
        above = self._index.cluster_policies.get(key)
        if self._is_mute(key):
            said = "nobody knows whom it is about, so it does nothing"
        elif not self._index.is_closed(key):
            in_part = above is not None and "; ".join(above.limits) == problem
            said = "the rest of it is in force" if in_part else "its last good version stays in force"
        else:
            said = "it denies everything to and from its subjects" if above else "the pods it selects are isolated"
        return f"{problem}; {said}"


def _kind(key: PolicyKey) -> str:
    return (POLICIES if key[0] else CLUSTER_POLICIES).kind


def _name(key: PolicyKey) -> str:
    return f"{_kind(key)} {policy_text(key)}"
