"""Files of manifests: an operator's own copied into a lab, and the NodeConfigs among them."""

import shutil
from pathlib import Path

from flock.core.decoding import Unreadable
from flock.core.errors import FieldError
from flock.core.manifest import parse_manifest
from flock.core.nodeconfig import NodeConfig, NodeConfigError, parse_node_config
from flock.edge.manifestfile import is_manifest


def files(directory: Path) -> list[Path]:
    """The files the agent would read, in its order."""
    if not directory.is_dir():
        raise FieldError("--nodeconfigs", f"{directory} is not a directory")
    return sorted(path for path in directory.iterdir() if is_manifest(path.name))


def copy(source: Path, target: Path) -> None:
    for path in files(source):
        shutil.copyfile(path, target / path.name)


def problems(path: Path) -> tuple[str, ...]:
    """Why an agent would not take all of the file.  Raises FieldError if it would take nothing of it."""
    try:
        manifest = parse_manifest(path.read_bytes(), node=None)
    except (OSError, Unreadable) as error:
        raise FieldError(str(path), getattr(error, "strerror", None) or str(error)) from None
    if not manifest.objects and not manifest.refused:
        raise FieldError(str(path), "no object in it of a kind that flock reads")
    return tuple(f"{key}: {problem}" for key, problem in manifest.refused.items())


def node_configs(directory: Path) -> tuple[NodeConfig, ...]:
    """The NodeConfigs of a directory, checked; of two with one name the later file wins, as for the agent.

    Raises FieldError naming the file and the field: unlike the agent, which keeps the last good one, a lab is
    where a mistake should be seen.
    """
    return tuple({config.name: config for path in files(directory) for config in _node_configs(path)}.values())


def _node_configs(path: Path) -> list[NodeConfig]:
    """Each read as the agent of its node reads it."""
    try:
        manifest = parse_manifest(path.read_bytes(), node=None)
        for key, problem in manifest.refused.items():
            if key.kind == "NodeConfig":
                raise FieldError(str(path), problem)
        found = [value for key, value in manifest.objects.items() if key.kind == "NodeConfig"]
        return [parse_node_config(value) for value in found]  # type: ignore[arg-type]
    except (Unreadable, NodeConfigError) as error:
        raise FieldError(str(path), error.msg) from None
