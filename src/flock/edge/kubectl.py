"""`kubectl` with the rights of whoever asks: how it is called, who is asked by it, and asking one thing at a time.

What lasts is `view/kubectl.py`."""

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from copy import copy
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
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def command(self, *arguments: str) -> list[str]:
        return [*self._command, *arguments]

    def run(self, *arguments: str, stdin: bytes = b"", patience: float = PATIENCE) -> bytes:
        """What it prints.  A session of its own: the terminal's Ctrl-C is for us, and we have to clean up by it."""
        try:
            returned, said, complaint = self._run(self.command(*arguments), stdin, patience)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise KubectlRefused(f"kubectl {arguments[0]}: {getattr(error, 'strerror', None) or 'no answer'}") from None
        if returned:
            lines = complaint.decode(errors="replace").strip().splitlines()
            told = [line for line in lines if "exit code" not in line] or ["failed"]
            raise KubectlRefused(f"kubectl {arguments[0]}: {told[-1][:300]}")
        return said

    def _run(self, command: list[str], stdin: bytes, patience: float) -> tuple[int, bytes, bytes]:
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True) as process:
            self._running.add(process)
            try:
                if self._stopped:  # since, or by somebody who did not see this one
                    _kill(process)
                said, complaint = process.communicate(stdin, timeout=patience)
                return process.returncode, said, complaint
            finally:
                _kill(process)
                self._running.discard(process)

    def stop(self) -> None:
        """Nobody waits for an answer any longer, in whichever thread, and nothing more is asked: what still has to be
        is asked of `anew`."""
        self._stopped = True
        for process in tuple(self._running):
            _kill(process)

    def anew(self) -> "Kubectl":
        found = copy(self)
        found._running, found._stopped = set(), False
        return found

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


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With what it started to log in, which has its pipes: all of its session."""
    if process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def in_agent(pod: dict[str, Any], *command: str, stdin: bool = False) -> list[str]:
    """Arguments that run a command in an agent's container."""
    metadata = pod["metadata"]
    where = [f"--namespace={metadata['namespace']}", metadata["name"], f"--container={AGENT}"]
    return ["exec", *(["--stdin"] if stdin else []), *where, "--", *command]
