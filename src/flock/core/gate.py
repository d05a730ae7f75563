"""What is known of a Service's health port, and when it is asked next.  Pure: time is passed in.

kube-proxy serves `spec.healthCheckNodePort` and says 200 there while it has endpoints on the node, once its rules are
in the kernel: the one sign that a Service with externalTrafficPolicy Local is delivered.  200 is yes, any other answer
no.  No answer is no where there was never a 200; else it takes MISSES in a row, for a kube-proxy that restarts leaves
its rules in force.
"""

import msgspec

OK = 200
MISSES = 2
EAGER, EAGER_FOR, PERIOD = 0.02, 10.0, 5.0  # seconds: while it is waited for, for so long, and else
# Asked as eagerly as that at a time; of more, each less often.  An answer takes up to a millisecond of the agent's
# time, and who makes Services may change them, and their endpoints, all the time.
EAGERLY = 2


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """`open`: yes.  `answered`: it said 200 before, to this life of the agent or, if it was adopted, to another."""

    open: bool = False
    answered: bool = False
    misses: int = 0
    changed: float  # when endpoints last did

    @staticmethod
    def new(now: float, *, adopted: bool = False) -> "Gate":
        """`adopted`: it is announced already, and no endpoints changed that anybody knows of."""
        return Gate(open=adopted, answered=adopted, changed=now - EAGER_FOR if adopted else now)

    def heard(self, status: int | None) -> "Gate":
        """What the port said: the status of its answer, None if there was none."""
        if status is None:
            misses = self.misses + 1
            still = self.open and self.answered and misses < MISSES
            return msgspec.structs.replace(self, open=still, misses=misses)
        return msgspec.structs.replace(self, open=status == OK, answered=self.answered or status == OK, misses=0)

    def after_change(self, now: float) -> "Gate":
        """Of endpoints: it is waited for again."""
        return msgspec.structs.replace(self, changed=now)

    def is_awaited(self, now: float) -> bool:
        """Does it differ from what endpoints, which changed lately, promise?"""
        agrees = self.open and not self.misses
        return not agrees and now < self.changed + EAGER_FOR

    def pause(self, now: float, *, awaited: int = 1) -> float:
        """Until it is asked again.  `awaited`: how many are, this one among them."""
        return min(EAGER * max(1.0, awaited / EAGERLY), PERIOD) if self.is_awaited(now) else PERIOD
