"""What three who look cost a node: two nodes take turns at ADDs, of which one has three `flockctl view` beside it."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contenders import Flock
from measuring import Bench, Outcome, Table, Verdict, attach, detach, in_turn, median, percentile, ratio, show, warm_up
from scale import cpu_ns, read_memory

VIEWERS = 3
ADD_LIMIT, MEMORY_LIMIT = 1.05, 3.0  # times, MiB
ALONE, VIEWED = "alone", "3 viewers"
SETTLE = 5.0  # seconds in which viewers read what there is
ROUND = 20  # ADDs of each, then as many DELs


class Viewers:
    name = "viewers"
    title = "A node that three look at, beside one that nobody does"

    def run(self, bench: Bench) -> Outcome:
        nodes = [
            flock
            for node, label in (("alone", ALONE), ("viewed", VIEWED))
            for flock in bench.enter(lambda node=node, label=label: Flock(bench.world, node=node, label=label))
        ]
        raw: dict[str, Any] = {label: {"ADD": [], "rss": [], "cpu": None} for label in (ALONE, VIEWED)}
        if len(nodes) == 2:
            self._measure(bench, nodes, raw)
        return Outcome([_table(raw)], _verdicts(raw), raw)

    def _measure(self, bench: Bench, nodes: list[Flock], raw: dict[str, Any]) -> None:
        warm_up(bench, nodes)
        attach(bench, [flock for flock in nodes for _ in range(bench.effort.idle_level)])
        for number in range(VIEWERS):
            command = [sys.executable, Path(sys.executable).parent / "flockctl", "view"]
            bench.world.start(command, node=nodes[1].node, log=bench.world.scratch / f"viewer{number}.log")
        time.sleep(SETTLE)
        used, began = [cpu_ns(flock.pid) for flock in nodes], time.monotonic()
        for _ in range(max(1, bench.effort.cycles * bench.effort.rounds // ROUND)):
            attachments = attach(bench, list(in_turn(nodes, ROUND)))
            for attachment in attachments:
                raw[attachment.contender.label]["ADD"].append(attachment.added.ms)
            detach(bench, attachments)
            for flock in nodes:
                raw[flock.label]["rss"].append(read_memory(flock.pid)["rss"])
        lasted = time.monotonic() - began
        for flock, before in zip(nodes, used, strict=True):
            raw[flock.label]["cpu"] = (cpu_ns(flock.pid) - before) / lasted / 1e7


def _table(raw: dict[str, Any]) -> Table:
    rows = []
    for label, of in raw.items():
        if times := of["ADD"]:
            shown = [show(percentile(times, percent)) for percent in (50, 90, 99)]
            rows.append([label, str(len(times)), *shown, show(max(of["rss"])), show(of["cpu"])])
    return Table(["node", "ADDs", "p50 ms", "p90", "p99", "RSS MiB", "agent CPU %"], rows)


def _verdicts(raw: dict[str, Any]) -> Sequence[Verdict]:
    alone, viewed = raw[ALONE], raw[VIEWED]
    more = max(viewed["rss"]) - max(alone["rss"]) if viewed["rss"] and alone["rss"] else None
    return [
        Verdict("ADD p50, three viewers / none", ratio(median(viewed["ADD"]), median(alone["ADD"])), ADD_LIMIT),
        Verdict("agent RSS more, three viewers beside none", more, MEMORY_LIMIT, unit=" MiB"),
    ]
