"""A node that comes back: many ADDs at once, then as many DELs, as pods per second from first spawn to last exit."""

from collections.abc import Sequence

from contenders import Contender, Flock, Floor, Reference
from launching import Run
from measuring import Bench, Outcome, Table, Verdict, attach, detach, in_turn, median, percentile, ratio, show, warm_up

FLOCK, REFERENCE = "flock", "reference IPv4"
Rates = dict[str, dict[str, list[float]]]  # pods per second by contender and verb, one figure a burst
Times = dict[str, dict[str, list[float]]]  # milliseconds of each command in the bursts


class Burst:
    name = "burst"
    title = "ADDs all at once, then DELs all at once"

    def run(self, bench: Bench) -> Outcome:
        world, size = bench.world, bench.effort.burst_pods
        contenders: list[Contender] = [
            *bench.enter(lambda: Flock(world, node="flock-burst")),
            *bench.enter(lambda: Reference(world, node="reference4-burst", dual=False)),
            # Without flushes: concurrent processes could not share one, so this is the kernel's part alone.
            *bench.enter(lambda: Floor(world, node="floor0-burst", flushes=0)),
        ]
        rates: Rates = {contender.label: {"ADD": [], "DEL": []} for contender in contenders}
        times: Times = {contender.label: {"ADD": [], "DEL": []} for contender in contenders}
        warm_up(bench, contenders)
        for contender in in_turn(contenders, bench.effort.bursts):
            attachments = attach(bench, [contender] * size, at_once=size)
            detached = detach(bench, attachments, at_once=size)
            for verb, runs in (("ADD", [a.added for a in attachments]), ("DEL", [run for _, run in detached])):
                if runs:
                    rates[contender.label][verb].append(_per_second(runs))
                    times[contender.label][verb] += [run.ms for run in runs]
        table = _table(rates, times, size)
        return Outcome([table], _verdicts(rates, size), {"pods_per_second": rates, "ms": times})


def _per_second(runs: Sequence[Run]) -> float:
    return len(runs) / (max(run.end for run in runs) - min(run.start for run in runs)) * 1e9


def _table(rates: Rates, times: Times, size: int) -> Table:
    rows = []
    for verb in ("ADD", "DEL"):
        flock = median(rates.get(FLOCK, {}).get(verb, []))
        for label, by_verb in rates.items():
            if by_verb[verb]:
                waits = [show(percentile(times[label][verb], percent)) for percent in (50, 99)]
                middle = median(by_verb[verb])
                count = str(len(by_verb[verb]))
                rows.append([f"{size} {verb}s", label, count, show(middle), *waits, show(ratio(flock, middle))])
    return Table(["burst", "contender", "bursts", "pods/s", "p50 ms", "p99", "flock / it"], rows)


def _verdicts(rates: Rates, size: int) -> Sequence[Verdict]:
    def against_reference(verb: str) -> float | None:
        return ratio(median(rates.get(FLOCK, {}).get(verb, [])), median(rates.get(REFERENCE, {}).get(verb, [])))

    return [
        Verdict(f"{size} {verb}s at once, throughput flock / reference IPv4", against_reference(verb), 5, at_most=False)
        for verb in ("ADD", "DEL")
    ]
