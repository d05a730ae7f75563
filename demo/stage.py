"""What the demo plays on: a lab of its own, taken away at the end whatever happened, and the words around it.

Commands are run as they are printed, so a reader may type them while the demo holds (`--hold`).  The exception is what
has to be timed: there the function behind the command is called, because starting a command takes longer than what it
sets off.
"""

import json
import os
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from watching import Asker, Moment

from flock.lab import namespaces
from flock.lab.fabric import Lab
from flock.lab.home import DEFAULT_ROOT, Home
from flock.lab.nodes import Node, cni_program

BIN = Path(sys.executable).parent
PATIENCE = 20.0  # seconds; bounds every wait of the demo, all of which are over within a few


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
        time.sleep(0.05)


class Stage:
    def __init__(self) -> None:
        self.name = _claim()
        self.home = Home.named(self.name)
        self.started = time.monotonic()
        self.moments: list[Moment] = []
        self.askers: list[Asker] = []  # the client, while it asks the anycast service
        self._viewer: subprocess.Popen[str] | None = None
        self._env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}

    @property
    def lab(self) -> Lab:
        return Lab(self.home)

    def node(self, name: str) -> Node:
        return self.lab.node(name)

    # --- commands ---

    def lab_command(self, verb: str, *arguments: str) -> list[str]:
        """`flockctl lab VERB …` for this lab."""
        return ["flockctl", "lab", *verb.split(), "--name", self.name, *arguments]

    def flockctl(self, node: str, *arguments: str, code: int = 0) -> str:
        """Ask a node's agent."""
        return self.shown("flockctl", "--run-dir", str(self.home.of(node) / "run"), *arguments, code=code)

    def shown(self, *command: str, code: int = 0, only: Iterable[str] = ()) -> str:
        """Print a command, run just that, print what it says, or of that the lines that contain one of `only`."""
        self.typed(*command)
        done = subprocess.run(
            command, env=self._env, capture_output=True, text=True, timeout=60, start_new_session=True
        )
        said = done.stdout + done.stderr
        lines = [line for line in said.splitlines() if not only or any(word in line for word in only)]
        if lines:
            indented("\n".join(lines))
        if done.returncode != code:
            raise Failed(f"{command[0]} ended with {done.returncode}, not {code}")
        return said

    def typed(self, *command: str) -> None:
        """Print a command as a user would type it."""
        say(f"  $ {shlex.join(command)}")

    def start(self, *command: str) -> "subprocess.Popen[str]":
        """Not waited for; what it says is in its pipes."""
        self.typed(*command)
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self._env, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def add_pod(self, name: str, *, node: str, options: Iterable[str] = ()) -> None:
        self.shown(*self.lab_command("pod add", "--node", node, *options, name))

    def cni(self, verb: str, *, node: str, netns: str) -> tuple[dict[str, Any], float]:
        """The CNI executable, called as a container runtime does: what it answered, and the milliseconds it took."""
        program = cni_program()
        config = self.home.path / "flock.conf"
        plugin = {"cniVersion": "1.0.0", "name": "flock", "type": "flock"}
        config.write_text(json.dumps(plugin | {"socket": str(self.home.of(node) / "run" / "flock.sock")}))
        environment = {
            "CNI_COMMAND": verb,
            "CNI_CONTAINERID": "by-hand",
            "CNI_NETNS": str(namespaces.NETNS_DIR / netns),
            "CNI_IFNAME": "eth0",
            "CNI_PATH": str(Path(program).parent),
        }
        settings = " ".join(f"{key}={value}" for key, value in environment.items())
        say(f"  $ env {settings} \\\n      {program} < {config}")
        with config.open() as stdin:
            begun = time.monotonic()
            done = subprocess.run([program], env=environment, stdin=stdin, capture_output=True, text=True, timeout=60)
            took = (time.monotonic() - begun) * 1000
        if done.returncode:
            raise Failed(f"the CNI executable said {done.stdout.strip()}")
        answer: dict[str, Any] = json.loads(done.stdout or "{}")
        return answer, took

    def view(self) -> None:
        """Offer the page for as long as the demo lasts."""
        self._viewer = self.start("flockctl", "view", "--lab", self.name)
        assert self._viewer.stdout is not None
        address = self._viewer.stdout.readline().strip()
        if not address:
            raise Failed("flockctl view did not start")
        say(f"  What happens from here on is on this page: {bold(address)}")

    # --- the timeline ---

    def note(self, at: float, what: str, measured: str) -> None:
        self.moments.append(Moment(at - self.started, what, measured))

    # --- the end ---

    def logs(self) -> str:
        """The last lines of every agent."""
        files = sorted(self.home.path.glob("*/agent.log"))
        return "\n".join(f"{f.parent.name}: {line}" for f in files for line in f.read_text().splitlines()[-4:])

    def clear(self) -> None:
        if self._viewer is not None:
            self._viewer.terminate()
            self._viewer.communicate(timeout=PATIENCE)
        Lab.down(name=self.name, home=self.home)

    def leftovers(self) -> list[str]:
        found = [f"namespace {name}" for name in namespaces.present(self.name)]
        found += [f"process {p.parent.name}" for p in Path("/proc").glob("[0-9]*/cmdline") if self._mentioned(p)]
        return found + ([f"directory {self.home.path}"] if self.home.path.exists() else [])

    def _mentioned(self, cmdline: Path) -> bool:
        try:
            return f"{self.home.path}/".encode() in cmdline.read_bytes()
        except OSError:  # ended meanwhile
            return False


def _claim() -> str:
    """A name for the lab: `demo`, or one of our own while another demo has that.  Making the directory is the claim."""
    for name in ("demo", f"demo-{os.getpid()}"):
        try:
            (DEFAULT_ROOT / name).mkdir(parents=True)
        except FileExistsError:
            continue
        return name
    raise Failed(f"{DEFAULT_ROOT / name} is there already")
