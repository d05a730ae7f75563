"""Prometheus' text format: numbers that others keep, read when somebody asks, and a histogram of durations."""

import bisect
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

# Around what an ADD takes (milliseconds) and what a runtime puts up with (seconds).
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Samples = Iterable[tuple[dict[str, str], float]]


class Metric(NamedTuple):
    """`read` gives the number of this moment; where there are labels, one for each set of them."""

    name: str
    kind: Literal["gauge", "counter"]
    text: str
    read: Callable[[], float | Samples]

    def lines(self) -> Iterator[str]:
        yield from head(self.name, self.kind, self.text)
        value = self.read()
        for labels, number in [({}, value)] if isinstance(value, int | float) else value:
            yield f"{self.name}{_braces(labels)} {_number(number)}"


class Histogram:
    """Durations by labels, as Prometheus counts them."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._counts: dict[tuple[tuple[str, str], ...], list[int]] = {}
        self._sums: dict[tuple[tuple[str, str], ...], float] = {}

    def observe(self, seconds: float, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        counts = self._counts.setdefault(key, [0] * (len(BUCKETS) + 1))
        counts[bisect.bisect_left(BUCKETS, seconds)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + seconds

    def lines(self) -> Iterator[str]:
        yield from head(self._name, "histogram", self._text)
        for key, counts in sorted(self._counts.items()):
            total = 0
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                total += count
                yield f"{self._name}_bucket{_braces(dict(key) | {'le': bound})} {total}"
            yield f"{self._name}_sum{_braces(dict(key))} {self._sums[key]:.6f}"
            yield f"{self._name}_count{_braces(dict(key))} {total}"


def head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _number(number: float) -> str:
    """To the last digit: a counter that is rounded stands still, and then jumps."""
    if math.isfinite(number):
        return str(int(number)) if number == int(number) else repr(number)
    return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"


def _braces(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    quoted = (f'{key}="{_escaped(value)}"' for key, value in labels.items())
    return f"{{{','.join(quoted)}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
