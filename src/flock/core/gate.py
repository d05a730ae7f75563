"""What is known of a Service's health port, and when it is asked next.  Pure: time is passed in.

kube-proxy serves `spec.healthCheckNodePort` and says 200 there while it has endpoints on the node, once its rules are
in the kernel: the one sign that a Service with externalTrafficPolicy Local is delivered.  200 is yes, any other answer
no.  No answer is no where there was never a 200; else it takes MISSES in a row, for a kube-proxy that restarts leaves
its rules in force.

What it says is of the endpoints it has programmed, and it does not say which those are.  So a 200 is doubted for as
long as it may be behind: its next word is heard soon, whatever it said first.
"""

import msgspec

OK = 200
MISSES = 2
EAGER, EAGER_FOR, PERIOD = 0.02, 10.0, 5.0  # seconds: while it is waited for, for so long, and else
DOUBTFUL = 0.25  # seconds: while it says 200 and may not have noticed yet what changed
# Asked as eagerly as that at a time; of more, each less often.  An answer takes up to a millisecond of the agent's
# time, and who makes Services may change them, and their endpoints, all the time.
EAGERLY, DOUBTFULLY = 2, 5
# Seconds without an answer after which a kube-proxy that said 200 of what is there now is not one that restarts.  Two
# questions that are PERIOD apart are enough.
SILENCE = 4.0
# Questions that wait for nothing, because something changed: a second, and saved up while nothing did.  A node that
# starts has some hundred Services to ask about.
AT_ONCE, SAVED = 100.0, 1000.0


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """`open`: yes.  `answered`: it said 200 before, to this life of the agent or, if it was adopted, to another.
    `agreed`: since endpoints changed."""

    open: bool = False
    answered: bool = False
    agreed: bool = False
    misses: int = 0
    missed: float = 0.0  # when it did not answer for the first time, if there are misses
    changed: float  # when endpoints last did

    @staticmethod
    def new(now: float, *, adopted: bool = False) -> "Gate":
        """`adopted`: it is announced already, and no endpoints changed that anybody knows of."""
        return Gate(open=adopted, answered=adopted, agreed=adopted, changed=now - EAGER_FOR if adopted else now)

    def heard(self, status: int | None, now: float) -> "Gate":
        """What the port said: the status of its answer, None if there was none."""
        if status is None:
            misses, missed = self.misses + 1, self.missed if self.misses else now
            may_restart = misses < MISSES or (self.agreed and now < missed + SILENCE)
            still = self.open and self.answered and may_restart
            return msgspec.structs.replace(self, open=still, misses=misses, missed=missed)
        said = status == OK
        return msgspec.structs.replace(
            self, open=said, answered=self.answered or said, agreed=self.agreed or said, misses=0
        )

    def after_change(self, now: float) -> "Gate":
        """Of endpoints: it is waited for again."""
        return msgspec.structs.replace(self, changed=now, agreed=False)

    def is_awaited(self, now: float) -> bool:
        """Does it differ from what endpoints, which changed lately, promise?"""
        agrees = self.open and (self.agreed or not self.misses)
        return not agrees and self._may_be_behind(now)

    def is_doubted(self, now: float) -> bool:
        """Does it promise what may be true of former endpoints alone?"""
        return self._may_be_behind(now) and not self.is_awaited(now)

    def _may_be_behind(self, now: float) -> bool:
        return now < self.changed + EAGER_FOR

    def pause(self, now: float, *, awaited: int = 1, doubted: int = 1) -> float:
        """Until it is asked again.  `awaited`, `doubted`: how many are, this one among them."""
        if self.is_awaited(now):
            return min(EAGER * max(1.0, awaited / EAGERLY), PERIOD)
        return min(DOUBTFUL * max(1.0, doubted / DOUBTFULLY), PERIOD) if self.is_doubted(now) else PERIOD


class AtOnce:
    """How many may be asked without a pause, whoever changes what how often."""

    def __init__(self, now: float) -> None:
        self._left, self._then = SAVED, now

    def take(self, now: float) -> bool:
        """May one more?"""
        self._left, self._then = min(SAVED, self._left + (now - self._then) * AT_ONCE), now
        if self._left < 1:
            return False
        self._left -= 1
        return True
