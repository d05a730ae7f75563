"""By which policies a pod is judged, in each direction."""

from collections.abc import Collection, Iterable

from flock.core.policy.budget import POD_POLICIES
from flock.core.policy.compiled import NO_TIERS, CompiledPolicy, Direction, PolicyKey, Tiers, Verdicts


def verdicts(
    network_policies: Iterable[CompiledPolicy],
    cluster_policies: Iterable[CompiledPolicy],
    *,
    known: bool,
    doubtful: Collection[PolicyKey] = (),
) -> Verdicts:
    """Of a pod that these select, as far as they are in force.  `known`: its labels are.  Else these are all that may
    select it: NetworkPolicies isolate it and let nothing through, and `doubtful` names those of the cluster's that may
    not mean it."""
    selecting = [policy for policy in network_policies if not policy.audited]
    above = [policy for policy in cluster_policies if not policy.audited]
    return Verdicts(
        _isolating(selecting, "ingress", known),
        _isolating(selecting, "egress", known),
        _tiers(above, "ingress", doubtful),
        _tiers(above, "egress", doubtful),
    )


def _isolating(policies: list[CompiledPolicy], direction: Direction, known: bool) -> tuple[PolicyKey, ...] | None:
    found = sorted(policy.key for policy in policies if policy.rules(direction) is not None)[:POD_POLICIES]
    if not found:
        return None
    return tuple(found) if known else ()


def _tiers(policies: list[CompiledPolicy], direction: Direction, doubtful: Collection[PolicyKey]) -> Tiers:
    saying = sorted((policy for policy in policies if policy.rules(direction) is not None), key=lambda p: p.key)
    if not saying:
        return NO_TIERS
    admin, baseline = (tuple(p.key for p in saying if p.tier == tier) for tier in ("Admin", "Baseline"))
    return Tiers(admin, baseline, tuple(p.key for p in saying if p.key in doubtful))
