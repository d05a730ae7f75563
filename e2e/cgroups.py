"""The nodes' cgroups, in whichever version the machine has: the one thing that does not go away with a namespace."""

import os
from functools import partial
from pathlib import Path

from places import eventually

ROOT = Path("/sys/fs/cgroup")


def make(name: str) -> None:
    """A top-level cgroup in every hierarchy; a kubelet wants its root to exist."""
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir()


def remove(name: str) -> None:
    """The cgroups of a name, or of a pattern of names, and all below; their processes are killed, if not quite gone."""
    for top in [path for hierarchy in _hierarchies() for path in hierarchy.glob(name)]:
        for directory, _, _ in os.walk(top, topdown=False):
            eventually(partial(_removed, Path(directory)), what=f"{directory} to be empty")


def _hierarchies() -> list[Path]:
    """The roots of all hierarchies: one for version 2 alone, else one per controller."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return [path.parent for path in ROOT.glob("*/cgroup.procs")]


def _removed(cgroup: Path) -> bool:
    try:
        cgroup.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
