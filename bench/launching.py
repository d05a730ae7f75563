"""Commands as a container runtime runs them, and the times they take from spawn to exit.

The timing itself is done by `launch.c`; this module builds it, writes its plan and reads its times.
"""

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from world import World, end_process

HERE = Path(__file__).parent
BUILD = HERE.parent / "build" / "bench"
PAUSE = 0.002  # seconds between sequential commands, for what the last one left the kernel or its agent to do
PATIENCE = 180.0  # seconds a whole plan may take


class BenchError(Exception):
    """A contender or the machine cannot do what a measurement needs; the rest carries on."""


# The same, and what a tool or a file of the machine's refuses.
FAILURES = (BenchError, subprocess.SubprocessError, OSError)


@dataclass(frozen=True)
class Command:
    """One execution.  `stdin` is the document the command reads."""

    node: Path
    argv: Sequence[str | Path]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Run:
    """What became of a command: times on one clock for the whole plan, in nanoseconds, and what it printed."""

    status: int
    start: int
    end: int
    output: str

    @property
    def failed(self) -> bool:
        return self.status != 0

    @property
    def ms(self) -> float:
        return (self.end - self.start) / 1e6

    @property
    def result(self) -> dict[str, Any]:
        """The CNI result printed, empty where there is none."""
        try:
            found = json.loads(self.output)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


class Launcher:
    def __init__(self, world: World) -> None:
        self._program = build("launch")
        self._world = world
        self._plans = itertools.count(1)

    def sequential(self, commands: Sequence[Command]) -> list[Run]:
        return self._launch(commands, at_once=1, pause=PAUSE)

    def concurrent(self, commands: Sequence[Command], *, at_once: int) -> list[Run]:
        return self._launch(commands, at_once=at_once, pause=0)

    def _launch(self, commands: Sequence[Command], *, at_once: int, pause: float) -> list[Run]:
        directory = self._world.scratch / f"plan{next(self._plans)}"
        directory.mkdir()
        plan, times = directory / "plan", directory / "times"
        plan.write_text("".join(_plan_entry(command, directory, n) for n, command in enumerate(commands)))
        microseconds = round(pause * 1e6)
        command: list[str | Path] = [self._program, plan, times, str(at_once), str(microseconds)]
        launcher = subprocess.Popen(command)
        try:
            launcher.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{len(commands)} commands, {at_once} at once, took over {PATIENCE:.0f} s") from None
        finally:
            end_process(launcher)
        if launcher.returncode:
            raise BenchError(f"the launcher ended with status {launcher.returncode}")
        runs = []
        for number, line in enumerate(times.read_text().splitlines()):
            status, start, end = (int(word) for word in line.split())
            output = (directory / f"{number}.out").read_text(errors="replace")
            runs.append(Run(status=status, start=start, end=end, output=output))
        shutil.rmtree(directory)
        return runs


def _plan_entry(command: Command, directory: Path, number: int) -> str:
    lines = [f"node {command.node}", f"stdout {directory / f'{number}.out'}"]
    if command.stdin is not None:
        stdin = directory / f"{number}.in"
        stdin.write_text(json.dumps(command.stdin))
        lines.append(f"stdin {stdin}")
    lines += [f"env {key}={value}" for key, value in command.env.items()]
    lines += [f"arg {word}" for word in command.argv]
    return "\n".join([*lines, "go", ""])


def build(program: str) -> Path:
    """Compile `<program>.c` beside this file, static and small like the CNI executable, unless that is done."""
    source, target = HERE / f"{program}.c", BUILD / program
    if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
        return target
    BUILD.mkdir(parents=True, exist_ok=True)
    options = ["-O2", "-Wall", "-Wextra", "-static"]
    compiler = shutil.which("musl-gcc")
    if compiler:
        # musl brings no kernel headers: look for them where the system keeps its own, after everything else.
        asked = subprocess.run(["gcc", "-print-multiarch"], capture_output=True, text=True, check=True)
        options += ["-idirafter", "/usr/include", "-idirafter", f"/usr/include/{asked.stdout.strip()}"]
    command: list[str | Path] = [compiler or os.environ.get("CC", "cc"), *options, "-o", target, source]
    try:
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchError(f"cannot compile {source.name}: {error}") from error
    return target
