"""Numbers of pods, by which connections are known to be *theirs*.

A connection that was let through carries numbers in its mark: in one half that of the pod it comes from, in the other
that of the pod it goes to.  A pod has one as source and one as destination, at first the same.  Where the connections
it opened, or those it took, are to be judged again, this happens in two steps.  `renew`: the number becomes an earlier
one, so that no connection is established any more.  `settle`, later: a new number takes its place.  Between the two no
connection can get a number that counts by a packet that was judged before.

A pod keeps the last earlier number, which says that a connection is its own; older ones are retired.  A connection
with a retired number is nobody's, and judged anew.  Numbers are handed out in a circle of 32767, and one that is taken
is skipped: a retired one comes up again as late as possible.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Literal

import msgspec

from flock.core.errors import FlockError
from flock.core.policy.compiled import Direction

HIGHEST = 0x7FFF  # 0 means: no pod of this node
Side = Literal["source", "destination"]
SIDES: dict[Direction, Side] = {"ingress": "destination", "egress": "source"}


EARLIER = 1  # numbers a pod keeps for each direction: 8,000 pods at least find a number


class Numbered(msgspec.Struct, frozen=True):
    """`earlier` from the oldest on.  As long as `current` is among them, no connection is established by it."""

    current: int
    earlier: tuple[int, ...] = ()

    @property
    def settled(self) -> bool:
        return self.current not in self.earlier


class PodNumbers(msgspec.Struct, frozen=True):
    source: Numbered
    destination: Numbered
    overfull: bool = False  # it has opened more connections than it may

    @property
    def settled(self) -> bool:
        return self.source.settled and self.destination.settled

    def on(self, direction: Direction) -> Numbered:
        """Connections a policy of this direction judges carry these."""
        return self.destination if direction == "ingress" else self.source

    def all(self) -> Iterator[int]:
        for side in (self.source, self.destination):
            yield side.current
            yield from side.earlier


class Numbers:
    def __init__(self, known: Mapping[str, PodNumbers] | None = None, *, start: int = 1) -> None:
        """`known`: what the kernel has, by interface; larger ones, of an older version, are lost.  `start`: where to
        begin, best a random place, so that an agent that lost its numbers does not give out those that live connections
        carry."""
        self._known = {i: pod for i, pod in (known or {}).items() if max(pod.all()) <= HIGHEST}
        self._taken = {number for pod in self._known.values() for number in pod.all()}
        self._retired: dict[int, str] = {}  # whose a number was that nobody has
        self._renewals = 0
        # Pods that wait for new numbers, by interface, with how many renewals there had been.
        self.unsettled = {i: 0 for i, pod in self._known.items() if not pod.settled}
        self._next = start

    def of(self, interface: str) -> PodNumbers:
        """The pod's numbers; a new pod gets one."""
        known = self._known.get(interface)
        if known is None:
            number = Numbered(self._take())
            known = self._known[interface] = PodNumbers(number, number)
        return known

    def renew(self, interface: str, direction: Direction) -> None:
        """What the pod has open in this direction is judged again, packet by packet until it is settled."""
        old = self.of(interface).on(direction)
        if old.settled:
            self._set(interface, direction, Numbered(old.current, (*old.earlier, old.current)[-EARLIER:]))
        self._renewals += 1
        self.unsettled[interface] = self._renewals

    def settle(self, interface: str) -> None:
        """New numbers; what is allowed is established with them from its next packet on."""
        for direction in SIDES:
            old = self.of(interface).on(direction)
            if not old.settled:
                self._set(interface, direction, Numbered(self._take(), old.earlier))
        self.unsettled.pop(interface, None)

    def limit(self, interface: str, *, overfull: bool) -> None:
        self._known[interface] = msgspec.structs.replace(self.of(interface), overfull=overfull)

    def opened(self, by_number: Mapping[int, int]) -> dict[str, int]:
        """How many connections each pod has opened, of those that carry each number as source."""
        found = {i: sum(by_number.get(n, 0) for n in set(pod.all())) for i, pod in self._known.items()}
        for number in self._retired.keys() & by_number.keys():
            if self._retired[number] in found:
                found[self._retired[number]] += by_number[number]
        return found

    def release(self, interface: str) -> None:
        """The pod is gone."""
        old = self._known.pop(interface, None)
        self.unsettled.pop(interface, None)
        if old is not None:
            self._taken.difference_update(old.all())

    def keep_only(self, interfaces: Collection[str]) -> None:
        for interface in self._known.keys() - set(interfaces):
            self.release(interface)

    def _set(self, interface: str, direction: Direction, numbered: Numbered) -> None:
        old = self._known[interface]
        new = self._known[interface] = msgspec.structs.replace(old, **{SIDES[direction]: numbered})
        retired = set(old.all()) - set(new.all())
        self._taken -= retired
        self._retired.update(dict.fromkeys(retired, interface))

    def _take(self) -> int:
        if len(self._taken) >= HIGHEST:
            raise FlockError(f"all {HIGHEST} numbers for telling pods' connections apart are taken")
        while self._next in self._taken or not 1 <= self._next <= HIGHEST:
            self._next = self._next % HIGHEST + 1
        number = self._next
        self._taken.add(number)
        self._retired.pop(number, None)
        self._next = number % HIGHEST + 1
        return number
