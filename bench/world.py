"""The nodes, pods and directories of one benchmark run, and their removal.

Every network namespace carries a prefix unique to the run, every file lives in one of two temporary directories:
`durable` on a real disk (what contenders must be able to fsync) and `scratch` in memory (plans, standard input and
output, logs: a container runtime uses pipes there, so they must not add to the journal the contenders flush).
Closing the world ends the processes it started and removes all of it; it is safe to close it at any point.
"""

import contextlib
import hashlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

NETNS_DIR = Path("/run/netns")
NODE_ADDRESSES = ("192.0.2.1/32", "2001:db8::1/128")
SHARED_MEMORY = Path("/dev/shm")
GRACE = 5.0  # seconds an agent gets to stop by itself


@dataclass(frozen=True)
class Pod:
    """A sandbox a runtime would ask a network for: a namespace that exists, and a container id used once."""

    serial: int
    netns: Path

    @property
    def namespace(self) -> str:
        return "bench"

    @property
    def name(self) -> str:
        return f"web-{self.serial}"

    @property
    def container_id(self) -> str:
        return hashlib.sha256(f"{self.netns.name}/{self.serial}".encode()).hexdigest()

    @property
    def uid(self) -> str:
        digits = self.container_id[32:]
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


class World:
    def __init__(self) -> None:
        self.prefix = f"flockbench-{os.getpid()}-"
        self.durable = Path(tempfile.mkdtemp(prefix=self.prefix, dir="/var/tmp"))
        memory = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self.scratch = Path(tempfile.mkdtemp(prefix=self.prefix, dir=memory))
        self._serial = itertools.count(1)
        self._idle: list[Path] = []  # pod namespaces without a pod
        self._made = 0
        self._processes: list[subprocess.Popen[bytes]] = []

    # --- namespaces ---

    def node(self, name: str) -> Path:
        """A network namespace that forwards and has an address of each family, on its loopback.

        Without one of its own the kernel would look for a source address on all links, for each route added.
        """
        netns = self.prefix + name
        _ip([f"netns add {netns}"])
        inside = ["ip link set lo up", *(f"ip address add {address} dev lo" for address in NODE_ADDRESSES)]
        inside += [f"echo 1 > /proc/sys/net/{setting}" for setting in ("ipv4/ip_forward", "ipv6/conf/all/forwarding")]
        subprocess.run(["nsenter", f"--net={NETNS_DIR / netns}", "sh", "-ec", "\n".join(inside)], check=True)
        return NETNS_DIR / netns

    def pods(self, count: int) -> list[Pod]:
        """`count` new pods in empty namespaces, which `recycle` takes back once they are empty again."""
        missing = range(self._made, self._made + max(0, count - len(self._idle)))
        names = [f"{self.prefix}pod{number}" for number in missing]
        _ip([f"netns add {name}" for name in names])
        self._made += len(names)
        self._idle += [NETNS_DIR / name for name in names]
        return [Pod(serial=next(self._serial), netns=self._idle.pop()) for _ in range(count)]

    def recycle(self, pods: Iterable[Pod]) -> None:
        self._idle += [pod.netns for pod in pods]

    # --- processes ---

    def start(self, command: Sequence[str | Path], *, node: Path, log: Path) -> subprocess.Popen[bytes]:
        """Run `command` in a node's namespace until it is stopped or the world closes; its process id is its own."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["nsenter", f"--net={node}", *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self._processes.append(process)
        return process

    # --- the end ---

    def clear(self) -> None:
        """End what was started, at the latest after a grace time, and remove nodes, pods and files.

        Namespaces go too because the kernel keeps some state for all of them together: a measurement that finds those
        of the one before it is slower.
        """
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            end_process(process)
        self._processes.clear()
        ours = [path.name for path in NETNS_DIR.glob(self.prefix + "*")]
        _ip([f"netns del {name}" for name in ours], force=True)
        self._idle.clear()
        for path in (*self.durable.iterdir(), *self.scratch.iterdir()):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def __enter__(self) -> "World":
        signal.signal(signal.SIGTERM, _exit_on)
        return self

    def __exit__(self, *_: object) -> None:
        with undisturbed():
            self.clear()
            shutil.rmtree(self.durable, ignore_errors=True)
            shutil.rmtree(self.scratch, ignore_errors=True)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Ask it to stop, and insist after a grace time; one that has ended already is fine."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _exit_on(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """An impatient second Ctrl-C must not stop the cleaning half-way, nor a second SIGTERM."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ip(lines: Sequence[str], *, force: bool = False) -> None:
    """Run lines of `ip -batch`, which is fifty times quicker than a process for each."""
    if lines:
        options = ["-force"] if force else []
        text = "".join(f"{line}\n" for line in lines)
        subprocess.run(["ip", *options, "-batch", "-"], input=text.encode(), check=not force)
