"""The last good version of policies of both kinds whose latest one is refused, on disk: a restart must not open what
they isolate or deny.

Good versions of all policies are known anyway; what is kept on disk is those of refused ones, nearly always none.  An
object deleted and made anew under the same name is another one (its uid says so), and inherits nothing.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from flock.core.errors import FlockError
from flock.core.kinds import CLUSTER_POLICIES
from flock.core.policy.compiled import PolicyKey
from flock.core.policy.reading import policy_key
from flock.edge.placing import place

log = logging.getLogger("policy")

FILE = "policies.json"
Policy = Mapping[str, Any]


class LastGoodPolicies:
    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._good: dict[PolicyKey, Policy] = {}
        self._recalled: dict[PolicyKey, Policy] | None = None  # from an earlier life; None: not looked at yet
        self._on_disk: list[Policy] = []

    def get(self, key: PolicyKey) -> Policy | None:
        return self._good.get(key) or self._earlier().get(key)

    def keep(self, key: PolicyKey, policy: Policy) -> None:
        self._good[key] = policy if key[0] else {**policy, "kind": CLUSTER_POLICIES.kind}

    def drop(self, key: PolicyKey) -> None:
        self._good.pop(key, None)
        self._earlier().pop(key, None)

    def due(self, refused: Collection[PolicyKey], *, unheard: Callable[[PolicyKey], bool]) -> list[Policy] | None:
        """What has to be on disk, given all that is refused now; None if it is.  What else an earlier life kept is of
        policies that are gone, or good again; but for those of which nobody has told yet whether they are."""
        keys = {*refused, *filter(unheard, self._earlier())}
        good = {key: policy for key in sorted(keys) if (policy := self.get(key)) is not None}
        self._recalled = {key: policy for key, policy in good.items() if key not in self._good}
        return None if [*good.values()] == self._on_disk else [*good.values()]

    def save(self, policies: list[Policy]) -> bool:
        """Best effort: without it a restart closes what the last good versions allowed."""
        try:
            place(self._path, msgspec.json.encode(policies), mode=0o600)
        except FlockError as error:
            log.warning("could not keep the last good policies problem=%s", error)
            return False
        self._on_disk = policies
        return True

    def _earlier(self) -> dict[PolicyKey, Policy]:
        if self._recalled is None:
            self._on_disk = self._load()
            self._recalled = {_key(policy): policy for policy in self._on_disk}
        return self._recalled

    def _load(self) -> list[Policy]:
        try:
            return [*msgspec.json.decode(self._path.read_bytes(), type=list[dict[str, Any]])]
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            log.warning("could not read the last good policies file=%s problem=%s", self._path, error)
            return []


def _key(policy: Policy) -> PolicyKey:
    """An API server does not tell the kind of each object of a list; on disk a ClusterNetworkPolicy has its own."""
    namespace, name = policy_key(policy)
    return "" if policy.get("kind") == CLUSTER_POLICIES.kind else namespace, name


def same_object(one: Policy, other: Policy) -> bool:
    """A policy deleted and made anew has another uid; a manifest has none."""
    uids = {(policy.get("metadata") or {}).get("uid") for policy in (one, other)}
    return len(uids - {None, ""}) < 2
