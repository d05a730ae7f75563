"""The container runtime's side of CNI: exec the plugin with environment and stdin, read its stdout.

As containerd does it: the plugin runs in the node's network namespace, gets the annotations as the capability
`io.kubernetes.cri.pod-annotations`, and the result of ADD again as `prevResult`.
"""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flock.edge.rundir import SOCKET
from flock.lab.errors import LabError
from flock.lab.nodes import Node

# A restarting agent gets this long; the plugin then fails with "try again".
WAIT_SECONDS = 10
# Beyond the plugin's own wait: something hangs.
TIMEOUT = WAIT_SECONDS + 20


class CniError(LabError):
    """The plugin's own error, `cni_code` is its number; 0 where it printed none."""

    def __init__(self, msg: str, *, details: str = "", cni_code: int = 0) -> None:
        super().__init__(msg, details=details)
        self.cni_code = cni_code


def run(node: Node, verb: str, *, container: str, netns: Path, args: str, more: Mapping[str, Any] | None = None) -> str:
    """What the plugin prints for this sandbox; `more` is added to its configuration."""
    config = {"cniVersion": "1.0.0", "name": "flock", "type": "flock", "wait": WAIT_SECONDS}
    config |= {"socket": str(node.run_dir / SOCKET), **(more or {})}
    environment = {
        "CNI_COMMAND": verb,
        "CNI_CONTAINERID": container,
        "CNI_NETNS": str(netns),
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": args,
        "CNI_PATH": str(Path(node.cni).parent),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    try:
        done = subprocess.run(
            node.host.inside([node.cni]),
            input=json.dumps(config),
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CniError(f"{node.name}: {verb} took more than {TIMEOUT} s") from None
    if done.returncode == 0:
        return done.stdout
    try:
        error = json.loads(done.stdout)
        raise CniError(
            f"{node.name}: {verb}: {error['msg']} (CNI error {error['code']})",
            details=error.get("details", ""),
            cni_code=error["code"],
        )
    except (ValueError, KeyError, TypeError):
        said = (done.stderr + done.stdout).strip()
        raise CniError(f"{node.name}: {verb} failed without a CNI error", details=said) from None
