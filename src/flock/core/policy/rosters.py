"""Who is behind each group and each named port, and what of that changed since the last commit.

An audience is a group, or a named port of a group's pods, or a named port of this node's own pods.  Its roster counts:
two pods may share an anycast address, and one of them leaving takes nothing away.  A roster lives while someone holds
its audience; one let go and held again between two commits has not changed at all.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from flock.core.policy.compiled import (
    DIRECTIONS,
    Address,
    CompiledPolicy,
    Endpoint,
    GroupId,
    Membership,
    NamedMembership,
    NamedPort,
    audience_order,
    named_audiences,
)

Audience = tuple[GroupId | None, NamedPort | None]  # port None: the group's addresses; group None: this node's pods
Entry = Address | Endpoint


class Settled(msgspec.Struct, frozen=True):
    """`added` mentions every new audience, even an empty one."""

    added: Mapping[Audience, frozenset[Entry]]
    dropped: Mapping[Audience, frozenset[Entry]]
    removed: tuple[Audience, ...]
    untold: tuple[Audience, ...]  # gone before anybody heard of them

    def fields(self) -> dict[str, Any]:
        """Of a Change."""
        gone = [(group, port) for group, port in self.removed if port is not None]
        return {
            "added": memberships(self.added),
            "dropped": memberships(self.dropped),
            "removed_groups": tuple(sorted(g for g, port in self.removed if g is not None and port is None)),
            "added_named": named_memberships(self.added),
            "dropped_named": named_memberships(self.dropped),
            "removed_named": tuple(sorted(gone, key=audience_order)),
        }


class _Roster:
    __slots__ = ("before", "counts", "holders", "shown")

    def __init__(self) -> None:
        self.holders = 0
        self.shown = False  # a commit has told of it
        self.counts: dict[Entry, int] = {}
        self.before: dict[Entry, bool] = {}  # entries touched since the last commit: were they in?

    def changes(self) -> tuple[frozenset[Entry], frozenset[Entry]]:
        added = frozenset(entry for entry, was_in in self.before.items() if not was_in and entry in self.counts)
        dropped = frozenset(entry for entry, was_in in self.before.items() if was_in and entry not in self.counts)
        self.before.clear()
        return added, dropped


class Rosters:
    def __init__(self) -> None:
        self._rosters: dict[Audience, _Roster] = {}
        self._touched: set[Audience] = set()
        self._unions: dict[Audience, set[Audience]] = {}  # which take in the members of a group
        self.moves = 0  # entries that came and went so far

    def __contains__(self, audience: Audience) -> bool:
        return audience in self._rosters

    @property
    def is_settled(self) -> bool:
        """Nobody came, went, was held or let go since the last time."""
        return not self._touched

    def size(self, audience: Audience) -> int:
        return len(self._rosters[audience].counts)

    def hold(self, audience: Audience) -> bool:
        """True if the roster is new: then it is the caller's to fill."""
        is_new = audience not in self._rosters
        self._rosters.setdefault(audience, _Roster()).holders += 1
        self._touched.add(audience)
        return is_new

    def unite(self, union: GroupId) -> None:
        """Hold all members of the groups it is made of, which are held as long as it is."""
        audience: Audience = (union, None)
        if self.hold(audience):
            for group in union.of:
                self._unions.setdefault((group, None), set()).add(audience)
                for entry, count in self._rosters[group, None].counts.items():
                    self.add(audience, [entry] * count)

    def release(self, audience: Audience) -> None:
        self._rosters[audience].holders -= 1
        self._touched.add(audience)

    def add(self, audience: Audience, entries: Sequence[Entry]) -> None:
        for union in self._unions.get(audience, ()):
            self.add(union, entries)
        roster = self._rosters[audience]
        for entry in entries:
            count = roster.counts.get(entry, 0)
            roster.before.setdefault(entry, count > 0)
            roster.counts[entry] = count + 1
            self.moves += 1
            self._touched.add(audience)

    def remove(self, audience: Audience, entries: Sequence[Entry]) -> None:
        for union in self._unions.get(audience, ()):
            self.remove(union, entries)
        roster = self._rosters[audience]
        for entry in entries:
            count = roster.counts[entry]
            roster.before.setdefault(entry, True)
            if count == 1:
                del roster.counts[entry]
            else:
                roster.counts[entry] = count - 1
            self.moves += 1
            self._touched.add(audience)

    def settle(self) -> Settled:
        """What changed since the last time.  Rosters nobody holds are gone after this."""
        added, dropped = {}, {}
        removed: list[Audience] = []
        untold: list[Audience] = []
        for audience in self._touched:
            roster = self._rosters[audience]
            if not roster.holders:
                del self._rosters[audience]
                self._part(audience[0])
                (removed if roster.shown else untold).append(audience)
                continue
            joined, left = roster.changes()
            if joined or not roster.shown:
                added[audience] = joined
            if left:
                dropped[audience] = left
            roster.shown = True
        self._touched.clear()
        return Settled(added, dropped, tuple(removed), tuple(untold))

    def _part(self, gone: GroupId | None) -> None:
        """If it was a union: its groups are no longer in it."""
        for group in gone.of if gone is not None else ():
            self._unions[group, None].discard((gone, None))
            if not self._unions[group, None]:
                del self._unions[group, None]

    def members(self) -> dict[str, Any]:
        """The fields of Compiled that say who is behind each group and named port."""
        groups = {group: roster.counts.keys() for (group, port), roster in self._rosters.items() if port is None}
        named = {of: roster.counts.keys() for of, roster in self._rosters.items() if of[1] is not None}
        return {"groups": groups, "named": named}


def audiences(policy: CompiledPolicy | None) -> set[Audience]:
    """All groups and named ports the policy's rules refer to."""
    found: set[Audience] = set()
    if policy is None:
        return found
    for direction in DIRECTIONS:
        for rule in policy.rules(direction) or ():
            found.update((group, None) for group in rule.peers.groups)
            found.update(named_audiences(rule, direction))
    return found


def memberships(entries: Mapping[Audience, frozenset[Entry]]) -> tuple[Membership, ...]:
    found = (Membership(g, members) for (g, port), members in entries.items() if g is not None and port is None)  # type: ignore[arg-type]
    return tuple(sorted(found, key=lambda membership: membership.group))


def named_memberships(entries: Mapping[Audience, frozenset[Entry]]) -> tuple[NamedMembership, ...]:
    found = (NamedMembership(g, port, members) for (g, port), members in entries.items() if port is not None)  # type: ignore[arg-type]
    return tuple(sorted(found, key=lambda n: audience_order((n.group, n.port))))
