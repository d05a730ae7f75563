"""The network configuration a container runtime reads: its presence is what makes pods ours.

The agent writes it once it can serve, and leaves it there when it ends: a runtime without one could not even delete
pods, and the executable waits for an agent that is away.  `flock-installer --uninstall` takes it away.
"""

import json
import os
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from flock.core.errors import FlockError
from flock.edge.placing import place

NAME = "01-flock.conflist"  # runtimes take the first by order of letters
VERSION = "1.0.0"  # containerd 1.x knows no newer; who reads `cniVersions` chooses the highest it knows
VERSIONS = ("0.4.0", "1.0.0", "1.1.0")
ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
# Reference plugins that go on with what flock made, and the capability by which the runtime hands over what they need.
CHAINED = {"portmap": "portMappings", "bandwidth": "bandwidth"}
PATIENCE = 5.0  # seconds for a program to tell its versions, a matter of milliseconds


class _Versions(msgspec.Struct):
    supportedVersions: tuple[str, ...]  # noqa: N815 - CNI's spelling


def render_conflist(*, socket: Path, wait: float, plugins_present: Collection[str]) -> str:
    flock: dict[str, Any] = {
        "type": "flock",
        "capabilities": {ANNOTATIONS: True},
        "socket": str(socket),
        "wait": wait,
        "deferDel": True,
    }
    chained = [
        {"type": name, "capabilities": {capability: True}}
        for name, capability in CHAINED.items()
        if name in plugins_present
    ]
    conflist = {"cniVersion": VERSION, "cniVersions": VERSIONS, "name": "flock", "plugins": [flock, *chained]}
    return json.dumps(conflist, indent=2) + "\n"


def plugins_present(bin_dir: Path) -> frozenset[str]:
    """The plugins of CHAINED that are there, without those that are too old for our version: one such would fail
    every pod.  One that cannot be asked here may still work on the host."""
    return frozenset(name for name in CHAINED if (bin_dir / name).exists() and not _too_old(bin_dir / name))


def _too_old(executable: Path) -> bool:
    try:
        return VERSION not in supported_versions(executable)
    except FlockError:
        return False


def supported_versions(executable: Path) -> tuple[str, ...]:
    """What a CNI executable answers to VERSION.  FlockError if it does not."""
    command = {"CNI_COMMAND": "VERSION", "PATH": os.defpath}
    question = json.dumps({"cniVersion": VERSION}).encode()
    try:
        run = subprocess.run([executable], env=command, input=question, capture_output=True, timeout=PATIENCE)
        return msgspec.json.decode(run.stdout, type=_Versions).supportedVersions
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FlockError(f"{executable} does not tell its CNI versions: {reason}") from None


def write_conflist(conf_dir: Path, text: str) -> bool:
    """True if it had to be written.  FlockError if it cannot be."""
    return place(conf_dir / NAME, text.encode())


def remove_conflist(conf_dir: Path) -> bool:
    """True if there was one.  A file of that name whose first plugin is not flock is somebody else's, and stays."""
    path = conf_dir / NAME
    try:
        conflist = json.loads(path.read_bytes())
        ours = bool(conflist["plugins"][0]["type"] == "flock")
    except (OSError, ValueError, LookupError, TypeError):
        return False
    if ours:
        path.unlink()
    return ours
