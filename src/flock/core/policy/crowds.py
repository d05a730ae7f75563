"""Many policies that select one pod, asked together.

A class asks its policies one after the other, and each costs a first packet a jump and two looks into sets.  Where they
are many, their rules are put together: of all that are for the same ports, the peers are one *union* of groups and one
list of blocks.  So a first packet costs as many looks as there are different ports, and not as there are policies.  A
union is a group with a set of its own, kept by the rosters of the groups it is made of.

What a union has, its groups have as well, so there are unions only where they are needed, and within bounds.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from flock.core.policy.blocks import joined
from flock.core.policy.compiled import (
    DIRECTIONS,
    CompiledPolicy,
    Direction,
    GroupId,
    NamedPort,
    Peers,
    PolicyKey,
    PortRange,
    Rule,
    Span,
    Subject,
)
from flock.core.policy.rosters import Rosters

MANY = 16  # policies that are asked one after the other
FEW = 4  # ports by name in a rule: of more, lines would be multiplied with those of peers
UNITED = 8  # groups that make a union: fewer are looked into one by one, as a set costs more to make than a look
NAMESPACE_CROWDS = 4  # combinations of many policies in a namespace that have unions; pods of the others are slower
CROWD_MEMBERS = 16384  # addresses in the unions of one, when they are made
Crowd = tuple[Direction, tuple[PolicyKey, ...]]


class Together(NamedTuple):
    """`rules` stand for those of all policies but `apart`."""

    rules: tuple[Rule, ...]
    apart: tuple[PolicyKey, ...]

    @property
    def unions(self) -> list[GroupId]:
        return [group for rule in self.rules for group in rule.peers.groups if group.of]


class _Alike:
    """Rules for the same ports."""

    def __init__(self) -> None:
        self.anywhere = False
        self.groups: set[GroupId] = set()
        self.blocks: list[Span] = []

    def peers(self) -> Peers:
        if self.anywhere:
            return Peers(anywhere=True)
        groups = tuple(sorted(self.groups))
        united = (GroupId("", "", "", of=groups),) if len(groups) >= UNITED else groups
        return Peers(groups=united, blocks=joined(self.blocks))


def together(
    keys: Collection[PolicyKey], policies: Mapping[PolicyKey, CompiledPolicy], direction: Direction
) -> Together:
    """A port by name is resolved by group in egress, so policies with one stay apart."""
    names = FEW if direction == "ingress" else 0
    alike: dict[tuple[bool, tuple[PortRange, ...], tuple[NamedPort, ...]], _Alike] = {}
    apart = []
    for key in keys:
        rules = policies[key].rules(direction) or ()
        if any(len(rule.named) > names for rule in rules):
            apart.append(key)
            continue
        for rule in rules:
            found = alike.setdefault((rule.any_port, rule.ports, rule.named), _Alike())
            found.anywhere |= rule.peers.anywhere
            found.groups.update(rule.peers.groups)
            found.blocks += rule.peers.blocks
    return Together(tuple(Rule(found.peers(), *ports) for ports, found in sorted(alike.items())), tuple(apart))


class Crowds:
    """Which unions are held, as pods come to be selected by many policies and cease to be."""

    def __init__(self, rosters: Rosters) -> None:
        self._rosters = rosters
        self._pods: Counter[Crowd] = Counter()
        self._held: dict[Crowd, list[GroupId]] = {}
        self._touched: set[Crowd] = set()

    def count(self, subject: Subject, step: int) -> None:
        for direction in DIRECTIONS:
            policies = subject.verdicts.policies(direction)
            if policies is not None and len(policies) > MANY:
                crowd = (direction, policies)
                self._pods[crowd] += step
                if self._pods[crowd] in (0, step):  # nobody is in it any more, or was before
                    self._touched.add(crowd)

    def commit(self, policies: Mapping[PolicyKey, CompiledPolicy], changed: Collection[PolicyKey]) -> None:
        """After the policies are in force, whose groups are held until the rosters settle."""
        changed = {*changed}
        self._touched.update(crowd for crowd in self._pods if not changed.isdisjoint(crowd[1]))
        for crowd in sorted(self._touched):
            old = self._held.pop(crowd, [])
            if not self._pods[crowd]:
                del self._pods[crowd]
            elif unions := self._wanted(crowd, policies, had=bool(old)):
                self._held[crowd] = unions
                for union in unions:
                    self._rosters.unite(union)
            for union in old:
                self._rosters.release((union, None))
        self._touched.clear()

    def _wanted(self, crowd: Crowd, policies: Mapping[PolicyKey, CompiledPolicy], *, had: bool) -> list[GroupId]:
        """None where there is no room for them; whoever has some keeps having them."""
        direction, keys = crowd
        unions = together(keys, policies, direction).unions
        rivals = sum(others[0][0] == keys[0][0] for _, others in self._held)
        members = sum(self._rosters.size((group, None)) for union in unions for group in union.of)
        return unions if had or (rivals < NAMESPACE_CROWDS and members <= CROWD_MEMBERS) else []
