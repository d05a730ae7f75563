"""The version of each policy that counts: its last good one, even if a later one is refused; else its closed form."""

from typing import Generic, TypeVar

from flock.core.policy.cluster import ParsedClusterPolicy
from flock.core.policy.compiled import PolicyKey
from flock.core.policy.parse import ParsedPolicy

P = TypeVar("P", ParsedPolicy, ParsedClusterPolicy)


class Versions(Generic[P]):
    """`problems`: policies whose latest version is refused, or closed in part (`limits`), and why."""

    def __init__(self) -> None:
        self.policies: dict[PolicyKey, P] = {}
        self.problems: dict[PolicyKey, str] = {}

    def take(self, parsed: P, *, limits: str = "") -> bool:
        """Whether this changed what counts."""
        known = self.policies.get(parsed.key)
        self.problems.pop(parsed.key, None)
        if problem := parsed.compiled.closed or limits:
            self.problems[parsed.key] = problem
        if parsed == known or (parsed.compiled.closed and known is not None and not known.compiled.closed):
            return False
        self.policies[parsed.key] = parsed
        self._replaced(parsed.key, known, parsed)
        return True

    def drop(self, key: PolicyKey) -> bool:
        self.problems.pop(key, None)
        known = self.policies.pop(key, None)
        if known is not None:
            self._replaced(key, known, None)
        return known is not None

    def _replaced(self, key: PolicyKey, old: P | None, new: P | None) -> None:
        """What counts is another one now."""
