"""Whose turn it is, where not all nodes can be followed at a time.  Pure.

Who is looked at is followed for as long as that lasts, others are visited one after the other, longest unseen first.
Half of the places stay with those in turn, so that nobody's looking keeps the others from being seen.
"""

LOOKED = 60.0  # seconds for which a node is followed after somebody looked
PAUSE = 3.0  # between two turns of the same node: one that cannot be reached is not tried all the time


class Turns:
    def __init__(self, places: int) -> None:
        self._places = places
        self._last: dict[str, float] = {}  # node -> when its last turn ended
        self._looked: dict[str, float] = {}  # node -> when; latest last
        self._busy: set[str] = set()

    def know(self, nodes: set[str]) -> set[str]:
        """These are all; returns those that are not any more."""
        gone = self._last.keys() - nodes
        for name in gone:
            del self._last[name]
        for name in sorted(nodes - self._last.keys()):
            self._last[name] = float("-inf")
        return gone

    def look(self, nodes: tuple[str, ...], now: float) -> None:
        for name in nodes:
            if name in self._last:
                self._looked.pop(name, None)
                self._looked[name] = now

    def take(self, now: float) -> str | None:
        """The next one, which is busy until `done`; None if nobody has to be asked now."""
        waiting = [name for name, last in self._last.items() if name not in self._busy and last + PAUSE <= now]
        if not waiting:
            return None
        followed = self._followed(now)
        name = min(waiting, key=lambda name: (name not in followed, self._last[name]))
        self._busy.add(name)
        return name

    def done(self, name: str, now: float) -> bool:
        """Whether there still is such a node."""
        self._busy.discard(name)
        if name in self._last:
            self._last[name] = now
        return name in self._last

    def stays(self, name: str, now: float) -> bool:
        """Whether its turn lasts: there is a place for everybody, or it is looked at."""
        return name in self._last and (len(self._last) <= self._places or name in self._followed(now))

    def _followed(self, now: float) -> set[str]:
        """The latest of those that are looked at, for half of the places."""
        looked = [name for name, at in self._looked.items() if at + LOOKED > now]
        return set(looked[-(self._places // 2) :])
