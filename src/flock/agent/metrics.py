"""Prometheus text at /metrics.  No label grows with the number of pods: verbs, outcomes, pools, peers, kinds of repair.

Counters that others keep are read when somebody asks; only the verbs' durations are collected here.
"""

import bisect
from collections.abc import Callable, Iterable, Iterator

# Around what an ADD takes (milliseconds) and what a runtime puts up with (seconds).
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Sample = tuple[dict[str, str], float]
Read = Callable[[], Iterable[Sample]]


class Histogram:
    """Durations by labels, as Prometheus counts them."""

    def __init__(self) -> None:
        self._counts: dict[tuple[tuple[str, str], ...], list[int]] = {}
        self._sums: dict[tuple[tuple[str, str], ...], float] = {}

    def observe(self, seconds: float, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        counts = self._counts.setdefault(key, [0] * (len(BUCKETS) + 1))
        counts[bisect.bisect_left(BUCKETS, seconds)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + seconds

    def lines(self, name: str) -> Iterator[str]:
        for key, counts in sorted(self._counts.items()):
            total = 0
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                total += count
                yield f"{name}_bucket{_braces(dict(key) | {'le': bound})} {total}"
            yield f"{name}_sum{_braces(dict(key))} {self._sums[key]:.6f}"
            yield f"{name}_count{_braces(dict(key))} {total}"


class Metrics:
    def __init__(self) -> None:
        self.verbs = Histogram()
        self._read: list[tuple[str, str, str, Read]] = []

    def add(self, name: str, kind: str, text: str, read: Read) -> None:
        """`kind` is gauge or counter; `read` gives the samples of this moment."""
        self._read.append((name, kind, text, read))

    def render(self) -> str:
        lines = ["# HELP flock_cni_seconds Duration of CNI calls.", "# TYPE flock_cni_seconds histogram"]
        lines += self.verbs.lines("flock_cni_seconds")
        for name, kind, text, read in self._read:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_braces(labels)} {value:g}" for labels, value in read()]
        return "\n".join(lines) + "\n"


def _braces(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    quoted = (f'{key}="{_escaped(value)}"' for key, value in labels.items())
    return f"{{{','.join(quoted)}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
