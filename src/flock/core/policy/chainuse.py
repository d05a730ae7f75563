"""Which chains are in use: a class by the pods in it, a policy's chain by the classes that jump to it."""

from collections import Counter
from typing import TypeVar

from flock.core.policy.compiled import PolicyKey, Subject
from flock.core.policy.content import classes_of
from flock.core.policy.numbers import PodNumbers
from flock.core.policy.rules import Class, Kind

Pod = tuple[Subject, PodNumbers]
PolicyChain = tuple[Kind, PolicyKey]
T = TypeVar("T")


class ChainUse:
    """Counts how many pods are in a class and how many classes jump to a policy's chain; what nobody uses is not
    there.  Knows afterwards which came into use and which fell out of it, and which policies some pod has left."""

    def __init__(self, classes: "Counter[Class]", chains: "Counter[PolicyChain]") -> None:
        self._classes, self._chains = classes, chains
        self.new_classes: set[Class] = set()
        self.old_classes: set[Class] = set()
        self.new_chains: set[PolicyChain] = set()
        self.old_chains: set[PolicyChain] = set()
        self.left: set[PolicyChain] = set()

    def change(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None:
            self.left |= _chains_of(old) - _chains_of(new)
        for pod, step in ((new, +1), (old, -1)):
            for class_ in classes_of(*pod) if pod is not None else ():
                if _step(self._classes, class_, step, self.new_classes, self.old_classes):
                    for key in class_.policies:
                        _step(self._chains, (class_.kind, key), step, self.new_chains, self.old_chains)


def _chains_of(pod: Pod | None) -> set[PolicyChain]:
    return {(c.kind, key) for c in classes_of(*pod) for key in c.policies} if pod is not None else set()


def _step(counter: "Counter[T]", what: T, step: int, new: set[T], old: set[T]) -> bool:
    """Count up or down; True if this made it used or unused."""
    counter[what] += step
    if counter[what] == 0:
        del counter[what]
        new.discard(what) if what in new else old.add(what)
        return True
    if counter[what] == 1 and step == 1:
        old.discard(what) if what in old else new.add(what)
        return True
    return False
