"""Whose changes wait: nobody's edits keep the kernel from others for long.

Changing chains, or the members of many groups, takes ten milliseconds and more, and an ADD that comes meanwhile waits
for it.  So a namespace whose changes have taken more than its share of the time is not taken in again until it has
caught up; what it changed meanwhile is then one change.  Nobody who edits by hand, or applies some hundred policies at
once, notices; nor does it matter to who has caught up how many others have not.
"""

from collections.abc import Callable, Mapping

SHARE = 0.2  # of the time, over a while: ADDs then meet others' changes one time in five
CREDIT = 0.5  # seconds that can be taken at once: a thousand small policies, or fifty edits one after the other


class Pacing:
    """`clock` in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._balances: dict[str, tuple[float, float]] = {}  # by namespace: seconds left, as of when
        self._debtors: set[str] = set()  # those who have taken more than they had

    def charge(self, costs: Mapping[str, int], seconds: float) -> None:
        """Their changes, together, took so long; each pays for its part, by what they cost."""
        now, total = self._clock(), sum(costs.values())
        for namespace, cost in costs.items():
            self._set(namespace, self._balance(namespace, now) - seconds * cost / total, now)
        full = [name for name in self._balances if self._balance(name, now) >= CREDIT]
        for namespace in full:
            del self._balances[namespace]
            self._debtors.discard(namespace)

    def wait(self, namespace: str) -> float:
        """Seconds until the namespace's changes are taken in again; 0 for nearly everybody."""
        if namespace not in self._debtors:
            return 0.0
        now = self._clock()
        balance = self._balance(namespace, now)
        if balance < 0:
            return -balance / self._share(namespace)
        self._set(namespace, balance, now)
        return 0.0

    def _set(self, namespace: str, balance: float, now: float) -> None:
        if (balance < 0) != (namespace in self._debtors):  # from now on the debtors' share is another
            self._balances |= {debtor: (self._balance(debtor, now), now) for debtor in self._debtors}
        self._balances[namespace] = balance, now
        (self._debtors.add if balance < 0 else self._debtors.discard)(namespace)

    def _balance(self, namespace: str, now: float) -> float:
        left, then = self._balances.get(namespace, (CREDIT, now))
        return min(CREDIT, left + (now - then) * self._share(namespace))

    def _share(self, namespace: str) -> float:
        """All who took more than they had have one between them."""
        return SHARE / (len(self._debtors) if namespace in self._debtors else 1)
