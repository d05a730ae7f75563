"""Pods of this node as they are judged, as of the last commit, and which policies that brings into use."""

from collections import Counter
from collections.abc import Iterable, Iterator

from flock.core.policy.compiled import DIRECTIONS, PolicyKey, Subject
from flock.core.policy.crowds import Crowds


class Subjects:
    def __init__(self, crowds: Crowds) -> None:
        self.known: dict[str, Subject] = {}  # by interface
        self._users: Counter[PolicyKey] = Counter()  # subjects whose verdicts name the policy
        self._crowds = crowds

    def names(self, policy: PolicyKey) -> bool:
        """Is anybody judged by it, or would be?"""
        return policy in self._users

    def commit(self, now: Iterable[tuple[str, Subject | None]]) -> tuple[list[Subject], list[str], set[PolicyKey]]:
        """Those that changed, interfaces of those that went, and policies that others are judged by than before."""
        changed: list[Subject] = []
        gone: list[str] = []
        policies: set[PolicyKey] = set()
        for interface, new in now:
            old = self.known.get(interface)
            if new == old:
                continue
            if new is None:
                del self.known[interface]
                gone.append(interface)
            else:
                self.known[interface] = new
                changed.append(new)
            policies.update(self._count(new, +1))
            policies.update(self._count(old, -1))
        return changed, gone, policies

    def _count(self, subject: Subject | None, step: int) -> Iterator[PolicyKey]:
        if subject is None:
            return
        judging = (subject.verdicts, *((subject.audit.verdicts,) if subject.audit else ()))
        for key in {key for verdicts in judging for direction in DIRECTIONS for key in verdicts.named(direction)}:
            self._users[key] += step
            if not self._users[key]:
                del self._users[key]
            yield key
        self._crowds.count(subject, step)
