"""How long calls of a CNI plugin took, noted by `timed.c` in the plugin's place, and what an agent spent on lives."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launching import BenchError
from measuring import percentile

NOTES = Path("/run/cni-times")  # on the node; timed.c knows it too
AWAY = ".timed"  # what the plugin's own name gets


@dataclass(frozen=True)
class Call:
    """Times are of the machine's monotonic clock, in nanoseconds."""

    plugin: str
    verb: str
    container: str
    start: int
    end: int
    status: int

    @property
    def ms(self) -> float:
        return (self.end - self.start) / 1e6


def stand_in(program: Path, plugin: Path) -> None:
    """Have calls of a plugin noted from now on by `timed.c`, compiled.

    The name is never without a program: whoever finds flock's missing takes it for uninstalled.
    """
    partial = plugin.with_name(f".{plugin.name}.partial")
    if plugin.read_bytes() == program.read_bytes():
        return  # it would wait for itself
    shutil.copy(plugin, partial)
    partial.replace(plugin.with_name(plugin.name + AWAY))
    shutil.copy(program, partial)
    partial.replace(plugin)


def read_calls(notes: Path, *, since: int = 0) -> list[Call]:
    """Those that began since then, in the order in which they ended; none where nothing was noted yet."""
    try:
        text = notes.read_text()
    except FileNotFoundError:
        return []
    calls = [_parsed(line) for line in text.splitlines()]
    return [call for call in calls if call.start >= since]


def _parsed(line: str) -> Call:
    try:
        plugin, verb, container, start, end, status = line.split(" ")
        return Call(plugin, verb, container, int(start), int(end), int(status))
    except ValueError:
        raise BenchError(f"not a note of a call: {line!r}") from None


def succeeded(calls: Iterable[Call], *, plugin: str, verb: str) -> list[Call]:
    """The first that did for each container: a runtime may ask again for what it has."""
    first: dict[str, Call] = {}
    for call in calls:
        if (call.plugin, call.verb, call.status) == (plugin, verb, 0):
            first.setdefault(call.container, call)
    return list(first.values())


@dataclass
class Cost:
    """An agent's CPU over some time, in which so many pods lived."""

    lives: int = 0
    cpu_ms: float = 0.0
    seconds: float = 0.0
    calls: dict[str, int] = field(default_factory=dict)  # of the plugin, by verb

    @classmethod
    def of_all(cls, costs: Sequence["Cost"]) -> "Cost":
        """Together, calls left out."""
        sums = (sum(getattr(cost, name) for cost in costs) for name in ("lives", "cpu_ms", "seconds"))
        return cls(*sums)

    @property
    def rate(self) -> float:
        """Milliseconds a second."""
        return self.cpu_ms / self.seconds

    def of_a_life(self, *, quiet: float) -> float:
        """Milliseconds, without what it would have spent anyway, `quiet` of them a second."""
        return (self.cpu_ms - quiet * self.seconds) / self.lives


@dataclass(frozen=True)
class Summary:
    """Milliseconds.  `elapsed`: from the first's start to the last's end."""

    count: int
    p50: float
    p95: float
    total: float
    elapsed: float

    @classmethod
    def of(cls, calls: Sequence[Call]) -> "Summary":
        spans = [call.ms for call in calls]
        elapsed = (max(call.end for call in calls) - min(call.start for call in calls)) / 1e6
        return cls(len(calls), percentile(spans, 50), percentile(spans, 95), sum(spans), elapsed)
