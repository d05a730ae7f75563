"""Whose changes wait: nobody's edits keep the kernel from others for long.

Changing chains, or the members of many groups, takes ten milliseconds and more, and an ADD that comes meanwhile waits
for it.  So a namespace whose changes have taken more than its share of the time is not taken in again until it has
caught up; what it changed meanwhile is then one change.  Nobody who edits by hand, or applies some hundred policies at
once, notices.
"""

from collections.abc import Callable, Mapping

SHARE = 0.2  # of the time, over a while: ADDs then meet others' changes one time in five
CREDIT = 0.5  # seconds that can be taken at once: a thousand small policies, or fifty edits one after the other


class Pacing:
    """`clock` in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._then = clock()
        self._balances: dict[str, float] = {}  # by namespace: seconds left, of those who lack some
        self._debtors: set[str] = set()  # those who have taken more than they had

    def charge(self, costs: Mapping[str, int], seconds: float) -> None:
        """Their changes, together, took so long; each pays for its part, by what they cost."""
        self._catch_up()
        total = sum(costs.values())
        for namespace, cost in costs.items():
            self._balances[namespace] = self._balances.get(namespace, CREDIT) - seconds * cost / total
        self._debtors = {name for name, balance in self._balances.items() if balance < 0}

    def wait(self, namespace: str) -> float:
        """Seconds until the namespace's changes are taken in again; 0 for nearly everybody."""
        if namespace in self._debtors:
            self._catch_up()
        if namespace not in self._debtors:
            return 0.0
        return -self._balances[namespace] * len(self._debtors) / SHARE

    def _catch_up(self) -> None:
        """There is one share for all: first for those who took more than they had, then for those who took some."""
        now = self._clock()
        heirs = self._debtors or self._balances.keys()
        gained = (now - self._then) * SHARE / max(1, len(heirs))
        caught_up = {name: b + gained if name in heirs else b for name, b in self._balances.items()}
        self._balances = {name: balance for name, balance in caught_up.items() if balance < CREDIT}
        self._debtors = {name for name in self._debtors if self._balances.get(name, 0.0) < -1e-9}
        self._then = now
