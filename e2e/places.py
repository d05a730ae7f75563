"""A place: namespaces and a directory in which programs run, all of it gone in one stroke.

A keeper process holds a mount and a PID namespace, in a network namespace that is there already or in the caller's.
Whatever is started in the place lives in that PID namespace, so the kernel kills all of it with the keeper, shims and
pods included, and the mounts go with it.  The keeper ends when its standard input closes, which it does even when
the test run itself is killed.  Only cgroups outlive it: whoever makes them removes them.

Programs are entered with `nsenter`, not `ip netns exec`: the latter would hide the cgroup file systems.
"""

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, Signals
from typing import TypeVar

PATIENCE = 60.0  # seconds one wait may last: far above what a loaded machine needs
SHOWN, KEPT = 20, 300  # lines of a log in a failure's message, and in what is kept of it

T = TypeVar("T")

_KEEPER = """
set -e
{setup}
trap '' CHLD  # cat inherits this: the kernel reaps the place's orphans
echo ready
exec cat
"""


class Failed(AssertionError):
    """A command of the harness did not succeed, or something awaited did not happen."""


class Daemon:
    """A program running in a place.  `pid` is the program's own, as this machine counts processes."""

    def __init__(self, nsenter: "subprocess.Popen[bytes]") -> None:
        self.pid = _only_child(nsenter)
        self._nsenter = nsenter

    @property
    def ended(self) -> bool:
        return self._nsenter.poll() is not None

    def end(self, signal: Signals) -> None:
        """Send the signal, unless the program has ended by itself, and wait until it is gone."""
        if not self.ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal)
        self.wait()

    def wait(self) -> None:
        self._nsenter.wait(PATIENCE)


class Place:
    """Use as a context manager.  `setup` is shell, run first, in the new namespaces."""

    def __init__(self, name: str, *, directory: Path, netns: Path | None = None, setup: str = "") -> None:
        self.name = name
        self.directory = directory
        self._daemons: dict[str, Daemon] = {}
        directory.mkdir(parents=True, exist_ok=True)
        network = ["nsenter", f"--net={netns}", "--"] if netns else []
        unshare = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", _KEEPER.format(setup=setup)]
        self._keeper = subprocess.Popen([*network, *unshare], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != b"ready\n":
            self._keeper.communicate(timeout=PATIENCE)
            raise Failed(f"{name}: its namespaces could not be made or set up, as told on stderr; root is needed")
        self.pid = _only_child(self._keeper)

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill everything that runs here."""
        self._keeper.communicate(timeout=PATIENCE)  # closes its standard input
        for daemon in self._daemons.values():
            daemon.wait()

    # --- commands -------------------------------------------------------------------------------------------

    def command(self, *argv: str | Path) -> list[str]:
        """The command line that runs `argv` here."""
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--pid", "--", *map(str, argv)]

    def attempt(
        self, *argv: str | Path, stdin: str = "", timeout: float = PATIENCE
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self.command(*argv), input=stdin, capture_output=True, text=True, timeout=timeout)

    def run(self, *argv: str | Path, stdin: str = "", timeout: float = PATIENCE) -> str:
        """What `argv` prints; it has to succeed."""
        done = self.attempt(*argv, stdin=stdin, timeout=timeout)
        if done.returncode:
            said = done.stderr + done.stdout or f"exit status {done.returncode} without a word"
            raise Failed(f"{self.name}: {' '.join(map(str, argv))}: {said}")
        return done.stdout

    # --- daemons --------------------------------------------------------------------------------------------

    def start(self, role: str, *argv: str | Path) -> None:
        """Start a daemon; what it prints is appended to `<directory>/<role>.log`."""
        assert role not in self._daemons, f"{self.name}: {role} was started before and not stopped"
        with (self.directory / f"{role}.log").open("ab") as log:
            nsenter = subprocess.Popen(self.command(*argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._daemons[role] = Daemon(nsenter)

    def stop(self, role: str, *, by: Signals = SIGKILL) -> None:
        self._daemons.pop(role).end(by)

    def running(self, role: str) -> bool:
        return role in self._daemons and not self._daemons[role].ended

    def wait(self, what: str, condition: Callable[[], bool], *, role: str, patience: float = PATIENCE) -> None:
        """Until `condition` holds; fails with the end of the daemon's log when that takes too long or it ends."""
        deadline = time.monotonic() + patience
        while not condition():
            if not self.running(role) or time.monotonic() > deadline:
                state = "still waiting" if self.running(role) else f"{role} ended"
                raise Failed(f"{self.name}: {what}: {state}\n{self.log(role, lines=SHOWN)}")
            time.sleep(0.05)

    def log(self, role: str, *, lines: int = KEPT) -> str:
        return tail(self.directory / f"{role}.log", lines=lines)

    def logs(self) -> str:
        """The end of every daemon's log, for whoever has to find out why a test failed."""
        roles = sorted(path.stem for path in self.directory.glob("*.log"))
        return "\n".join(f"--- {self.name}: {role}\n{self.log(role)}" for role in roles)


def tail(log: Path, *, lines: int = KEPT) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def eventually(condition: Callable[[], T], *, what: str, patience: float = PATIENCE, pause: float = 0.1) -> T:
    """The first truthy answer of `condition`; what fails in between is tried again until patience runs out."""
    deadline = time.monotonic() + patience
    while True:
        try:
            answer = condition()
            reason = repr(answer)
        except Failed as failure:
            answer, reason = None, str(failure)
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise Failed(f"waited {patience:.0f} s for {what}; last: {reason}")
        time.sleep(pause)


def _only_child(parent: "subprocess.Popen[bytes]") -> int:
    """The process that `unshare --fork` or `nsenter --pid` forked to be in the PID namespace."""
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    deadline = time.monotonic() + PATIENCE
    while not (found := children.read_text().split()):
        if parent.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"{parent.args!r} started no child")
        time.sleep(0.001)
    return int(found[0])
