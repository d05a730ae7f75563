"""Files of manifests: an operator's own copied into a lab, and the NodeConfigs among them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import yaml

from flock.core.errors import FieldError
from flock.core.manifest import ObjectKey, Unreadable, parse_manifest
from flock.core.nodeconfig import NodeConfig, NodeConfigError, parse_node_config

SUFFIXES = (".yaml", ".yml", ".json")


def files(directory: Path) -> list[Path]:
    """The files the agent would read, in its order."""
    if not directory.is_dir():
        raise FieldError("--nodeconfigs", f"{directory} is not a directory")
    return sorted(p for p in directory.iterdir() if p.suffix in SUFFIXES and not p.name.startswith("."))


def copy(source: Path, target: Path) -> None:
    for path in files(source):
        shutil.copyfile(path, target / path.name)


def node_configs(directory: Path) -> tuple[NodeConfig, ...]:
    """The NodeConfigs of a directory, checked; of two with one name the later file wins, as for the agent.

    Raises FieldError naming the file and the field: unlike the agent, which keeps the last good one, a lab is
    where a mistake should be seen.
    """
    found: dict[str, NodeConfig] = {}
    for path in files(directory):
        for name in _named(path):
            found[name] = _node_config(path, name)
    return tuple(found.values())


def _node_config(path: Path, name: str) -> NodeConfig:
    """Read as the agent of that node reads it."""
    key = ObjectKey("NodeConfig", "", name)
    try:
        manifest = parse_manifest(path.read_bytes(), node=name)
        if key in manifest.refused:
            raise FieldError(str(path), manifest.refused[key])
        return parse_node_config(manifest.objects[key])  # type: ignore[arg-type]
    except (Unreadable, NodeConfigError) as error:
        raise FieldError(str(path), error.msg) from None


def _named(path: Path) -> Iterator[str]:
    """Names of the NodeConfigs in a file."""
    try:
        documents = list(yaml.safe_load_all(path.read_bytes()))
    except yaml.YAMLError as error:
        raise FieldError(str(path), f"is not YAML: {error}") from None
    for document in documents:
        listed = document.get("items") if isinstance(document, dict) else None
        for item in listed if isinstance(listed, list) else [document]:
            if isinstance(item, dict) and item.get("kind") == "NodeConfig":
                yield str((item.get("metadata") or {}).get("name"))
