"""Pods that carry an anycast address, and what the node's kernel says about it, moment by moment."""

import contextlib
import copy
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from looking import ANNOUNCED_PROTOCOL, OWN, POD_PROTOCOL

from harness import NODE_CONFIG, Node, eventually

ANYCAST = "2001:db8:53::53"


def granting(**spec: Any) -> dict[str, Any]:
    config = copy.deepcopy(NODE_CONFIG)
    config["spec"] |= {"anycast": {"allowed": [{"prefixes": ["2001:db8:53::/64"]}]}, **spec}
    return config


def ready_pod(name: str, *, anycast: str = ANYCAST, ready: bool = True) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {OWN + "anycast": anycast}},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def anycast_pod(node: Node, name: str = "a") -> Any:
    """An attached and ready pod whose anycast address is announced."""
    node.write(f"pod-{name}", ready_pod(name))
    result = node.pod(name)
    eventually(lambda: announced(node), what="the address is announced")
    return result


def protocols(node: Node) -> list[str]:
    return [str(route["protocol"]) for route in node.ip_json("-6", "route", "show", ANYCAST)]


def announced(node: Node) -> bool:
    return protocols(node) == [ANNOUNCED_PROTOCOL]


def lingers(node: Node) -> bool:
    """Delivered here, and announced no more."""
    return protocols(node) == [POD_PROTOCOL]


class Changes:
    """What the kernel reports about routes while the block runs."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.lines: list[str] = []

    def stop(self) -> None:
        self._process.terminate()
        try:
            self.lines = self._process.communicate(timeout=20)[0].splitlines()
        except subprocess.TimeoutExpired as late:  # seen once: say what it was about
            about = Path(f"/proc/{self._process.pid}")
            found = {name: (about / name).read_text() for name in ("status", "stack", "wchan") if about.exists()}
            raise AssertionError(f"`ip monitor` did not end: {found}") from late

    def about(self, destination: str) -> list[str]:
        return [line for line in self.lines if destination in line.split()]


@contextlib.contextmanager
def route_changes(node: Node) -> Iterator[Changes]:
    """Stopped at the end of the block, and readable after it."""
    command = ["nsenter", f"--net=/run/netns/{node.netns}", "ip", "monitor", "route"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    changes = Changes(process)
    try:

        def heard() -> bool:
            node.ip("route", "add", "203.0.113.1", "dev", "lo")
            node.ip("route", "del", "203.0.113.1", "dev", "lo")
            return bool(select.select([process.stdout], [], [], 0.05)[0])

        eventually(heard, what="the monitor listens")
        yield changes
    finally:
        changes.stop()
