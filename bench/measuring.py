"""What a measurement is, what it hands back, and the steps most of them share.

A further measurement is a module with a class that has a `name`, a `title` and `run(bench) -> Outcome`, and a line in
`run.py`.  It brings its contenders on stage with `bench.enter`, which notes those that fail and lets the rest carry on.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from contenders import ENTRY_BYTES, Contender, Flock, Floor
from launching import FAILURES, Command, Launcher, Run
from world import Pod, World

T = TypeVar("T")

FOLDED = 1.0  # seconds after which flock's file has all there is


@dataclass(frozen=True)
class Effort:
    """How much is measured; `quick` only shows that everything works."""

    cycles: int = 2  # of `rounds` ADDs and as many DELs
    rounds: int = 100
    dual_rounds: int = 6  # of them with the dual-stack reference, 1.8 s each
    bursts: int = 4
    burst_pods: int = 100
    levels: tuple[int, ...] = (10, 110, 1000)  # pods on the node
    probes: int = 60  # ADDs at each level
    idle_level: int = 110
    idle_seconds: float = 35.0  # more than the period of the agent's own checks
    flips: int = 200  # of readiness, each way
    reloads: int = 12
    deaths: int = 4
    passes: int = 20  # of the announcer
    policy_pods: int = 1000  # on the node
    cluster_pods: int = 10_000
    policy_changes: int = 20  # of each kind
    loads: int = 3  # of all rules
    policy_levels: tuple[int, ...] = (0, 100, 1000)  # policies that select the pods that talk
    conversations: int = 10  # of each pair, of a stream and of connections
    stream_ms: int = 300
    connections: int = 1500
    flood_seconds: float = 60.0  # of drops
    lives: int = 100
    kubelet_lives: int = 60  # one after the other
    kubelet_rounds: int = 2  # of pods at once, of each contender
    kubelet_pods: int = 100  # at once
    kubelet_quiet: float = 60.0  # seconds of what the agent does anyway, before and after
    large: tuple[int, int] = (100_000, 1000)  # pods and namespaces of a large cluster
    churn_seconds: float = 60.0
    view_cluster: tuple[int, int] = (200, 20_000)  # nodes and pods the page is told of
    view_seconds: float = 600.0
    sightings: int = 8  # of each kind of event


FULL = Effort()
QUICK = Effort(
    cycles=1,
    rounds=15,
    dual_rounds=1,
    bursts=1,
    burst_pods=25,
    levels=(10, 110),
    probes=10,
    idle_seconds=3.0,
    flips=15,
    reloads=3,
    deaths=1,
    passes=4,
    policy_pods=100,
    cluster_pods=1000,
    policy_changes=4,
    loads=1,
    policy_levels=(0, 100),
    conversations=2,
    stream_ms=100,
    connections=300,
    flood_seconds=5.0,
    lives=10,
    kubelet_lives=5,
    kubelet_rounds=1,
    kubelet_pods=10,
    kubelet_quiet=5.0,
    large=(5000, 100),
    churn_seconds=10.0,
    view_cluster=(20, 2000),
    view_seconds=15.0,
    sightings=1,
)


@dataclass(frozen=True)
class Table:
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Verdict:
    """A design target beside what was measured; None: it could not be."""

    what: str
    measured: float | None
    limit: float
    at_most: bool = True
    unit: str = "×"

    @property
    def met(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit


@dataclass(frozen=True)
class Outcome:
    tables: Sequence[Table]
    verdicts: Sequence[Verdict]
    raw: dict[str, Any]


@dataclass
class Bench:
    world: World
    launcher: Launcher
    effort: Effort
    problems: list[str] = field(default_factory=list)

    def enter(self, make: Callable[[], T]) -> list[T]:
        """The contender in a list of one, or an empty list and a note of why it cannot take part."""
        try:
            return [make()]
        except FAILURES as problem:
            self.complain(str(problem))
            return []

    def complain(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
            print(f"  ! {problem}", flush=True)


class Measurement(Protocol):
    name: str
    title: str

    def run(self, bench: Bench) -> Outcome: ...


# --- steps ---


@dataclass(frozen=True)
class Attachment:
    contender: Contender
    pod: Pod
    added: Run


def in_turn(contenders: Sequence[T], rounds: int) -> Iterator[T]:
    """Every contender once a round, each round beginning with another one: noise hits all alike."""
    for number in range(rounds):
        first = number % max(1, len(contenders))
        yield from contenders[first:]
        yield from contenders[:first]


def attach(bench: Bench, turns: Sequence[Contender], *, at_once: int = 1) -> list[Attachment]:
    """ADD a new pod at each turn.  Failed ones are reported and left out of what is returned."""
    pods = bench.world.pods(len(turns))
    pairs = list(zip(turns, pods, strict=True))
    for contender in dict.fromkeys(turns):
        contender.expect([pod for owner, pod in pairs if owner is contender])
    runs = _launch(bench, [contender.add(pod) for contender, pod in pairs], at_once)
    attachments = [Attachment(contender, pod, run) for (contender, pod), run in zip(pairs, runs, strict=True)]
    for contender in dict.fromkeys(turns):
        _report_failures(bench, contender, "ADD", [a.added for a in attachments if a.contender is contender])
    return [attachment for attachment in attachments if not attachment.added.failed]


def detach(bench: Bench, attachments: Sequence[Attachment], *, at_once: int = 1) -> list[tuple[Contender, Run]]:
    """DEL them in the order given; the pods' namespaces may be used again afterwards."""
    runs = _launch(bench, [a.contender.delete(a.pod, a.added) for a in attachments], at_once)
    done = [(attachment.contender, run) for attachment, run in zip(attachments, runs, strict=True)]
    for contender in dict.fromkeys(a.contender for a in attachments):
        _report_failures(bench, contender, "DEL", [run for owner, run in done if owner is contender])
        contender.forget([a.pod for a in attachments if a.contender is contender])
    bench.world.recycle(a.pod for a, run in zip(attachments, runs, strict=True) if not run.failed)
    return [(contender, run) for contender, run in done if not run.failed]


def warm_up(bench: Bench, contenders: Sequence[Contender], rounds: int = 5) -> None:
    """A few untimed pods for everyone; what flock's file grows by is what the floors are to write."""
    before = {flock: flock.state_bytes() for flock in contenders if isinstance(flock, Flock)}
    attachments = attach(bench, list(in_turn(contenders, rounds)))
    time.sleep(FOLDED)
    grown = [(flock.state_bytes() - size) / rounds for flock, size in before.items()]
    detach(bench, attachments)
    time.sleep(FOLDED)
    entry = round(max(grown, default=0)) or ENTRY_BYTES
    base = max((flock.state_bytes() for flock in before), default=0)
    for floor in contenders:
        if isinstance(floor, Floor):
            floor.resemble(base=base, entry=entry)


def _launch(bench: Bench, commands: Sequence[Command], at_once: int) -> list[Run]:
    if at_once == 1:
        return bench.launcher.sequential(commands)
    return bench.launcher.concurrent(commands, at_once=at_once)


def _report_failures(bench: Bench, contender: Contender, verb: str, runs: Sequence[Run]) -> None:
    failed = [run for run in runs if run.failed]
    if failed:
        bench.complain(
            f"{contender.label}: {len(failed)} of {len(runs)} {verb}s failed, the first with status "
            f"{failed[0].status}: {failed[0].output.strip()[:300]}"
        )


# --- numbers ---


def percentile(samples: Sequence[float], percent: float) -> float:
    """Nearest rank: always one of the samples."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def median(samples: Sequence[float]) -> float | None:
    return percentile(samples, 50) if samples else None


def ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None


def show(value: float | None, unit: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:.3g}{unit}" if value < 100 else f"{value:.0f}{unit}"
