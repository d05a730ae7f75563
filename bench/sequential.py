"""One pod after the other: ADD and DEL of every contender in turn, from spawn to exit."""

from collections.abc import Sequence

from contenders import Contender, Flock, Floor, Reference
from measuring import (
    Bench,
    Outcome,
    Table,
    Verdict,
    attach,
    detach,
    in_turn,
    median,
    percentile,
    ratio,
    show,
    warm_up,
)

FLOCK, REFERENCE, DUAL, FLOOR = "flock", "reference IPv4", "reference dual-stack", "floor, 1 flush"
Samples = dict[str, dict[str, list[float]]]  # milliseconds by contender and verb


class Sequential:
    name = "sequential"
    title = "ADD and DEL, one at a time (exec to exit)"

    def run(self, bench: Bench) -> Outcome:
        world = bench.world
        steady: list[Contender] = [
            *bench.enter(lambda: Flock(world)),
            *bench.enter(lambda: Reference(world, node="reference4", dual=False)),
            *bench.enter(lambda: Floor(world, node="floor1", flushes=1)),
            *bench.enter(lambda: Floor(world, node="floor2", flushes=2)),
        ]
        dual: list[Contender] = [*bench.enter(lambda: Reference(world, node="reference46", dual=True))]
        samples: Samples = {contender.label: {"ADD": [], "DEL": []} for contender in (*steady, *dual)}
        for _ in range(bench.effort.cycles):
            warm_up(bench, steady)
            self._cycle(bench, steady, dual, samples)
        return Outcome([_table(samples)], _verdicts(samples), {"ms": samples})

    def _cycle(self, bench: Bench, steady: list[Contender], dual: list[Contender], samples: Samples) -> None:
        turns = list(in_turn(steady, bench.effort.rounds))
        every = len(turns) // bench.effort.dual_rounds
        for number in range(len(turns), 0, -every):
            turns[number:number] = dual
        attachments = attach(bench, turns)
        for attachment in attachments:
            samples[attachment.contender.label]["ADD"].append(attachment.added.ms)
        for contender, run in detach(bench, attachments):
            samples[contender.label]["DEL"].append(run.ms)


def _p50(samples: Samples, label: str, verb: str = "ADD") -> float | None:
    return median(samples.get(label, {}).get(verb, []))


def _table(samples: Samples) -> Table:
    rows = []
    for verb in ("ADD", "DEL"):
        flock = _p50(samples, FLOCK, verb)
        for label, by_verb in samples.items():
            if times := by_verb[verb]:
                shown = [show(percentile(times, percent)) for percent in (50, 90, 99)]
                rows.append([verb, label, str(len(times)), *shown, show(ratio(flock, median(times)))])
    return Table(["verb", "contender", "runs", "p50 ms", "p90", "p99", "flock / it"], rows)


def _verdicts(samples: Samples) -> Sequence[Verdict]:
    flock = _p50(samples, FLOCK)
    return [
        Verdict("ADD p50, flock dual-stack / reference IPv4", ratio(flock, _p50(samples, REFERENCE)), 0.42),
        Verdict("ADD p50, flock / reference dual-stack", ratio(flock, _p50(samples, DUAL)), 0.01),
        Verdict("ADD p50, flock / floor with the same one flush", ratio(flock, _p50(samples, FLOOR)), 1.6),
    ]
