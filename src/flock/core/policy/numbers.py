"""Numbers of pods, by which connections are known to be *theirs*.

A connection that was let through carries numbers in its mark: in one half that of the pod it comes from, in the other
that of the pod it goes to.  A pod has one as source and one as destination, at first the same.  It gets a new one where
the connections it opened, or those it took, are to be judged again; the earlier ones are kept, because they still say
whose a connection is.

A number is never given to another pod while connections carry it: they are handed out in a circle of 65535, and one
that is taken is skipped.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Literal

import msgspec

from flock.core.errors import FlockError
from flock.core.policy.compiled import Direction

HIGHEST = 0xFFFF  # 0 means: no pod of this node
Side = Literal["source", "destination"]
SIDES: dict[Direction, Side] = {"ingress": "destination", "egress": "source"}


class Numbered(msgspec.Struct, frozen=True):
    current: int
    earlier: tuple[int, ...] = ()


class PodNumbers(msgspec.Struct, frozen=True):
    source: Numbered
    destination: Numbered
    overfull: bool = False  # more connections carry them than may

    def on(self, direction: Direction) -> Numbered:
        """Connections a policy of this direction judges carry these."""
        return self.destination if direction == "ingress" else self.source

    def all(self) -> Iterator[int]:
        for side in (self.source, self.destination):
            yield side.current
            yield from side.earlier


class Numbers:
    def __init__(self, known: Mapping[str, PodNumbers] | None = None, *, start: int = 1) -> None:
        """`known`: what the kernel has, by interface.  `start`: where to begin, best a random place, so that an agent
        that lost its numbers does not give out those that live connections carry."""
        self._known = dict(known or {})
        self._taken = {number for pod in self._known.values() for number in pod.all()}
        self._next = start

    def of(self, interface: str) -> PodNumbers:
        """The pod's numbers; a new pod gets one."""
        known = self._known.get(interface)
        if known is None:
            number = Numbered(self._take())
            known = self._known[interface] = PodNumbers(number, number)
        return known

    def renew(self, interface: str, direction: Direction) -> None:
        """A new number: what the pod has open in this direction is judged again."""
        old = self.of(interface).on(direction)
        self._set(interface, direction, Numbered(self._take(), (*old.earlier, old.current)))

    def retire(self, interface: str, numbers: Collection[int]) -> None:
        """Forget earlier numbers that no connection carries any more."""
        for direction in SIDES:
            old = self.of(interface).on(direction)
            self._set(interface, direction, Numbered(old.current, tuple(n for n in old.earlier if n not in numbers)))
        still = {number for pod in self._known.values() for number in pod.all()}
        self._taken -= set(numbers) - still

    def limit(self, interface: str, *, overfull: bool) -> None:
        self._known[interface] = msgspec.structs.replace(self.of(interface), overfull=overfull)

    def flows(self, by_number: Mapping[int, int]) -> dict[str, int]:
        """How many connections each pod has, of those that carry each number."""
        return {i: sum(by_number.get(n, 0) for n in set(pod.all())) for i, pod in self._known.items()}

    def release(self, interface: str) -> None:
        """The pod is gone."""
        old = self._known.pop(interface, None)
        if old is not None:
            self._taken.difference_update(old.all())

    def keep_only(self, interfaces: Collection[str]) -> None:
        for interface in self._known.keys() - set(interfaces):
            self.release(interface)

    @property
    def crowded(self) -> bool:
        """So many are taken that it is time to retire earlier ones."""
        return len(self._taken) > HIGHEST // 2

    def _set(self, interface: str, direction: Direction, numbered: Numbered) -> None:
        changed = msgspec.structs.replace(self._known[interface], **{SIDES[direction]: numbered})
        self._known[interface] = changed

    def _take(self) -> int:
        if len(self._taken) >= HIGHEST:
            raise FlockError("all 65535 numbers for telling pods' connections apart are taken")
        while self._next in self._taken or not 1 <= self._next <= HIGHEST:
            self._next = self._next % HIGHEST + 1
        number = self._next
        self._taken.add(number)
        self._next = number % HIGHEST + 1
        return number
