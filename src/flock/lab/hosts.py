"""A host of the lab: a namespace, a directory, and the processes that run in it.

Every process has a record `<home>/<role>.process` with its pid, the moment it started and the boot, which together
never name another process, and a log `<home>/<role>.log`.  Processes are detached: they outlive the command that
started them.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from flock.edge.boot import boot_id
from flock.lab import namespaces
from flock.lab.errors import LabError

ENTER_PATIENCE = 10.0  # seconds until a process is in its namespace, which it enters at once
STOP_PATIENCE = 5.0  # seconds from SIGTERM to SIGKILL; BIRD and FRR withdraw their routes first


class Process(msgspec.Struct, frozen=True):
    pid: int
    started: int  # clock ticks after boot, from /proc
    boot: str = ""  # of an earlier version: not told


class Host:
    """Commands and daemons in one namespace."""

    def __init__(self, name: str, *, netns: str, home: Path) -> None:
        self.name = name
        self.netns = netns
        self.home = home

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout: float = 30) -> str:
        """What the command prints.  Raises LabError with what it said when it fails or takes too long."""
        try:
            done = subprocess.run(
                self.inside(argv), input=stdin, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"{self.name}: {' '.join(argv)} took more than {timeout:g} s") from None
        if done.returncode:
            raise LabError(f"{self.name}: {' '.join(argv)} failed", details=(done.stderr + done.stdout).strip())
        return done.stdout

    def inside(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` here; `ip netns exec` becomes the command, so the pid is the command's."""
        return ["ip", "netns", "exec", self.netns, *argv]

    def spawn(self, role: str, argv: Sequence[str]) -> None:
        """Start a daemon, unless it runs already.  When this returns, whoever ends all of the namespace ends it too."""
        if self.running(role):
            return
        self.home.mkdir(parents=True, exist_ok=True)
        command = self.inside(argv)
        log = (os.POSIX_SPAWN_OPEN, 1, str(self._log(role)), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        pid = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            file_actions=[nothing, log, (os.POSIX_SPAWN_DUP2, 1, 2)],
            setsid=True,  # the terminal's Ctrl-C is not meant for it
        )
        entered = lambda: namespaces.is_inside(pid, self.netns) or _started(pid) is None  # noqa: E731
        wait_until(entered, timeout=ENTER_PATIENCE, pause=0.001)
        started = _started(pid)
        if started is not None:
            self._record(role).write_bytes(msgspec.json.encode(Process(pid, started, boot_id())))

    def process(self, role: str) -> Process | None:
        """The role's process if it is alive."""
        try:
            recorded = msgspec.json.decode(self._record(role).read_bytes(), type=Process)
        except (OSError, msgspec.DecodeError):
            return None
        of_this_boot = recorded.boot in ("", boot_id())
        return recorded if of_this_boot and _started(recorded.pid) == recorded.started else None

    def running(self, role: str) -> bool:
        return self.process(role) is not None

    def stop(self, role: str, *, by: signal.Signals = signal.SIGTERM) -> None:
        """End a daemon and wait until it is gone; one that is not there is fine."""
        process = self.process(role)
        if process is not None:
            end([process.pid], by=by)
        self._record(role).unlink(missing_ok=True)

    def log(self, role: str, lines: int = 5) -> str:
        with suppress(OSError):
            return "\n".join(self._log(role).read_text(errors="replace").splitlines()[-lines:])
        return ""

    def wait(self, role: str, ready: Callable[[], object], *, what: str, timeout: float = 10) -> None:
        """Wait for a daemon to be of use: for an answer, and no LabError.  Raises LabError with the end of its log when
        it is not, or dies."""

        def is_ready() -> bool:
            with suppress(LabError):
                return bool(ready())
            return False

        if wait_until(lambda: is_ready() or not self.running(role), timeout=timeout) and is_ready():
            return
        state = "is running" if self.running(role) else "has ended"
        raise LabError(f"{self.name}: {what} did not come up; {role} {state}", details=self.log(role))

    def _record(self, role: str) -> Path:
        return self.home / f"{role}.process"

    def _log(self, role: str) -> Path:
        return self.home / f"{role}.log"


def wait_until(condition: Callable[[], bool], *, timeout: float, pause: float = 0.02) -> bool:
    """True as soon as the condition holds, False if it never did."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


def end(pids: Sequence[int], *, by: signal.Signals = signal.SIGTERM) -> None:
    """End processes and wait until they are gone; those that do not listen are killed after a while."""
    handles = {pid: fd for pid in pids if (fd := _pidfd(pid)) is not None}
    try:
        left = _gone(handles, by, STOP_PATIENCE)
        _gone(left, signal.SIGKILL, STOP_PATIENCE)
    finally:
        for fd in handles.values():
            os.close(fd)


def _gone(handles: dict[int, int], by: signal.Signals, patience: float) -> dict[int, int]:
    """Signal all of them; returns those that are still there when patience runs out."""
    left = dict(handles)
    poll = select.poll()
    for fd in left.values():
        poll.register(fd, select.POLLIN)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, by)
    deadline = time.monotonic() + patience
    while left and time.monotonic() < deadline:
        exited = {fd for fd, _ in poll.poll(max(1.0, 1000 * (deadline - time.monotonic())))}
        for pid, fd in list(left.items()):
            if fd in exited:
                poll.unregister(fd)
                del left[pid]
                with suppress(ChildProcessError):  # ours to reap only if we started it
                    os.waitpid(pid, os.WNOHANG)
    return left


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _started(pid: int) -> int | None:
    """When the process started; None if there is none or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if fields[0] not in "ZX" else None
