"""On a lab: from what is done to its text on the page."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flock.lab.fabric import Lab
from flock.lab.home import Home
from flock.lab.nodes import AGENT

KINDS = ("session cut", "agent killed", "pod unready", "policy applied", "drop")
PATIENCE = 20_000  # ms
DENY = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny-all, namespace: default}
spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress]}
"""
SEND = "import socket, sys; socket.socket(10, socket.SOCK_DGRAM).sendto(b'x', (sys.argv[1], int(sys.argv[2])))"
POLICIES = "table[aria-label='Policies in force']"
# Looked for at every frame; the time is the frame's.
SEEN = """([where, text]) => document.querySelector(where)?.textContent.includes(text) ? Date.now() / 1000 : 0"""


def sightings(browser: Any, *, rounds: int) -> dict[str, list[float]]:
    """Seconds, by kind of event."""
    name = f"seen{os.getpid()}"
    took: dict[str, list[float]] = {kind: [] for kind in KINDS}
    try:
        lab = Lab.up(name=name, nodes=2)
        lab.wait()
        lab.pods.add("db", node="n1", labels={"app": "db"}, ready=True)
        lab.pods.add("guest", node="n2", ready=True)
        with _viewed(name) as address:
            page = browser.new_page()
            page.goto(address)
            watcher = _Watcher(page, address)
            watcher.until("fabric", "header", "all well")
            for _ in range(rounds):
                _round(lab, watcher, took)
    finally:
        Lab.down(name=name, home=Home.named(name))
    return took


class _Watcher:
    def __init__(self, page: Any, address: str) -> None:
        self._page, self._address = page, address

    def until(self, view: str, where: str, text: str, do: Callable[[], object] = lambda: None) -> float:
        """How long after `do` began the text was there."""
        self._page.goto(f"{self._address}#{view}")
        self._page.wait_for_timeout(300)
        began = time.time()
        do()
        seen = self._page.wait_for_function(SEEN, arg=[where, text], polling="raf", timeout=PATIENCE)
        return float(seen.json_value()) - began


def _round(lab: Lab, watch: _Watcher, took: dict[str, list[float]]) -> None:
    took["session cut"].append(watch.until("fabric", "header", "1 session down", lambda: lab.cut("n1-r1")))
    lab.mend("n1-r1")
    watch.until("fabric", "header", "all well")
    node = lab.node("n2")
    kill = lambda: node.host.stop(AGENT, by=signal.SIGKILL)  # noqa: E731
    took["agent killed"].append(watch.until("fabric", "header", "guessing about n2", kill))
    node.start_agent()
    watch.until("fabric", "header", "all well")
    unready = watch.until("pods", "main", "not ready", lambda: lab.pods.set_ready("default/db", False))
    took["pod unready"].append(unready)
    lab.pods.set_ready("default/db", True)
    policy: Path = lab.home.manifests / "deny.yaml"
    took["policy applied"].append(watch.until("policy", POLICIES, "deny-all", lambda: policy.write_text(DENY)))
    port = 20_000 + len(took["drop"])  # another one each time, so that its text is this packet's
    took["drop"].append(watch.until("policy", ".drops", f"UDP/{port}", lambda: _send(lab, port)))
    policy.unlink()
    watch.until("policy", "main", "no policy is about a pod here")


def _send(lab: Lab, port: int) -> None:
    """A packet that is not let in."""
    address = next(a for a in lab.pods.get("default/db").addresses if ":" in a)
    lab.host("default/guest").run([sys.executable, "-c", SEND, address, str(port)])


@contextmanager
def _viewed(name: str) -> Iterator[str]:
    command = [str(Path(sys.executable).parent / "flockctl"), "view", "--lab", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as view:
        assert view.stdout is not None
        try:
            yield view.stdout.readline().strip()
        finally:
            view.terminate()
