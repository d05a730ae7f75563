"""Whose connections a change may cut: pods a strict policy isolates, where it may now deny what it allowed before.

By default a new deny leaves established connections alone.  A strict policy's does not: the pods it isolates get new
numbers in the direction it isolates them in, so that every connection of theirs in that direction is judged again, and
those still allowed go on.  To name a pod too many here costs a number and a second look at its connections.
"""

from collections.abc import Collection, Mapping

from flock.core.policy.compiled import (
    DIRECTIONS,
    Change,
    CompiledPolicy,
    Direction,
    GroupId,
    NamedPort,
    PolicyKey,
    Subject,
    named_audiences,
)

Cut = tuple[str, Direction]  # interface


def to_cut(
    change: Change,
    *,
    subjects: Mapping[str, Subject],
    policies: Mapping[PolicyKey, CompiledPolicy],
    all_strict: bool,
) -> set[Cut]:
    """`subjects` and `policies` are those from before the change; a pod that is new has nothing to cut.

    A policy that goes away cuts nothing, unless all are strict: what it allowed may then be denied by the others.
    """
    after = {subject.interface: subject for subject in change.subjects if subject.interface in subjects}
    if not (after or change.policies or change.dropped or change.dropped_named or change.added or change.added_named):
        return set()
    known = {**policies, **{policy.key: policy for policy in change.policies}}
    strict = {key for key, policy in known.items() if all_strict or policy.strict}
    if not strict:
        return set()
    cut: set[Cut] = set()
    for direction in DIRECTIONS:
        changed = {policy.key for policy in change.policies} & strict
        changed |= {key for key in strict if _loses(known[key], direction, change)}
        for interface, old in subjects.items():
            before, now = (s.verdicts.named(direction) for s in (old, after.get(interface, old)))
            newly = strict.difference(before)
            if now and (not (changed | newly).isdisjoint(now) or (all_strict and now != before)):
                cut.add((interface, direction))
    return {(interface, direction) for interface, direction in cut if interface not in change.removed_subjects}


def _loses(policy: CompiledPolicy, direction: Direction, change: Change) -> bool:
    """Does a rule of the policy allow less because members left?  Or joined, where rules deny."""
    joined, joined_named = (change.added, change.added_named) if policy.tier else ((), ())
    groups: Collection[GroupId] = {m.group for m in (*change.dropped, *joined)}
    audiences: Collection[tuple[GroupId | None, NamedPort]] = {
        (m.group, m.port) for m in (*change.dropped_named, *joined_named)
    }
    if not groups and not audiences:
        return False
    return any(
        any(group in groups for group in rule.peers.groups)
        or any(audience in audiences for audience in named_audiences(rule, direction))
        for rule in getattr(policy, direction) or ()
    )
