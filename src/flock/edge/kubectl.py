"""`kubectl` with the rights of whoever asks: how it is called, who is asked by it, and asking one thing at a time.

What lasts is `view/kubectl.py`."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from flock.core.errors import FlockError

PATIENCE = 20.0  # seconds; it starts in half of one, and the API server may be busy
AGENTS = "app.kubernetes.io/name=flock,app.kubernetes.io/component=agent"
AGENT = "agent"  # the container


class KubectlRefused(FlockError):
    """It said no, or nothing in time."""


def called(*, kubeconfig: Path | None, context: str) -> list[str]:
    """How a command begins, with these or with what it finds by itself.  KubectlRefused if there is none."""
    program = shutil.which("kubectl")
    if program is None:
        raise KubectlRefused("kubectl is not installed")
    given = {"kubeconfig": kubeconfig, "context": context}
    return [program, *(f"--{name}={value}" for name, value in given.items() if value)]


class Kubectl:
    def __init__(self, *, kubeconfig: Path | None, context: str) -> None:
        self._command = called(kubeconfig=kubeconfig, context=context)
        self.words = ["kubectl", *self._command[1:]]  # as somebody would type it

    def command(self, *arguments: str) -> list[str]:
        return [*self._command, *arguments]

    def run(self, *arguments: str, stdin: bytes = b"", patience: float = PATIENCE) -> bytes:
        """What it prints.  A session of its own: the terminal's Ctrl-C is for us, and we have to clean up by it."""
        try:
            done = subprocess.run(
                self.command(*arguments),
                input=stdin,
                capture_output=True,
                timeout=patience,
                check=False,
                start_new_session=True,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise KubectlRefused(f"kubectl {arguments[0]}: {getattr(error, 'strerror', None) or 'no answer'}") from None
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            said = [line for line in lines if "exit code" not in line] or ["failed"]
            raise KubectlRefused(f"kubectl {arguments[0]}: {said[-1][:300]}")
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """An object, or the items of a list."""
        found = json.loads(self.run("get", *arguments, "--output=json"))
        return found.get("items", found)

    def agents(self) -> dict[str, dict[str, Any]]:
        """The agents' pods by node."""
        return self.on_nodes(AGENTS)

    def on_nodes(self, selector: str) -> dict[str, dict[str, Any]]:
        """Pods of ours by node; of two on one node the one that stays.  Whoever may make pods may give them our labels:
        only one in the node's own network can be ours."""
        pods = self.get("pods", "--all-namespaces", f"--selector={selector}")
        pods.sort(key=lambda p: ("deletionTimestamp" not in p["metadata"], p["status"].get("phase") == "Running"))
        ours = (pod for pod in pods if pod["spec"].get("hostNetwork"))
        return {pod["spec"]["nodeName"]: pod for pod in ours if pod["spec"].get("nodeName")}


def in_agent(pod: dict[str, Any], *command: str, stdin: bool = False) -> list[str]:
    """Arguments that run a command in an agent's container."""
    metadata = pod["metadata"]
    where = [f"--namespace={metadata['namespace']}", metadata["name"], f"--container={AGENT}"]
    return ["exec", *(["--stdin"] if stdin else []), *where, "--", *command]
