"""The file with the network configuration (`core/conflist.py`), and the plugins it may name.

The agent writes it once it can serve, and leaves it there when it ends: a runtime without one could not even delete
pods, and the executable waits for an agent that is away.  `flock-installer --uninstall` takes it away.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from flock.core.cni import LATEST
from flock.core.conflist import ASSUMED, NETWORK, VERSION, entry
from flock.core.errors import FlockError
from flock.edge.placing import place

NAME = "01-flock.conflist"  # runtimes take the first by order of letters
PATIENCE = 5.0  # seconds for a program to answer, a matter of milliseconds


class _Versions(msgspec.Struct):
    supportedVersions: tuple[str, ...]  # noqa: N815 - CNI's spelling


class _Error(msgspec.Struct):
    code: int = 0
    msg: str = ""


def plugins_present(found: Mapping[str, Path]) -> dict[str, tuple[str, ...]]:
    """What each of those found says it knows, without those that are too old for our version: one such would fail
    every pod."""
    said = {name: _said(path) for name, path in found.items()}
    return {name: versions for name, versions in said.items() if VERSION in versions}


def _said(executable: Path) -> tuple[str, ...]:
    try:
        return supported_versions(executable)
    except FlockError:
        return ASSUMED


def supported_versions(executable: Path) -> tuple[str, ...]:
    """What a CNI executable answers to VERSION.  FlockError if it does not."""
    try:
        answer = _ask(executable, "VERSION", {"cniVersion": VERSION})
        return msgspec.json.decode(answer.stdout, type=_Versions).supportedVersions
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FlockError(f"{executable} does not tell its CNI versions: {reason}") from None


def status_problem(plugin: Path) -> str:
    """Why a chained plugin that knows STATUS fails it, as a runtime is going to hear it; empty if it does not."""
    try:
        asked = {"cniVersion": LATEST, "name": NETWORK, **entry(plugin.name)}
        answer = _ask(plugin, "STATUS", asked, plugin.parent)
        said = msgspec.json.decode(answer.stdout, type=_Error) if answer.returncode else None
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        return f"it does not say why: {error}"
    return f"{said.msg[:200]} (code {said.code})" if said else ""


def _ask(
    executable: Path, verb: str, config: Mapping[str, Any], path: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    env = {"CNI_COMMAND": verb, "PATH": os.defpath, **({"CNI_PATH": str(path)} if path else {})}
    question = json.dumps(config).encode()
    return subprocess.run([executable], env=env, input=question, capture_output=True, timeout=PATIENCE)


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
