"""The fabric: how soon a router knows, how long a dead node is missed, what a reload and a reconciliation cost.

Flock and the floor, plain BIRD fed by `ip route`, take turns on labs of the same plan.
"""

import contextlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from events import RouteEvents
from fabrics import FLIPPED, NODE, SERVICE, Fabric, flock_fabric, plain_fabric, router_netns, wait_for_replicas
from flock.lab.traffic import read
from launching import HERE, BenchError
from measuring import Bench, Outcome, Table, Verdict, in_turn, median, percentile, ratio, show

FLOCK = "flock"
UP, DOWN = "Ready → route", "unready → gone"
DEATH, RELOAD = "node death → traffic moved", "NodeConfig → route"
REST = 0.02  # seconds after a flip
COOLDOWN = 1.5  # seconds between changes of configuration: each has an aftermath, and the agent spaces its reloads
ASK_EVERY = 0.004  # seconds, the resolution of a dead node's gap
QUIET_BEFORE, ASKED = 0.5, 2.5  # seconds asked before the node dies, and in all
ADDRESSES = 1000
FLIP_P50, FLIP_P99, DEATH_LIMIT = 10.0, 50.0, 500.0  # milliseconds

Times = dict[str, dict[str, list[float]]]  # milliseconds by what and contender
Costs = dict[str, dict[str, list[tuple[float, float]]]]  # milliseconds of wall clock and CPU by pass and contender


class FabricChanges:
    name = "fabric"
    title = "The fabric: readiness, node death, reload, reconciliation"

    def run(self, bench: Bench) -> Outcome:
        times: Times = {what: {} for what in (UP, DOWN, DEATH, RELOAD)}
        with _fabrics(bench, nodes=1) as fabrics:
            _flip(bench, fabrics, times)
            _reconfigure(bench, fabrics, times)
        with _fabrics(bench, nodes=2) as fabrics:
            _kill(bench, fabrics, times)
        costs = _reconcile(bench)
        return Outcome([_table(times), _cost_table(costs)], _verdicts(times), {"ms": times, "reconcile_ms": costs})


@contextlib.contextmanager
def _fabrics(bench: Bench, *, nodes: int) -> Iterator[list[Fabric]]:
    """Those that come up."""
    with ExitStack() as stack:
        found: list[Fabric] = []
        makers: list[Callable[..., Any]] = [flock_fabric, plain_fabric]
        for make in makers:
            try:
                found.append(stack.enter_context(make(bench.world, nodes=nodes)))
            except BenchError as problem:
                bench.complain(str(problem))
        yield found


def _flip(bench: Bench, fabrics: Sequence[Fabric], times: Times) -> None:
    """From before the Pod's manifest is written, or the line given to `ip`, to the route in the router's kernel."""
    heard = {fabric: RouteEvents(router_netns(fabric)) for fabric in fabrics}
    for fabric in fabrics:  # untimed: pods are made, everyone has done it once
        for ready in (False, True, False) if fabric.label == FLOCK else (True, False):
            fabric.flip(ready)
            time.sleep(0.5)
        heard[fabric].forget()
    for number in range(bench.effort.flips):
        for what, ready in ((UP, True), (DOWN, False)):
            for fabric in fabrics if number % 2 else reversed(fabrics):
                asked = time.monotonic_ns()
                fabric.flip(ready)
                seen = heard[fabric].wait(f"{FLIPPED}/128", present=ready)
                times[what].setdefault(fabric.label, []).append((seen - asked) / 1e6)
                time.sleep(REST)
    for events in heard.values():
        events.close()


def _reconfigure(bench: Bench, fabrics: Sequence[Fabric], times: Times) -> None:
    """From before the NodeConfig (or bird.conf) is written to a new aggregate in the router's kernel."""
    heard = {fabric: RouteEvents(router_netns(fabric)) for fabric in fabrics}
    for number, fabric in enumerate(in_turn(fabrics, bench.effort.reloads)):
        asked = time.monotonic_ns()
        prefix = fabric.reconfigure(number)
        seen = heard[fabric].wait(prefix, present=True)
        times[RELOAD].setdefault(fabric.label, []).append((seen - asked) / 1e6)
        time.sleep(COOLDOWN / len(fabrics))
    for events in heard.values():
        events.close()


def _kill(bench: Bench, fabrics: Sequence[Fabric], times: Times) -> None:
    """From the moment a node falls silent to the last question of the client that nobody answered."""
    for fabric in fabrics:
        fabric.serve()
    for fabric in in_turn(fabrics, bench.effort.deaths):
        wait_for_replicas(fabric, 2)
        options = ["--every", str(ASK_EVERY), "--for", str(ASKED)]
        command = [sys.executable, "-m", "flock.lab.traffic", "ask", SERVICE, *options]
        client = fabric.lab.host("client")
        with subprocess.Popen(client.inside(command), stdout=subprocess.PIPE, text=True) as asker:
            assert asker.stdout is not None
            first = asker.stdout.readline()
            time.sleep(QUIET_BEFORE)
            died = time.monotonic()
            fabric.lab.kill(NODE)
            exchanges = list(read([first, *asker.stdout]))
        lost = [exchange.at for exchange in exchanges if exchange.answer is None]
        if not lost or max(lost) > exchanges[-1].at - QUIET_BEFORE:
            state = "was not missed" if not lost else "was still missed at the end"
            bench.complain(f"{fabric.label}: a node that died {state}")
        else:
            times[DEATH].setdefault(fabric.label, []).append((max(lost) - died) * 1000)
        fabric.lab.revive(NODE)


# --- a pass over many addresses ---


def _reconcile(bench: Bench) -> Costs:
    """Flock's announcer, and the same routes by one `ip -batch` each time."""
    node = bench.world.node("reconcile")
    command: list[str | Path] = [sys.executable, HERE / "reconcile.py", str(ADDRESSES), str(bench.effort.passes)]
    done = subprocess.run(["nsenter", f"--net={node}", *command], capture_output=True, text=True, timeout=120)
    if done.returncode:
        bench.complain(f"reconciliation: {done.stderr.strip()[-300:]}")
        return {}
    passes = json.loads(done.stdout)
    costs: Costs = {what: {FLOCK: [tuple(sample) for sample in samples]} for what, samples in passes.items()}
    plain = bench.world.node("reconcile-plain")
    lines = "".join(f"route add 2001:db8:53::{n:x}/128 dev lo proto 134 metric 16\n" for n in range(1, ADDRESSES + 1))
    costs["all new"]["ip route"] = [_ip_cost(plain, ["-batch", "-"], lines)]
    shows = [_ip_cost(plain, ["-6", "route", "show", "proto", "134"], "") for _ in range(bench.effort.passes)]
    costs["nothing changed"]["ip route"] = shows
    return costs


def _ip_cost(node: Path, arguments: Sequence[str], lines: str) -> tuple[float, float]:
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = ["nsenter", f"--net={node}", "ip", *arguments]
    subprocess.run(command, input=lines, text=True, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * wall, 1000 * cpu


# --- telling ---


def _table(times: Times) -> Table:
    rows = []
    for what, by_label in times.items():
        flock = median(by_label.get(FLOCK, []))
        for label, samples in by_label.items():
            shown = [show(percentile(samples, percent)) for percent in (50, 99, 100)]
            rows.append([what, label, str(len(samples)), *shown, show(ratio(flock, median(samples)))])
    return Table(["event", "contender", "runs", "p50 ms", "p99", "max", "flock / it"], rows)


def _cost_table(costs: Costs) -> Table:
    rows = []
    for what, by_label in costs.items():
        for label, samples in by_label.items():
            middles = [show(median([sample[position] for sample in samples])) for position in (0, 1)]
            rows.append([what, label, str(len(samples)), *middles])
    return Table([f"one pass over {ADDRESSES} addresses", "contender", "runs", "wall ms", "CPU ms"], rows)


def _verdicts(times: Times) -> Sequence[Verdict]:
    def found(what: str, percent: float) -> float | None:
        samples = times[what].get(FLOCK, [])
        return percentile(samples, percent) if samples else None

    return [
        Verdict(f"{UP} in the router's table, p50", found(UP, 50), FLIP_P50, unit=" ms"),
        Verdict(f"{UP} in the router's table, p99", found(UP, 99), FLIP_P99, unit=" ms"),
        Verdict(f"{DOWN} from the router's table, p50", found(DOWN, 50), FLIP_P50, unit=" ms"),
        Verdict(f"{DOWN} from the router's table, p99", found(DOWN, 99), FLIP_P99, unit=" ms"),
        Verdict(f"{DEATH}, with BFD, longest", found(DEATH, 100), DEATH_LIMIT, unit=" ms"),
    ]
