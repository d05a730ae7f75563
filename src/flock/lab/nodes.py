"""A node of the lab: the agent and BIRD in one namespace, started the way a machine's init starts them.

BIRD is given whatever bird.conf the agent wrote; a plain node has no agent and gets one from the lab.
"""

import os
import shutil
import sys
from pathlib import Path

import flock
from flock.edge.rpc_client import AgentError, ask
from flock.lab import router_bird
from flock.lab.errors import LabError
from flock.lab.hosts import Host, wait_until

AGENT = "agent"
HTTP = ("127.0.0.1", 9465)  # of every agent, each in a namespace of its own
AGENT_PATIENCE = 20.0  # seconds until the agent serves ADD; it needs one, a busy machine needs more


class Node:
    def __init__(self, host: Host, *, manifests: Path, cni: str, plain: bool) -> None:
        self.name = host.name
        self.host = host
        self.manifests = manifests
        self.cni = cni
        self.plain = plain
        self.run_dir = host.home / "run"
        self.state_dir = host.home / "state"
        self.bird_dir = host.home / "bird"

    def start(self) -> None:
        """Agent first, since BIRD's configuration is its work; returns when both answer."""
        for directory in (self.run_dir, self.state_dir, self.bird_dir):
            directory.mkdir(parents=True, exist_ok=True)
        if not self.plain:
            self.start_agent()
        self.start_bird()

    def start_agent(self) -> None:
        directories = ["--state-dir", self.state_dir, "--run-dir", self.run_dir, "--bird-dir", self.bird_dir]
        options = ["--node", self.name, "--manifests", self.manifests, *directories, "--http", ":".join(map(str, HTTP))]
        self.host.spawn(AGENT, [agent_program(), *map(str, options)])
        self.host.wait(AGENT, (self.bird_dir / "bird.conf").exists, what="bird.conf", timeout=AGENT_PATIENCE)

    def start_bird(self) -> None:
        router_bird.run(self.host, config=self.bird_dir / "bird.conf", socket=self.run_dir / "bird.ctl")

    def wait_ready(self) -> None:
        if not self.plain and not wait_until(lambda: not self.trouble(), timeout=AGENT_PATIENCE, pause=0.05):
            raise LabError(f"{self.name}: {self.trouble()}", details=self.host.log(AGENT))

    def trouble(self) -> str:
        """Why pods cannot be attached here, in the agent's words; empty when they can.

        The CNI verb STATUS would not do: it bears with an agent that restarts."""
        if self.plain:
            return "plain: no agent"
        if not self.host.running(AGENT):
            return "the agent is not running"
        try:
            return "; ".join(ask(self.run_dir, "status")["not_ready"])
        except AgentError as error:
            return str(error)


def agent_program() -> str:
    """The agent that was installed with this command."""
    beside = Path(sys.executable).with_name("flock-agent")
    found = str(beside) if beside.exists() else shutil.which("flock-agent")
    if found is None:
        raise LabError("flock-agent is not installed", details=f"looked beside {sys.executable} and on PATH")
    return found


def cni_program() -> str:
    """The CNI executable: the one just built, else the installed one."""
    built = Path(flock.__file__).parents[2] / "build" / "flock"
    candidates = [os.environ.get("FLOCK_CNI", ""), str(built), "/opt/cni/bin/flock"]
    found = next((c for c in candidates if c and os.access(c, os.X_OK)), None)
    if found is None:
        raise LabError("the CNI executable is missing", details="`make build` makes build/flock; or set FLOCK_CNI")
    return found
