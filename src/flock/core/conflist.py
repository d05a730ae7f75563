"""What the network configuration says that a container runtime reads: its presence is what makes pods ours.

Runtimes that read `cniVersions` choose the highest they know, and from 1.1.0 on they ask every plugin for its STATUS.
One from before that version fails it, and the node is never ready.  So a version is offered if all in the list have
said that they know it.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from flock.core.cni import VERSIONS

NETWORK = EXECUTABLE = "flock"
VERSION = "1.0.0"  # containerd 1.x knows no newer
ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
# Reference plugins that go on with what flock made, and the capability by which the runtime hands over what they need.
CHAINED = {"portmap": "portMappings", "bandwidth": "bandwidth"}
ASSUMED = VERSIONS[: VERSIONS.index(VERSION) + 1]  # of one that cannot be asked here, and may work on the host

Plugins = Mapping[str, Collection[str]]  # the versions each knows


def render_conflist(*, socket: Path, wait: float, plugins_present: Plugins) -> str:
    """Chains those of `plugins_present` that flock knows how to use."""
    flock: dict[str, Any] = {
        "type": EXECUTABLE,
        "capabilities": {ANNOTATIONS: True, "ips": True, "mac": True, **_said_by_us(plugins_present)},
        "socket": str(socket),
        "wait": wait,
        "deferDel": True,
    }
    chained = [entry(name) for name in CHAINED if name in plugins_present]
    versions = offered(plugins_present)
    conflist = {"cniVersion": VERSION, "cniVersions": versions, "name": NETWORK, "plugins": [flock, *chained]}
    return json.dumps(conflist, indent=2) + "\n"


def _said_by_us(plugins: Plugins) -> dict[str, bool]:
    """Without portmap nobody hears of ports that a container wants: the agent does then, and says so."""
    return {} if "portmap" in plugins else {CHAINED["portmap"]: True}


def entry(name: str) -> dict[str, Any]:
    """Of a chained plugin."""
    return {"type": name, "capabilities": {CHAINED[name]: True}}


def offered(plugins: Plugins) -> tuple[str, ...]:
    """What all in the list know."""
    return tuple(v for v in VERSIONS if all(v in plugins[name] for name in (EXECUTABLE, *CHAINED) if name in plugins))
