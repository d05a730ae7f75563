"""Traffic that runs while things happen, and what it tells afterwards.

A `Ping` runs in a pod; an `Asker` in the client or a pod, with a question every few milliseconds, each a flow of its
own; `Drops` beside a node's agent.  All are processes of the lab, so they end with it.  Moments are seconds of the
monotonic clock, which all processes share.
"""

import re
import signal
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from flock.lab.hosts import Host
from flock.lab.traffic import Exchange, read

EVERY = 0.005  # seconds between questions: how fine gaps are measured
PING_EVERY = 0.02
LONGEST_DEMO = 300  # seconds; an asker nobody stops ends by itself
_REPLY = re.compile(r"\[(\d+\.\d+)\] .* icmp_seq=(\d+) ttl=")


class Moment(NamedTuple):
    """A line of the timeline."""

    at: float  # seconds since the demo began
    what: str
    measured: str


class Ping:
    def __init__(self, host: Host, address: str, *, name: str) -> None:
        """`name` tells its log from that of an earlier one."""
        self._host = host
        self._role = f"ping-{name}-{address}"
        host.spawn(self._role, ["ping", "-D", "-n", "-i", str(PING_EVERY), address])

    def _replies(self) -> dict[int, float]:
        """When each answer came, by sequence number."""
        text = self._host.log(self._role, lines=sys.maxsize)
        return {int(number): float(at) for at, number in _REPLY.findall(text)}

    def answered(self) -> int:
        return len(self._replies())

    def stop(self) -> tuple[int, int, float]:
        """Packets sent, those lost before the last answer, and the longest time without an answer."""
        self._host.stop(self._role, by=signal.SIGINT)
        replies = self._replies()
        sent = max(replies)
        return sent, sent - len(replies), max(later - earlier for earlier, later in pairwise(replies.values()))


class Asker:
    def __init__(self, host: Host, address: str) -> None:
        self._host = host
        self._role = f"ask-{address}"
        self.family = "IPv6" if ":" in address else "IPv4"
        command = [sys.executable, "-m", "flock.lab.traffic", "ask", address]
        host.spawn(self._role, [*command, "--every", str(EVERY), "--for", str(LONGEST_DEMO)])

    def exchanges(self, since: float = 0.0) -> list[Exchange]:
        """What was asked from `since` on, and settled by now: a question nobody answers is lost after 0.2 s."""
        lines = self._host.log(self._role, lines=sys.maxsize).splitlines()
        complete = (line for line in lines if line.endswith("}"))  # the last one may be half written
        return sorted((e for e in read(complete) if e.at >= since), key=lambda e: e.at)

    def stop(self) -> None:
        self._host.stop(self._role)


class Drops:
    def __init__(self, host: Host, run_dir: Path) -> None:
        """Follows what the node's policies drop."""
        self._host = host
        self.command = ("flockctl", "--run-dir", str(run_dir), "policy", "drops", "-f")
        host.spawn("drops", [str(Path(sys.executable).parent / self.command[0]), *self.command[1:]])

    def lines(self, about: str) -> list[str]:
        return [line for line in self._host.log("drops", lines=sys.maxsize).splitlines() if about in line]

    def stop(self) -> None:
        self._host.stop("drops")


# --- what exchanges tell; pure ------------------------------------------------------------------------------


def by(replica: str, exchanges: Iterable[Exchange]) -> list[Exchange]:
    return [e for e in exchanges if e.answer == replica]


def answered(exchanges: Iterable[Exchange]) -> list[Exchange]:
    return [e for e in exchanges if e.answer is not None]


def lost(exchanges: Iterable[Exchange]) -> list[Exchange]:
    return [e for e in exchanges if e.answer is None]


def milliseconds(seconds: float) -> str:
    return f"{max(0.0, seconds) * 1000:.0f} ms"
