"""A fuller node: the agent's memory and idle CPU, and what an ADD costs beside 10, 110 and 1000 pods.

One agent grows from no pod to the largest level, with no other pods on the machine: some of the kernel's costs grow
with all its namespaces together.  At each level a floor that writes a file as large as the agent's takes turns with it,
to tell the kernel's and the disk's part in the growth, and the machine's mood, from flock's.
"""

import array
import contextlib
import mmap
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from contenders import ENTRY_BYTES, Flock, Floor
from flock.edge.kernel.linkmaker import NAME as LINKS
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

FILL_AT_ONCE = 16
PROBES_AT_ONCE = 10  # present at a time, so that the level stays about what it is
CALM = 1.0  # seconds after the last ADD until memory is read
RSS_LIMIT, CPU_LIMIT, GROWTH_LIMIT = 40.0, 0.3, 1.5  # MiB, percent of a core, times
PAGE = mmap.PAGESIZE
PRESENT, FRAME = 1 << 63, (1 << 55) - 1  # of an entry in /proc/PID/pagemap
KERNELS = (1 << 63) // PAGE  # pages from here on are not the process's

Memory = dict[int, dict[str, float]]  # MiB by level
Times = dict[int, dict[str, list[float]]]  # milliseconds of ADDs by level and contender


class Scale:
    name = "scale"
    title = "A fuller node: memory, idle CPU, ADD beside other pods"

    def run(self, bench: Bench) -> Outcome:
        memory: Memory = {}
        times: Times = {}
        cpu = None
        floors = bench.enter(lambda: Floor(bench.world, node="floor", flushes=1))
        for flock in bench.enter(lambda: Flock(bench.world, node="flock")):
            memory[0] = self._read_memory(flock)
            warm_up(bench, [flock, *floors])
            held = 0
            for level in bench.effort.levels:
                attach(bench, [flock] * (level - held), at_once=FILL_AT_ONCE)
                held = level
                memory[level] = self._read_memory(flock)
                if level == bench.effort.idle_level:
                    cpu = _idle_cpu(flock.pid, bench.effort.idle_seconds)
                times[level] = self._probe(bench, flock, floors)
        tables = [_memory_table(memory, cpu), _probe_table(times)]
        raw: dict[str, Any] = {"memory_mib": memory, "idle_cpu_percent": cpu, "add_ms": times}
        return Outcome(tables, _verdicts(memory, cpu, times, bench), raw)

    def _read_memory(self, flock: Flock) -> dict[str, float]:
        time.sleep(CALM)
        return read_memory(flock.pid)

    def _probe(self, bench: Bench, flock: Flock, floors: list[Floor]) -> dict[str, list[float]]:
        for floor in floors:
            floor.resemble(base=flock.state_bytes(), entry=ENTRY_BYTES)
        found: dict[str, list[float]] = {}
        for _ in range(max(1, bench.effort.probes // PROBES_AT_ONCE)):
            attachments = attach(bench, list(in_turn([flock, *floors], PROBES_AT_ONCE)))
            for attachment in attachments:
                found.setdefault(attachment.contender.label, []).append(attachment.added.ms)
            detach(bench, attachments)
        return found


def read_memory(pid: int) -> dict[str, float]:
    """MiB resident: of both processes of an agent, a page that both have counted once (`rss`), of each for itself, and
    of both with pages divided among all who share them (`pss`)."""
    processes = _processes(pid)
    frames = {process: _frames(process) for process in processes}
    fields = [Path(f"/proc/{process}/smaps_rollup").read_text().split() for process in processes]
    return {
        "rss": _mib(set().union(*frames.values())),
        "alone": _mib(frames[pid]),
        "links": sum(_mib(frames[process]) for process in processes if process != pid),
        "pss": sum(int(found[found.index("Pss:") + 1]) for found in fields) / 1024,
    }


def _mib(frames: Collection[int]) -> float:
    return len(frames) * PAGE / (1 << 20)


def _frames(pid: int) -> set[int]:
    """The pages of memory that a process has mapped, by their numbers: for the same page two processes see the same."""
    found: set[int] = set()
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/pagemap").open("rb") as pages:
        for line in maps:
            start, end = (int(address, 16) // PAGE for address in line.split(" ", 1)[0].split("-"))
            if start >= KERNELS:
                continue
            pages.seek(start * 8)
            entries = array.array("Q", pages.read((end - start) * 8))
            found.update(entry & FRAME for entry in entries if entry & PRESENT)
    return found


def cpu_ns(pid: int) -> int:
    """Time all threads of a process, of an agent both its processes, spent on a CPU: the POSIX CPU clock counts
    nanoseconds, /proc/PID/stat ticks."""
    # clock_getcpuclockid(pid), which Python only has for threads
    return sum(time.clock_gettime_ns(~process << 3 | 2) for process in _processes(pid))


def _processes(pid: int) -> list[int]:
    """It, and the one that makes its links.  Others that it starts come and go."""
    found = [pid]
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError):  # gone meanwhile
            if Path(f"/proc/{child}/comm").read_bytes().strip() == LINKS:
                found.append(int(child))
    return found


def _idle_cpu(pid: int, seconds: float) -> float:
    """Percent of one core."""
    cpu, clock = cpu_ns(pid), time.monotonic_ns()
    time.sleep(seconds)
    return (cpu_ns(pid) - cpu) / (time.monotonic_ns() - clock) * 100


def _memory_table(memory: Memory, cpu: float | None) -> Table:
    which = ("rss", "alone", "links", "pss")
    rows = [[f"{level} pods", *(show(found[name]) for name in which)] for level, found in memory.items()]
    if cpu is not None:
        rows.append(["idle CPU", show(cpu, " %"), "", "", ""])
    return Table(["agent with", "RSS MiB", "agent alone", "flock-links alone", "PSS"], rows)


def _probe_table(times: Times) -> Table:
    rows = []
    for level, by_label in times.items():
        flock = median(by_label.get("flock", []))
        for label, samples in by_label.items():
            shown = [show(percentile(samples, percent)) for percent in (50, 90)]
            rows.append([f"{level} pods", label, str(len(samples)), *shown, show(ratio(flock, median(samples)))])
    return Table(["ADD beside", "contender", "runs", "p50 ms", "p90", "flock / it"], rows)


def _verdicts(memory: Memory, cpu: float | None, times: Times, bench: Bench) -> Sequence[Verdict]:
    few, many, held = bench.effort.levels[0], bench.effort.levels[-1], bench.effort.idle_level

    def p50(level: int) -> float | None:
        return median(times.get(level, {}).get("flock", []))

    return [
        Verdict(f"ADD p50 beside {many} pods / beside {few}", ratio(p50(many), p50(few)), GROWTH_LIMIT),
        Verdict(
            f"agent RSS, both processes, with {held} pods", memory.get(held, {}).get("rss"), RSS_LIMIT, unit=" MiB"
        ),
        Verdict(f"agent CPU when nothing happens, {held} pods", cpu, CPU_LIMIT, unit=" %"),
    ]
