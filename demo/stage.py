"""What the demo plays on: a node and a router, each a network namespace, a real agent, and pods as runtimes make them.

Everything made here carries one prefix or lies in one directory, so that `clear` can take it away without a list that
could be wrong, and `leftovers` can say whether that worked.  Commands are run as they are printed: a reader may type
them while the demo holds (`--hold`).
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FLOCK = ROOT / "build" / "flock"
BIN = Path(sys.executable).parent
PATIENCE = 20.0  # seconds; bounds every wait of the demo, all of which are over within one


class Failed(Exception):
    """Something did not hold; the text says what."""


def say(text: str = "") -> None:
    print(text, flush=True)


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text


def indented(text: str) -> None:
    say(textwrap.indent(text.rstrip(), "    "))


def expect(holds: object, what: str) -> None:
    if not holds:
        raise Failed(what)
    say(f"  ✓ {what}")


def eventually(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {PATIENCE:.0f} s")
        time.sleep(0.02)


class Stage:
    def __init__(self) -> None:
        self.prefix = f"demo{os.getpid()}-"
        self.node, self.router = f"{self.prefix}node", f"{self.prefix}router"
        self.directory = Path(tempfile.mkdtemp(prefix="flock-demo."))
        rooms = [self.directory / name for name in ("manifests", "state", "run", "bird")]
        for room in rooms:
            room.mkdir()
        self.manifests, self.state, self.run_dir, self.bird_dir = rooms
        self.log = self.directory / "agent.log"
        self.net_conf = self.directory / "flock.conf"
        conf = {"cniVersion": "1.0.0", "name": "flock", "type": "flock", "socket": str(self.run_dir / "flock.sock")}
        self.net_conf.write_text(json.dumps(conf))
        self.agent: subprocess.Popen[bytes] | None = None
        self._children: list[subprocess.Popen[Any]] = []
        self._env = {**os.environ, "FLOCK_RUN_DIR": str(self.run_dir), "PATH": f"{BIN}:{os.environ['PATH']}"}

    # --- commands ---

    def run(self, *command: str) -> str:
        """Run quietly; Failed if it fails."""
        done = self.attempt(*command)
        if done.returncode:
            raise Failed(f"{shlex.join(command)}: {(done.stdout + done.stderr).strip()}")
        return done.stdout

    def attempt(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=60)

    def shown(self, *command: str, code: int = 0) -> str:
        """Print a command, run just that, print what it says."""
        say(f"  $ {shlex.join(command)}")
        done = self.attempt(*command)
        if done.stdout + done.stderr:
            indented(done.stdout + done.stderr)
        if done.returncode != code:
            raise Failed(f"{command[0]} ended with {done.returncode}, not {code}")
        return done.stdout

    def start(self, *command: str, **how: Any) -> "subprocess.Popen[Any]":
        """In the background.  A session of its own, so that Ctrl-C reaches the demo alone, which then clears up."""
        child = subprocess.Popen(command, env=self._env, start_new_session=True, **how)
        self._children.append(child)
        return child

    # --- the node ---

    def build_node(self) -> None:
        """A node with one uplink; behind it a router that knows the node's prefixes by two static routes."""
        for name in (self.node, self.router):
            self.run("ip", "netns", "add", name)
            self.run("ip", "-n", name, "link", "set", "lo", "up")
        uplink = ("ip", "-n", self.node, "link", "add", "eth0", "mtu", "9000", "type", "veth")
        self.run(*uplink, "peer", "name", "eth0", "mtu", "9000", "netns", self.router)
        for name, host in ((self.node, 11), (self.router, 1)):
            self.run("ip", "-n", name, "link", "set", "eth0", "up")
            self.run("ip", "-n", name, "addr", "add", f"2001:db8:ffff::{host}/64", "dev", "eth0", "nodad")
            self.run("ip", "-n", name, "addr", "add", f"198.51.100.{host}/24", "dev", "eth0")
        for default, prefix, router, node in (
            ("::/0", "2001:db8:1::/64", "2001:db8:ffff::1", "2001:db8:ffff::11"),
            ("0.0.0.0/0", "192.0.2.0/26", "198.51.100.1", "198.51.100.11"),
        ):
            self.run("ip", "-n", self.node, "route", "add", default, "via", router)
            self.run("ip", "-n", self.router, "route", "add", prefix, "via", node)

    def manifest(self, name: str, text: str) -> None:
        (self.manifests / f"{name}.yaml").write_text(text)

    @property
    def agent_command(self) -> list[str]:
        command = ["nsenter", f"--net=/run/netns/{self.node}", "flock-agent", "--node", "node1", "--http", ""]
        command += ["--manifests", str(self.manifests), "--state-dir", str(self.state)]
        return [*command, "--run-dir", str(self.run_dir), "--bird-dir", str(self.bird_dir)]

    def start_agent(self) -> None:
        with self.log.open("ab") as log:
            self.agent = self.start(*self.agent_command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        eventually(self._ready, "the agent is ready")

    def _ready(self) -> bool:
        if self.agent is not None and self.agent.poll() is not None:
            raise Failed(f"the agent ended with {self.agent.returncode}")
        return self.attempt("flockctl", "status").returncode == 0

    def end_agent(self, number: signal.Signals) -> int:
        assert self.agent is not None
        self.agent.send_signal(number)
        return self.agent.wait(PATIENCE)

    def log_lines(self, word: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if word in line]

    # --- pods ---

    def netns(self, pod: str) -> str:
        return f"{self.prefix}{pod}"

    def make_namespace(self, pod: str) -> None:
        self.run("ip", "netns", "add", self.netns(pod))

    def cni_environment(self, verb: str, pod: str) -> dict[str, str]:
        return {
            "CNI_COMMAND": verb,
            "CNI_CONTAINERID": pod,
            "CNI_NETNS": f"/run/netns/{self.netns(pod)}",
            "CNI_IFNAME": "eth0",
            "CNI_PATH": "/opt/cni/bin",
            "CNI_ARGS": f"K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod}",
        }

    def cni(self, verb: str, pod: str, **changed: str) -> "subprocess.Popen[str]":
        """The executable, called as a runtime does; not waited for."""
        environment = self.cni_environment(verb, pod) | changed
        with self.net_conf.open() as conf:
            child = subprocess.Popen(
                [FLOCK], env=environment, stdin=conf, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
        self._children.append(child)
        return child

    def attach(self, pod: str) -> dict[str, Any]:
        """A fresh namespace and ADD; returns the CNI result with the milliseconds it took as `ms`."""
        self.make_namespace(pod)
        started = time.monotonic()
        return self.result(self.cni("ADD", pod)) | {"ms": (time.monotonic() - started) * 1000}

    def result(self, call: "subprocess.Popen[str]") -> dict[str, Any]:
        out, _ = call.communicate(timeout=PATIENCE + 30)
        if call.returncode:
            raise Failed(f"the CNI executable said {out.strip()}")
        answer: dict[str, Any] = json.loads(out or "{}")
        return answer

    def pings(self, source: str, address: str) -> bool:
        command = ("ip", "netns", "exec", source, "ping", "-c1", "-W2", "-n", address)
        return self.attempt(*command).returncode == 0

    # --- the end ---

    def clear(self) -> None:
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            child.wait()
        for name in self._namespaces():
            self.attempt("ip", "netns", "del", name)
        shutil.rmtree(self.directory, ignore_errors=True)

    def leftovers(self) -> list[str]:
        found = [f"namespace {name}" for name in self._namespaces()]
        found += [f"process {child.pid}" for child in self._children if child.poll() is None]
        return found + ([f"directory {self.directory}"] if self.directory.exists() else [])

    def _namespaces(self) -> list[str]:
        names = (line.split()[0] for line in self.attempt("ip", "netns", "list").stdout.splitlines())
        return [name for name in names if name.startswith(self.prefix)]
