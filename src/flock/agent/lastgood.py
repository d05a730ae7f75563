"""The last good version of policies whose latest one is refused, on disk: a restart must not open what they isolate."""

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from flock.core.errors import FlockError
from flock.core.policy.compiled import PolicyKey
from flock.edge.placing import place

log = logging.getLogger("policy")

FILE = "policies.json"


class LastGood:
    """In memory for all policies, on disk only for those that are refused now: nearly always none."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._good: dict[PolicyKey, Mapping[str, Any]] = {}
        self._saved: frozenset[PolicyKey] | None = None  # None: not looked at yet

    def get(self, key: PolicyKey) -> Mapping[str, Any] | None:
        if self._saved is None:
            self._load()
        return self._good.get(key)

    def keep(self, key: PolicyKey, policy: Mapping[str, Any]) -> None:
        self._good[key] = policy

    def drop(self, key: PolicyKey) -> None:
        self._good.pop(key, None)

    def save(self, refused: Collection[PolicyKey]) -> None:
        """Best effort: without it only a restart while a policy is refused is worse off."""
        wanted = frozenset(key for key in refused if key in self._good)
        if wanted == (self._saved or frozenset()):
            return
        try:
            place(self._path, msgspec.json.encode([self._good[key] for key in sorted(wanted)]), mode=0o600)
            self._saved = wanted
        except FlockError as error:
            log.warning("could not keep the last good policies problem=%s", error)

    def _load(self) -> None:
        self._saved = frozenset()
        try:
            policies = msgspec.json.decode(self._path.read_bytes(), type=list[dict[str, Any]])
            for policy in policies:
                metadata = policy["metadata"]
                self._good.setdefault((metadata.get("namespace", "default"), metadata["name"]), policy)
            self._saved = frozenset(self._good)
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError, KeyError, TypeError, UnicodeDecodeError, RecursionError) as error:
            log.warning("could not read the last good policies file=%s problem=%s", self._path, error)
