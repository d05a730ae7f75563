"""A node to run a container runtime on: its own network, mounts and processes, gone in one stroke.

A keeper process holds the new namespaces and is the first process of the PID namespace.  Whatever runs on the node
(containerd, its shims, the agent, pods) lives in that PID namespace, so the kernel ends all of it with the keeper,
and all mounts and interfaces go with their namespaces.  The keeper ends when its standard input closes, which it
does even when the test run itself is killed.

The node has a /run of its own and writes to its own copies of /var/lib, /etc and /opt, because runtimes keep, or look
for, some files at fixed paths there (shim sockets, cached results, `ctr`'s plugins and their configuration).  Cgroups
are the machine's and visible: programs are started with `nsenter`, not `ip netns exec`, which would hide them.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL, Signals

PATIENCE = 30.0  # seconds one wait may last: far above what a loaded machine needs, well below the test's time limit
LOG_TAIL = 30  # lines of each log that a failed test shows

_KEEPER = """
set -e
ip link set lo up
mount -t tmpfs node-run /run
for place in var/lib etc opt; do
  mkdir -p /run/own/$place /run/work/$place
  mount -t overlay -o lowerdir=/$place,upperdir=/run/own/$place,workdir=/run/work/$place node-own /$place
done
trap '' CHLD  # cat inherits this: the kernel reaps the node's orphans
echo ready
exec cat
"""


class Process:
    """A program running on the node.  `pid` is the program's own, not that of the `nsenter` which waits for it."""

    def __init__(self, name: str, nsenter: "subprocess.Popen[bytes]") -> None:
        self.name = name
        self.pid = _only_child(nsenter)
        self._nsenter = nsenter

    @property
    def ended(self) -> bool:
        return self._nsenter.poll() is not None

    def end(self, signal: Signals = SIGKILL) -> None:
        """Send the signal to a running program and wait until it is gone."""
        os.kill(self.pid, signal)
        self.wait()

    def wait(self) -> None:
        self._nsenter.wait(PATIENCE)


class Node:
    """A context manager.  `directory` is on the machine's file system: the same path inside and outside."""

    def __init__(self) -> None:
        self._keeper = _hold_namespaces("--net", "--mount", "--pid", "--fork", "--mount-proc", script=_KEEPER)
        self.pid = _only_child(self._keeper)
        self._processes: list[Process] = []
        self.directory = Path(tempfile.mkdtemp(prefix="flock-rt-"))  # short: a socket's path has at most 107 bytes
        self.cgroup = f"/{self.directory.name}"  # the parent of all its pods' cgroups

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: object) -> None:
        self._keeper.communicate(timeout=PATIENCE)  # closes its standard input
        for process in self._processes:
            process.wait()
        _remove_cgroups(self.cgroup)
        shutil.rmtree(self.directory)

    def command(self, *argv: str | Path, netns_of: int | None = None) -> list[str]:
        """The command line that runs `argv` on the node; with `netns_of`, a process id as the node counts them,
        in the network namespace of that process."""
        enter = ["nsenter", f"--target={self.pid}", "--net", "--mount", "--pid", "--"]
        if netns_of is not None:
            enter += ["nsenter", f"--target={netns_of}", "--net", "--"]
        return [*enter, *map(str, argv)]

    def attempt(self, *argv: str | Path, netns_of: int | None = None) -> "subprocess.CompletedProcess[str]":
        command = self.command(*argv, netns_of=netns_of)
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)

    def run(self, *argv: str | Path, netns_of: int | None = None) -> str:
        """What `argv` prints; it has to succeed."""
        done = self.attempt(*argv, netns_of=netns_of)
        assert done.returncode == 0, f"{' '.join(map(str, argv))}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, name: str, *argv: str | Path) -> Process:
        """Start a daemon; what it prints is appended to `<directory>/<name>.log`."""
        with (self.directory / f"{name}.log").open("ab") as log:
            nsenter = subprocess.Popen(self.command(*argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        process = Process(name, nsenter)
        self._processes.append(process)
        return process

    def wait_for(self, what: str, condition: Callable[[], bool], *, process: Process | None = None) -> None:
        """Until `condition` holds; fails when that takes too long or `process` ends before."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert process is None or not process.ended, f"{process.name} ended in the wait for {what}"
            assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s for {what}"
            time.sleep(0.05)

    def logs(self) -> str:
        """The end of every daemon's log, for whoever has to find out why a test failed."""
        parts = []
        for log in sorted(self.directory.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL:]
            parts += [f"--- {log.name}, last {len(lines)} lines", *lines]
        return "\n".join(parts)


class Neighbour:
    """A machine at the other end of the node's uplink, as a context manager; it routes `prefixes` to the node."""

    NODE_ADDRESSES = ("2001:db8:ffff::11", "198.51.100.11")
    ADDRESSES = ("2001:db8:ffff::1", "198.51.100.1")

    def __init__(self, node: Node, *, prefixes: tuple[str, ...]) -> None:
        self._keeper = _hold_namespaces("--net", script="ip link set lo up; echo ready; exec cat")
        self.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(node.pid))
        for run, addresses in ((self.run, self.ADDRESSES), (node.run, self.NODE_ADDRESSES)):
            for address, length in zip(addresses, (64, 24), strict=True):
                run("ip", "address", "add", f"{address}/{length}", "dev", "eth0", *_no_dad(address))
            run("ip", "link", "set", "eth0", "up")
        for address in self.ADDRESSES:
            node.run("ip", "route", "add", "default", "via", address)
        for prefix in prefixes:
            self.run("ip", "route", "add", prefix, "via", self.NODE_ADDRESSES[":" not in prefix])

    def __enter__(self) -> "Neighbour":
        return self

    def __exit__(self, *_: object) -> None:
        self._keeper.communicate(timeout=PATIENCE)

    def run(self, *argv: str) -> str:
        command = ["nsenter", f"--target={self._keeper.pid}", "--net", "--", *argv]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stdout}{done.stderr}"
        return done.stdout


def _hold_namespaces(*kinds: str, script: str) -> "subprocess.Popen[bytes]":
    """A process in new namespaces that has run `script`, and ends when its standard input does."""
    keeper = subprocess.Popen(["unshare", *kinds, "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert keeper.stdout is not None
    if keeper.stdout.readline() != b"ready\n":
        keeper.communicate(timeout=PATIENCE)
        raise AssertionError(f"unshare {' '.join(kinds)} failed with {keeper.returncode}: root is needed")
    return keeper


def _only_child(parent: "subprocess.Popen[bytes]") -> int:
    """The process that `unshare --fork` or `nsenter --pid` forked to be in the new PID namespace."""
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    deadline = time.monotonic() + PATIENCE
    while not (found := children.read_text().split()):
        assert parent.poll() is None and time.monotonic() < deadline, f"{parent.args!r} started no child"
        time.sleep(0.001)
    return int(found[0])


def _no_dad(address: str) -> tuple[str, ...]:
    return ("nodad",) if ":" in address else ()


def _remove_cgroups(name: str) -> None:
    """Remove the cgroup `name` and all below it from every hierarchy, version 1 or 2; they hold no process."""
    root = Path("/sys/fs/cgroup")
    for top in [*root.glob(f"*{name}"), *root.glob(name[1:])]:
        for directory, _, _ in os.walk(top, topdown=False):
            Path(directory).rmdir()
