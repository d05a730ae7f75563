"""`make bench`: flock beside the reference plugins and beside the floor, in one run.

    .venv/bin/python bench/run.py [--quick] [--only NAME]...

Absolute times depend on the machine and its mood; contenders take turns so that their ratios do not.
"""

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import report
from burst import Burst
from dropping import Dropping
from fabric import FabricChanges
from hostile import Hostile
from kubelet import Kubelet
from large_cluster import LargeCluster
from launching import FAILURES, BenchError, Launcher
from lives import Lives
from measuring import FULL, QUICK, Bench, Measurement, Outcome
from policy import PolicyChanges
from scale import Scale
from sequential import Sequential
from services import ServiceChanges
from view import View
from viewers import Viewers
from world import World

MEASUREMENTS: tuple[Measurement, ...] = (
    Sequential(),
    Burst(),
    Scale(),
    FabricChanges(),
    ServiceChanges(),
    PolicyChanges(),
    Hostile(),
    Dropping(),
    Lives(),
    Kubelet(),
    LargeCluster(),
    Viewers(),
    View(),
)
SETTLE = 2.0  # seconds for the kernel to take a measurement's namespaces down before the next
RESULTS = Path(__file__).parent / "results.json"


def main() -> int:
    options = _options()
    if os.geteuid() != 0:
        print("make bench needs root: it makes network namespaces and links in them.  Try: sudo make bench")
        return 2
    chosen = [m for m in MEASUREMENTS if not options.only or m.name in options.only]
    began = time.monotonic()
    try:
        with World() as world:
            facts = report.machine_facts(world.durable)
            print("flock benchmarks: " + ", ".join(f"{key} {value}" for key, value in facts.items()))
            effort = QUICK if options.quick else FULL
            effort = dataclasses.replace(effort, view_seconds=options.view_seconds or effort.view_seconds)
            bench = Bench(world, Launcher(world), effort)
            outcomes = _measure(bench, chosen)
            facts["idle percent after"] = report.idle_percent()
    except KeyboardInterrupt:
        print("interrupted; everything this run made is removed")
        return 130
    except BenchError as problem:
        print(problem)
        return 1
    verdicts = [verdict for outcome in outcomes.values() for verdict in outcome.verdicts]
    print("\nDesign targets\n" + report.render(report.verdict_table(verdicts)))
    if min(facts["idle percent"], facts["idle percent after"]) < report.QUIET:
        print("  ! others kept this machine busy: neither `met` nor `NOT MET` above is evidence; repeat on a quiet one")
    for complaint in bench.problems:
        print(f"  ! {complaint}")
    report.write(options.results, outcomes, facts)
    print(f"\n{time.monotonic() - began:.0f} s; raw numbers in {_shown(options.results)}")
    return 1 if bench.problems else 0


def _measure(bench: Bench, chosen: Sequence[Measurement]) -> dict[Measurement, Outcome]:
    """One after the other; one that cannot be made is noted and the next is tried."""
    outcomes: dict[Measurement, Outcome] = {}
    for measurement in chosen:
        print(f"\n{measurement.title}", flush=True)
        try:
            outcomes[measurement] = measurement.run(bench)
        except FAILURES as problem:
            bench.complain(f"{measurement.name}: {problem}")
            continue
        finally:
            bench.world.clear()
            time.sleep(SETTLE)
        shown = [report.render(table) for table in outcomes[measurement].tables if table.rows]
        print("\n\n".join(shown), flush=True)
    return outcomes


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Benchmarks of flock beside the reference plugins and floors.")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its numbers mean little")
    parser.add_argument("--only", action="append", choices=[m.name for m in MEASUREMENTS], help="may be repeated")
    parser.add_argument("--view-seconds", type=float, help="how long the page is used (default: ten minutes)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file for the raw numbers")
    return parser.parse_args()


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    sys.exit(main())
