"""Places for callers of a socket: a fixed number, so that no crowd of them takes the agent's descriptors.

Who comes when all are taken gets that of the caller who has been there longest without saying what it wants.  One that
has its request ready when it connects is heard long before it could be the longest.
"""

from typing import Protocol

# Connections accepted in one turn of the loop.  A caller is heard three turns after its own at the latest, so with four
# times as many places none that has its request ready loses its place to those who came after it.
AT_ONCE = 64
PLACES = 4 * AT_ONCE


class Caller(Protocol):
    def dismiss(self) -> None:
        """Hang up at once, and leave."""


class Callers:
    def __init__(self, places: int = PLACES) -> None:
        self._places = places
        self._taken: dict[Caller, None] = {}  # in the order in which they came
        self._closed = False

    def close(self) -> None:
        """Nobody is heard any more, also who has come already and not said what it wants."""
        self._closed = True
        for caller in list(self._taken):
            caller.dismiss()

    def enter(self, caller: Caller) -> None:
        if self._closed:
            caller.dismiss()
            return
        if len(self._taken) >= self._places:
            longest = next(iter(self._taken))
            self.leave(longest)
            longest.dismiss()
        self._taken[caller] = None

    def leave(self, caller: Caller) -> None:
        """It was heard, or is gone; one that has left already is no error."""
        self._taken.pop(caller, None)
