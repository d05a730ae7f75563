"""How long calls take on a node where everybody else runs too, by what the agent asks of the CPU.  By hand, as root:

    .venv/bin/python tests/measure_shares.py [PODS [AT_ONCE [MILLICORES,...]]]

The node is as a kubelet arranges it: pods, all cores of them requested, beside the system's daemons with half as much.
All that is not the agent's is requested, and kept busy, by somebody else; 0 stands for nobody.  The executable runs
with the daemons, as a runtime's does.  Needs the cpu controller of cgroup version 1.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from harness import Node

CPU = Path("/sys/fs/cgroup/cpu")
CORES = os.cpu_count() or 1
SHARES = 1024  # of a core
WHOLE = 16 * SHARES  # of the node, against whatever else this machine does
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def groups(millicores: int) -> Iterator[Path]:
    """The node's cgroups; ours is among the daemons."""
    top = CPU / f"flock-shares-{os.getpid()}"
    own = SHARES * millicores // 1000
    wanted = {
        "": WHOLE,
        "system": SHARES,
        "pods": SHARES * CORES,
        "pods/agent": max(2, own),
        "pods/others": SHARES * CORES - own,
    }
    try:
        for name, shares in wanted.items():
            (top / name).mkdir()
            (top / name / "cpu.shares").write_text(str(shares))
        enter(top / "system", os.getpid())
        yield top
    finally:
        enter(CPU, os.getpid())
        for name in reversed(wanted):
            (top / name).rmdir()


def enter(group: Path, pid: int) -> None:
    (group / "cgroup.procs").write_text(str(pid))


@contextmanager
def everybody_else(group: Path, count: int) -> Iterator[None]:
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(count)]
    try:
        for process in busy:
            enter(group, process.pid)
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def used(pid: int) -> float:
    """CPU seconds of a process and those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def measure(millicores: int, *, pods: int, at_once: int) -> None:
    with tempfile.TemporaryDirectory() as directory, groups(millicores) as top, Node(Path(directory)) as node:
        node.start()
        names = [f"p{number}" for number in range(pods)]
        for name in names:
            node.namespace(name)
        assert node.agent is not None
        enter(top / "pods/agent", node.agent.pid)
        with everybody_else(top / "pods/others", 2 * CORES if millicores else 0):
            for verb in ("ADD", "DEL"):
                before, begin = used(node.agent.pid), time.monotonic()

                def call(name: str, verb: str = verb) -> float:
                    start = time.monotonic()
                    node.cni(verb, name)
                    return time.monotonic() - start

                with ThreadPoolExecutor(at_once) as pool:
                    times = sorted(pool.map(call, names))
                rate, cost = pods / (time.monotonic() - begin), (used(node.agent.pid) - before) / pods
                p50, p95 = (1000 * times[int(part * len(times))] for part in (0.5, 0.95))
                told = f"{rate:6.1f}/s  p50 {p50:7.1f} ms  p95 {p95:7.1f} ms  agent's CPU {1000 * cost:.1f} ms each"
                print(f"{f'{millicores}m' if millicores else 'alone':>6} {verb} {told}", flush=True)


if __name__ == "__main__":
    given = [*sys.argv[1:], *("40", "5", "0,20,100,200,300,500")[len(sys.argv) - 1 :]]
    for request in given[2].split(","):
        measure(int(request), pods=int(given[0]), at_once=int(given[1]))
