"""Which chains are in use: a class by the pods in it, what it asks by the classes that jump to it."""

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from flock.core.policy.content import Pod, classes_of
from flock.core.policy.rules import Asked, Class

T = TypeVar("T")


class ChainUse:
    """Counts how many pods are in a class and how many classes jump to a policy's chain; what nobody uses is not
    there.  Knows afterwards which came into use and which fell out of it, and which policies some pod has left."""

    def __init__(self, classes: "Counter[Class]", chains: "Counter[Asked]") -> None:
        self._classes, self._chains = classes, chains
        self.new_classes: set[Class] = set()
        self.old_classes: set[Class] = set()
        self.new_chains: set[Asked] = set()
        self.old_chains: set[Asked] = set()
        self.left: set[Asked] = set()
        self._moves: tuple[tuple[Class, ...], tuple[Class, ...]] = ((), ())

    def change(self, old: Pod | None, new: Pod | None) -> None:
        before, now = (classes_of(*pod) if pod is not None else () for pod in (old, new))
        if before == now:
            return
        if new is not None and self._moves != (before, now):  # pods that move alike come one after the other
            self._moves = before, now
            self.left |= _chains_of(before) - _chains_of(now)
        for classes, step in ((now, +1), (before, -1)):
            for class_ in classes:
                if _step(self._classes, class_, step, self.new_classes, self.old_classes):
                    for asked in class_.asked():
                        _step(self._chains, asked, step, self.new_chains, self.old_chains)


def _chains_of(classes: Iterable[Class]) -> set[Asked]:
    return {asked for class_ in classes for asked in class_.asked()}


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
