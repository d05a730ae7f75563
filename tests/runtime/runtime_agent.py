"""The flock agent on a test's node, fed by a manifest directory, and the conflist that leads a runtime to it."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from signal import SIGKILL, Signals
from typing import Any

from runtime_node import Node

from harness import recorded

CIDR6, CIDR4 = "2001:db8:1::/64", "192.0.2.0/24"
ANYCAST = "2001:db8:53::53"

EXECUTABLE = Path(__file__).parents[2] / "build" / "flock"
COMMANDS = Path(sys.executable).parent  # of the environment the tests run in

_NODE_CONFIG = {
    "apiVersion": "flock.fritzlab.net/v1alpha1",
    "kind": "NodeConfig",
    "metadata": {"name": "node1"},
    "spec": {
        "cidr6": [CIDR6],
        "cidr4": [CIDR4],
        "anycast": {"allowed": [{"prefixes": [f"{ANYCAST}/128"]}]},
    },
}


class Agent:
    """Running and ready when constructed."""

    def __init__(self, node: Node, *flags: str | Path) -> None:
        self.node = node
        self._flags = flags
        self._manifests = node.directory / "manifests"
        self._state = node.directory / "flock-state"
        self._run = node.directory / "flock-run"
        for directory in (self._manifests, self._state, self._run):
            directory.mkdir()
        (self._manifests / "node.json").write_text(json.dumps(_NODE_CONFIG))
        self.start()

    def start(self) -> None:
        self._process = self.node.start(
            "agent",
            *(COMMANDS / "flock-agent", "--node", "node1", "--manifests", self._manifests),
            *("--state-dir", self._state, "--run-dir", self._run, "--bird-dir", self.node.directory / "bird"),
            *("--http", "127.0.0.1:9465", *self._flags),
        )
        self.node.wait_for("the agent to be ready", self._ready, process=self._process)

    def _ready(self) -> bool:
        return self.node.attempt(COMMANDS / "flockctl", "--run-dir", self._run, "status").returncode == 0

    def kill(self, by: Signals = SIGKILL) -> None:
        self._process.end(by)

    def conflist(self, *chained: Mapping[str, Any]) -> dict[str, Any]:
        """flock's own plugin object, then what is chained after it."""
        own = {
            "type": EXECUTABLE.name,
            "socket": str(self._run / "flock.sock"),
            "wait": 20,
            "capabilities": {"io.kubernetes.cri.pod-annotations": True},
        }
        return {"cniVersion": "1.0.0", "name": "flock", "plugins": [own, *chained]}

    def allocations(self) -> dict[str, list[str]]:
        """What is on disk: the primary addresses, IPv6 first, by pod name."""
        stored = recorded(self._state).values()
        return {a["pod_name"]: [a[key] for key in ("ip6", "ip4") if a.get(key)] for a in stored}
