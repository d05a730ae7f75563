"""How many packets were dropped, by whom: sums of the largest, in bounded room.

Who is not among them takes the place of the smallest: whatever names a tenant makes up push out
each other, never one that counts more.
"""

from typing import Any

from flock.core.happenings import Dropped

MOST = 200  # sums
UNTOLD = ("", "untold")  # dropped, and nobody had the time to look by whom


class DropSums:
    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], tuple[int, float]] = {}  # by policies and what: how many, and when last

    def add(self, dropped: Dropped, *, untold: int, at: float) -> None:
        self._add((dropped.policies, dropped.what), 1, at)
        if untold:
            self._add(UNTOLD, untold, at)

    def _add(self, key: tuple[str, str], count: int, at: float) -> None:
        if key not in self._sums and len(self._sums) >= MOST:
            del self._sums[min(self._sums, key=lambda known: self._sums[known][0])]
        self._sums[key] = self._sums.get(key, (0, at))[0] + count, at

    def rows(self) -> list[dict[str, Any]]:
        """The largest first."""
        found = sorted(self._sums.items(), key=lambda item: (-item[1][0], item[0]))
        return [{"policies": policies, "what": what, "count": n, "last": at} for (policies, what), (n, at) in found]
