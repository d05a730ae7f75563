"""Tables for the reader and numbers for the file."""

import dataclasses
import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measuring import Measurement, Outcome, Table, Verdict, show

QUIET = 90  # percent idle; with less, contenders that hand work between processes wait in the run queue
MARKS = {True: "met", False: "NOT MET", None: "not measured"}


def render(table: Table) -> str:
    """Columns as wide as their widest cell; numbers lean right, words left."""
    lines = [list(table.columns), *map(list, table.rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.columns))]

    def text(line: Sequence[str]) -> str:
        cells = [
            cell.rjust(width) if cell[:1].isdigit() or cell == "-" else cell.ljust(width)
            for cell, width in zip(line, widths, strict=True)
        ]
        return "  " + "  ".join(cells).rstrip()

    return "\n".join([text(lines[0]), "  " + "  ".join("-" * width for width in widths), *map(text, lines[1:])])


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    rows = [
        [v.what, show(v.measured, v.unit), ("≤ " if v.at_most else "≥ ") + show(v.limit, v.unit), MARKS[v.met]]
        for v in verdicts
    ]
    return Table(["target", "measured", "wanted", ""], rows)


def write(path: Path, outcomes: Mapping[Measurement, Outcome], facts: Mapping[str, Any]) -> None:
    document = {
        "machine": facts,
        "targets": [
            {**dataclasses.asdict(verdict), "met": verdict.met}
            for outcome in outcomes.values()
            for verdict in outcome.verdicts
        ],
        "measurements": {measurement.name: outcome.raw for measurement, outcome in outcomes.items()},
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def machine_facts(durable: Path) -> dict[str, Any]:
    """What a figure depends on, and nothing that tells whose machine it was."""
    return {
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "filesystem": _ask("findmnt", "-n", "-o", "FSTYPE", "-T", str(durable)),
        "reference plugins": _ask("dpkg-query", "-W", "-f", "${Version}", "containernetworking-plugins"),
        "idle percent": idle_percent(),
    }


def idle_percent() -> int:
    """How much of the machine nobody uses, over a second in which the benchmark does nothing."""

    def now() -> tuple[int, int]:
        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return ticks[3] + ticks[4], sum(ticks)

    idle, total = now()
    time.sleep(1)
    later_idle, later_total = now()
    return round(100 * (later_idle - idle) / max(1, later_total - total))


def _ask(*command: str) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        answer = ""
    return answer or "unknown"
