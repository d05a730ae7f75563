"""By which policies a pod is judged, in each direction, and by which it would be, were audited ones in force."""

from collections.abc import Collection, Iterable

from flock.core.policy.budget import POD_POLICIES
from flock.core.policy.compiled import NO_TIERS, Audit, CompiledPolicy, Direction, PolicyKey, Subject, Tiers, Verdicts
from flock.core.policy.podfacts import Local


def judged_pod(
    local: Local,
    policies: Iterable[CompiledPolicy],
    *,
    doubtful: Collection[PolicyKey],
    replaced: Collection[PolicyKey],
) -> Subject:
    """A pod of this node, by the policies that select it or may."""
    verdicts, audit = judged(policies, known=local.labels is not None, doubtful=doubtful, replaced=replaced)
    return Subject(
        interface=local.pod.interface,
        container_id=local.pod.container_id,
        pod=local.pod.pod,
        addresses=local.pod.addresses,
        link_local=local.pod.link_local,
        verdicts=verdicts,
        audit=audit,
    )


def judged(
    policies: Iterable[CompiledPolicy],
    *,
    known: bool,
    doubtful: Collection[PolicyKey] = (),
    replaced: Collection[PolicyKey] = (),
) -> tuple[Verdicts, Audit | None]:
    """A pod that these select.  `known`: its labels are.  Else these are all that may select it: NetworkPolicies
    isolate it and let nothing through, and `doubtful` names those of the cluster's that may not mean it.  `replaced`:
    in whose place another version is tried."""
    policies = list(policies)
    in_force = _verdicts([policy for policy in policies if not policy.audited], known, doubtful)
    audited = sorted(policy.key for policy in policies if policy.audited)
    if not audited and not replaced:
        return in_force, None
    would = _verdicts([policy for policy in policies if policy.key not in replaced], known, doubtful)
    return in_force, Audit(would, tuple(audited)) if would != in_force else None


def _verdicts(policies: list[CompiledPolicy], known: bool, doubtful: Collection[PolicyKey]) -> Verdicts:
    selecting = [policy for policy in policies if policy.tier is None]
    above = [policy for policy in policies if policy.tier is not None]
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
