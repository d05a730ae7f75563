"""A file of policies that somebody wants to try: as audited ones, with names that no object can have.  Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from flock.core.annotations import AUDIT
from flock.core.errors import FieldError
from flock.core.kinds import CLUSTER_POLICIES, POLICIES
from flock.core.manifest import parse_manifest
from flock.core.policy.cluster import parse_cluster_policy
from flock.core.policy.compiled import TRIED, PolicyKey
from flock.core.policy.parse import parse_policy

KINDS = (POLICIES, CLUSTER_POLICIES)


class Trial(msgspec.Struct, frozen=True):
    policies: Mapping[PolicyKey, Mapping[str, Any]]
    warnings: tuple[str, ...]  # what of them is not as it says


def read_trial(data: bytes) -> Trial:
    """FieldError or Unreadable for the first thing that is wrong: what is tried is tried whole."""
    manifest = parse_manifest(data, node=None, kinds=KINDS)
    for wrong, problem in manifest.refused.items():
        raise FieldError(str(wrong), problem)
    found: dict[PolicyKey, Mapping[str, Any]] = {}
    warnings = [*manifest.warnings]
    for key, policy in manifest.objects.items():
        assert isinstance(policy, Mapping)
        if key.namespace:
            parse_policy(policy)
        else:
            warnings += (f"{key}: {limit}" for limit in parse_cluster_policy(policy).limits)
        found[key.namespace, f"{key.name}{TRIED}"] = _tried(policy)
    if not found:
        places = " and no ".join(f"{kind.kind} ({kind.api_version})" for kind in KINDS)
        raise FieldError("kind", f"there is no {places} in it")
    return Trial(found, tuple(warnings))


def _tried(policy: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = policy["metadata"]
    annotations = {**(metadata.get("annotations") or {}), AUDIT: "true"}
    return {**policy, "metadata": {**metadata, "name": f"{metadata['name']}{TRIED}", "annotations": annotations}}
