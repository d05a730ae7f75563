"""From the compiled form to what the kernel is told: pure.

`Ruleset` mirrors which chains, sets and pods' elements are there.  `full` renders everything; `transaction` renders
what a Change changes.  Where only pods and members come and go, that is a list of operations for a netlink batch; as
soon as a chain or set has to be made, changed or removed, it is one nft script that contains the operations as well.
Either way it is one transaction: nothing is ever half in force.

Both take the change in at once.  If the kernel then refuses it, the mirror is ahead, and `full` puts that right.
"""

from collections import Counter
from collections.abc import Collection
from typing import TypeVar

import msgspec

from flock.core.policy import layout, names, walls
from flock.core.policy.compiled import (
    DIRECTIONS,
    Change,
    Compiled,
    CompiledPolicy,
    GroupId,
    Membership,
    NamedMembership,
    NamedPort,
    PolicyKey,
    Subject,
    named_audiences,
)
from flock.core.policy.content import binding, classes_of, member_elements, port_elements, subject_elements
from flock.core.policy.cutting import Cut, to_cut
from flock.core.policy.elements import (
    ARP_TABLE,
    TABLE,
    Element,
    Operation,
    destination_chain,
    source_chain,
    statements,
)
from flock.core.policy.numbers import Numbers, PodNumbers
from flock.core.policy.rules import Class, Kind, policy_lines, version_of

Audience = tuple[GroupId | None, NamedPort]
Pod = tuple[Subject, PodNumbers]
T = TypeVar("T")


class Transaction(msgspec.Struct, frozen=True):
    """One of the two is empty; both are where there is nothing to do."""

    script: str = ""
    operations: tuple[Operation, ...] = ()


class Expected(msgspec.Struct, frozen=True):
    """How much has to be in our tables but ARP's: rules by chain, elements by set."""

    rules: dict[str, int]
    elements: dict[str, int]


class Ruleset:
    def __init__(self, numbers: Numbers, *, strict: bool = False, antispoofing: bool = True) -> None:
        """`strict`: every policy counts as strict."""
        self._antispoofing = antispoofing
        self._numbers = numbers
        self._strict = strict
        self._clear()

    def _clear(self) -> None:
        self._policies: dict[PolicyKey, CompiledPolicy] = {}
        self._subjects: dict[str, Subject] = {}  # by interface
        self._numbered: dict[str, PodNumbers] = {}  # by interface, as rendered
        self._groups: set[GroupId] = set()
        self._audiences: set[Audience] = set()
        self._classes: Counter[Class] = Counter()  # how many pods are in each
        self._chains: Counter[tuple[Kind, PolicyKey]] = Counter()  # how many classes jump to each
        self._rules: dict[str, int] = {}  # by chain, without the fixed ones

    def full(self, compiled: Compiled, existing: layout.Existing | None) -> str:
        """A script that puts all of `compiled` in the place of what is there, without a moment in between.

        `existing` names that; None where it is of no use, and then a packet may slip through at that moment."""
        self._clear()
        self._numbers.keep_only(compiled.subjects)
        named = sorted(compiled.named.items(), key=lambda item: _audience_order(item[0]))
        change = Change(
            policies=tuple(compiled.policies.values()),
            subjects=tuple(subject for _, subject in sorted(compiled.subjects.items())),
            added=tuple(Membership(group, frozenset(a)) for group, a in sorted(compiled.groups.items())),
            added_named=tuple(NamedMembership(*audience, frozenset(endpoints)) for audience, endpoints in named),
        )
        before, operations, after = self._take(change, cut=())
        assert not after
        operations += self._no_longer_isolated(operations, existing)
        return layout.tables(antispoofing=self._antispoofing, existing=existing) + "".join(
            f"{line}\n" for line in [*before, *statements(operations)]
        )

    @staticmethod
    def _no_longer_isolated(operations: list[Operation], existing: layout.Existing | None) -> list[Operation]:
        """Members of sets that are kept, not made anew."""
        wanted = {(o.what.set, *o.what.key) for o in operations if isinstance(o.what, Element)}
        kept = existing[TABLE].kept if existing and TABLE in existing else {}
        return [
            Operation(False, Element(TABLE, name, (member,)))
            for name, members in sorted(kept.items())
            for member in sorted(members)
            if (name, member) not in wanted
        ]

    def transaction(self, change: Change) -> Transaction:
        cut = to_cut(change, subjects=self._subjects, policies=self._policies, all_strict=self._strict)
        before, operations, after = self._take(change, cut=cut)
        if before or after:
            return Transaction(script="".join(f"{line}\n" for line in [*before, *statements(operations), *after]))
        return Transaction(operations=tuple(operations))

    def retire(self, numbers: Collection[int]) -> Transaction:
        """Forget earlier numbers, which the caller found on no connection."""
        earlier = {i: {*n.source.earlier, *n.destination.earlier} for i, n in self._numbered.items()}
        fewer = [interface for interface, had in earlier.items() if not had.isdisjoint(numbers)]
        for interface in fewer:
            self._numbers.retire(interface, numbers)
        return self.transaction(Change(subjects=tuple(self._subjects[i] for i in fewer)))

    def expected(self, compiled: Compiled) -> Expected:
        """For comparing with what is in the kernel."""
        fixed = {**layout.CHAINS, **layout.BIND_CHAINS, **walls.chains(antispoofing=self._antispoofing)}
        rules = {name: sum(not layout.is_hook(line) for line in lines) for name, lines in fixed.items()}
        for interface in self._subjects:
            rules |= {source_chain(interface): 1, destination_chain(interface): 1}
        elements = Counter(dict.fromkeys(_SETS, 0))
        elements.update(e.set for i in self._subjects for e in _elements(self._pod(i)) if e.table != ARP_TABLE)
        for group, addresses in compiled.groups.items():
            for version in (6, 4):
                elements[names.group_set(group, version)] = sum(a.version == version for a in addresses)
        for (whose, port), endpoints in compiled.named.items():
            for version in (0,) if whose is None else (6, 4):
                elements[names.port_set(whose, port, version)] = sum(version_of(a) == version for a, _ in endpoints)
        return Expected(rules | self._rules, dict(elements))

    # --- taking a change in -------------------------------------------------------------------------------------

    def _take(self, change: Change, *, cut: Collection[Cut]) -> tuple[list[str], list[Operation], list[str]]:
        """Lines that come first, operations, lines that come last."""
        self._policies.update({policy.key: policy for policy in change.policies})
        sets = self._new_sets(change)
        uses = _Uses(self._classes, self._chains)
        subjects = self._take_subjects(change, cut, uses)
        updated = {policy.key for policy in change.policies}
        policies = uses.new_chains | ({chain for chain in self._chains if chain[1] in updated} if updated else set())
        before = sets + self._define(sorted(policies), sorted(uses.new_classes))
        members = self._members(change)
        gone = self._gone(sorted(uses.old_classes), sorted(uses.old_chains))
        after = [f"delete chain {TABLE} {name}" for name in gone]
        after += self._old_sets(change)
        for key in change.removed_policies:
            self._policies.pop(key, None)
        return before, [*members, *subjects], after

    def _define(self, policies: list[tuple[Kind, PolicyKey]], classes: list[Class]) -> list[str]:
        """Chains of policies, new or anew, and of new classes; all are named before the first jump to one."""
        chains = [
            (names.policy_chain(kind, key), names.comment("/".join(key)), policy_lines(self._policies.get(key), kind))
            for kind, key in policies
        ]
        chains += [(c.chain, c.comment, c.lines()) for c in classes]
        lines = [f'add chain {TABLE} {name} {{ comment "{text}"; }}' for name, text, _ in chains]
        lines += [f"flush chain {TABLE} {name}" for name, _, _ in chains if name in self._rules]
        for name, _, rules in chains:
            lines += [f"add rule {TABLE} {name} {rule}" for rule in rules]
            self._rules[name] = len(rules)
        return lines

    def _gone(self, classes: list[Class], policies: list[tuple[Kind, PolicyKey]]) -> list[str]:
        gone = [c.chain for c in classes] + [names.policy_chain(kind, key) for kind, key in policies]
        for name in gone:
            del self._rules[name]
        return gone

    def _new_sets(self, change: Change) -> list[str]:
        """Sets of what is mentioned first, be it by its members or by a rule."""
        groups = {m.group for m in change.added}
        audiences: set[Audience] = {(m.group, m.port) for m in change.added_named}
        for policy in change.policies:
            for direction in DIRECTIONS:
                for rule in getattr(policy, direction) or ():
                    groups.update(rule.peers.groups)
                    audiences.update(named_audiences(rule, direction))
        lines = []
        for group in sorted(groups - self._groups):
            for version in (6, 4):
                lines.append(_add_set(names.group_set(group, version), _IP[version], names.group_comment(group)))
        for whose, port in sorted(audiences - self._audiences, key=_audience_order):
            for version in (0,) if whose is None else (6, 4):
                type_ = f"{_IP[version]} . inet_service"
                lines.append(_add_set(names.port_set(whose, port, version), type_, names.port_comment(whose, port)))
        self._groups |= groups
        self._audiences |= audiences
        return lines

    def _old_sets(self, change: Change) -> list[str]:
        gone = [names.group_set(g, v) for g in change.removed_groups if g in self._groups for v in (6, 4)]
        for audience in change.removed_named:
            if audience in self._audiences:
                gone += [names.port_set(*audience, v) for v in ((0,) if audience[0] is None else (6, 4))]
        self._groups.difference_update(change.removed_groups)
        self._audiences.difference_update(change.removed_named)
        return [f"delete set {TABLE} {name}" for name in gone]

    def _members(self, change: Change) -> list[Operation]:
        """Members that come and go; those of sets that go as a whole need no mention."""
        dropped = [m for m in change.dropped if m.group not in change.removed_groups]
        dropped_named = [m for m in change.dropped_named if (m.group, m.port) not in change.removed_named]
        return [
            *(Operation(False, e) for m in dropped for e in member_elements(m.group, m.addresses)),
            *(Operation(False, e) for n in dropped_named for e in port_elements(n.group, n.port, n.endpoints)),
            *(Operation(True, e) for m in change.added for e in member_elements(m.group, m.addresses)),
            *(Operation(True, e) for n in change.added_named for e in port_elements(n.group, n.port, n.endpoints)),
        ]

    def _take_subjects(self, change: Change, cut: Collection[Cut], uses: "_Uses") -> list[Operation]:
        """In an order in which nothing refers to a chain that is not there yet or any more."""
        after: dict[str, Subject | None] = {interface: self._subjects[interface] for interface, _ in sorted(cut)}
        after |= {subject.interface: subject for subject in change.subjects}
        after |= dict.fromkeys(change.removed_subjects)
        for interface, direction in sorted(cut):
            self._numbers.renew(interface, direction)
        gone, bound, come, unbound = [], [], [], []
        for interface, subject in after.items():
            old = self._pod(interface)
            if subject is not None:
                numbers = self._numbers.of(interface)
                self._subjects[interface], self._numbered[interface] = subject, numbers
                wanted = binding(subject, numbers)
                if old is None or wanted != binding(*old):
                    bound.append(wanted)
            elif old is not None:
                self._numbers.release(interface)
                del self._subjects[interface], self._numbered[interface]
                unbound.append(binding(*old))
            new = self._pod(interface)
            uses.change(old, new)
            before, now = _elements(old), _elements(new)
            gone += [e for e in before if e not in now]
            come += [e for e in now if e not in before]
        gone.sort(key=_set_order)
        come.sort(key=_set_order)
        return [
            *(Operation(False, e) for e in gone),
            *(Operation(True, b) for b in bound),
            *(Operation(True, e) for e in come),
            *(Operation(False, b) for b in unbound),
        ]

    def _pod(self, interface: str) -> Pod | None:
        subject = self._subjects.get(interface)
        return None if subject is None else (subject, self._numbered[interface])


class _Uses:
    """Counts how many pods are in a class and how many classes jump to a policy's chain; what nobody uses is not
    there.  Knows afterwards which came into use and which fell out of it."""

    def __init__(self, classes: "Counter[Class]", chains: "Counter[tuple[Kind, PolicyKey]]") -> None:
        self._classes, self._chains = classes, chains
        self.new_classes: set[Class] = set()
        self.old_classes: set[Class] = set()
        self.new_chains: set[tuple[Kind, PolicyKey]] = set()
        self.old_chains: set[tuple[Kind, PolicyKey]] = set()

    def change(self, old: Pod | None, new: Pod | None) -> None:
        for pod, step in ((new, +1), (old, -1)):
            for class_ in classes_of(*pod) if pod is not None else ():
                if _step(self._classes, class_, step, self.new_classes, self.old_classes):
                    for key in class_.policies:
                        _step(self._chains, (class_.kind, key), step, self.new_chains, self.old_chains)


def _step(counter: "Counter[T]", what: T, step: int, new: set[T], old: set[T]) -> bool:
    """Count up or down; True if this made it used or unused."""
    counter[what] += step
    if counter[what] == 0:
        del counter[what]
        new.discard(what) if what in new else old.add(what)
        return True
    if counter[what] == 1 and step == 1:
        old.discard(what) if what in old else new.add(what)
        return True
    return False


_SETS = {name: position for position, name in enumerate([*layout.SETS, *layout.BIND_SETS])}
_IP = {6: "ipv6_addr", 4: "ipv4_addr", 0: "ifname"}


def _set_order(element: Element) -> tuple[str, int]:
    return (element.table, _SETS[element.set])


def _audience_order(audience: Audience) -> tuple[bool, GroupId, NamedPort]:
    group, port = audience
    return (group is not None, group or GroupId("", "", ""), port)


def _add_set(name: str, type_: str, comment: str) -> str:
    return f'add set {TABLE} {name} {{ type {type_}; comment "{comment}"; }}'


def _elements(pod: Pod | None) -> dict[Element, None]:
    return dict.fromkeys(subject_elements(*pod)) if pod is not None else {}
