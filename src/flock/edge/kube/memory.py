"""The last known state of the cluster, on disk: a node that boots while the API server is away still isolates.

Written some seconds after a change, never in the way of anything; read only if the API server does not answer at start.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from flock.core.errors import FlockError
from flock.edge.kube.reflector import Key
from flock.edge.placing import place

log = logging.getLogger("memory")

FILE = "cluster.json"


class _Remembered(msgspec.Struct, frozen=True):
    kind: str
    namespace: str
    name: str
    object: msgspec.Raw


class Memory:
    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE

    def save(self, kinds: Mapping[str, Mapping[Key, Any]]) -> None:
        """Best effort: without it only a boot without the API server is worse off."""
        content = [
            {"kind": kind, "namespace": key[0], "name": key[1], "object": value}
            for kind, objects in kinds.items()
            for key, value in objects.items()
        ]
        try:
            place(self._path, msgspec.json.encode(content), mode=0o600)
        except FlockError as error:
            log.warning("could not keep the last known state problem=%s", error)

    def load(self, decoders: Mapping[str, Callable[[bytes], Any]]) -> dict[str, dict[Key, Any]]:
        """By kind.  What cannot be read is as good as not there."""
        found: dict[str, dict[Key, Any]] = {kind: {} for kind in decoders}
        try:
            entries = msgspec.json.decode(self._path.read_bytes(), type=list[_Remembered])
            for entry in entries:
                if entry.kind in decoders:
                    found[entry.kind][entry.namespace, entry.name] = decoders[entry.kind](bytes(entry.object))
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            log.warning("could not read the last known state file=%s problem=%s", self._path, error)
        return found
