"""From the compiled form to what the kernel is told: pure.

`Ruleset` mirrors which chains, sets and pods' elements are there.  `full` renders everything; `transaction` renders
what a Change changes.  Where pods and members come and go, that is a list of operations for a netlink batch.  What has
to be made or changed first is an nft script that goes before: chains are there, with their rules, before an element
leads a packet to them.  Whom a policy isolates changes in one transaction, after that.

Both take the change in at once.  If the kernel then refuses it, the mirror is ahead, and `full` puts that right.
"""

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from flock.core.policy import layout, names, walls
from flock.core.policy.chainuse import ChainUse
from flock.core.policy.compiled import (
    DIRECTIONS,
    Change,
    Compiled,
    CompiledPolicy,
    GroupId,
    NamedPort,
    PolicyKey,
    Subject,
    audience_order,
    everything,
    named_audiences,
)
from flock.core.policy.content import (
    Pod,
    binding,
    classes_of,
    member_elements,
    pod_difference,
    pod_elements,
    port_elements,
)
from flock.core.policy.crowds import Together, together
from flock.core.policy.cutting import Cut, to_cut
from flock.core.policy.elements import (
    ARP_TABLE,
    BIND_TABLE,
    TABLE,
    Chain,
    Element,
    NamedSet,
    Operation,
    Table,
    destination_chain,
    source_chain,
    statements,
)
from flock.core.policy.numbers import Numbers, PodNumbers
from flock.core.policy.rendered import Expected, ExpectedOfPod, Transaction
from flock.core.policy.rules import AUDITS, VIEWS, Asked, Class, by_name, chains_of, version_of

Audience = tuple[GroupId | None, NamedPort]


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
        self._chains: Counter[Asked] = Counter()  # how many classes jump to each
        self._parts: dict[Asked, tuple[str, ...]] = {}  # the names of a policy's chains
        self._rules: dict[str, list[str]] = {}  # by chain, without the fixed ones

    def full(self, compiled: Compiled, existing: layout.Existing | None) -> str:
        """A script that puts all of `compiled` in the place of what is there, without a moment in between.

        `existing` names that; None where it is of no use, and then a packet may slip through at that moment."""
        self._clear()
        self._numbers.keep_only(compiled.subjects)
        steps = self._take(everything(compiled), cut=())
        expected = self.expected(compiled)
        tables = layout.tables(
            antispoofing=self._antispoofing, existing=existing, wanted={*expected.rules, *expected.elements}
        )
        return tables + _script([*steps.sets, *steps.chains, *statements([*steps.members, *steps.moves])])

    def transaction(self, change: Change) -> Transaction:
        cut = to_cut(change, subjects=self._subjects, policies=self._policies, all_strict=self._strict)
        steps = self._take(change, cut=cut)
        prepare, operations = "", [*steps.moves, *steps.gone]
        if steps.sets or steps.chains:
            prepare = _script([*steps.sets, *statements(steps.members), *steps.chains])
        else:
            operations = [*steps.members, *operations]
        if steps.late:
            return Transaction(prepare, script=_script([*steps.late, *statements(operations)]))
        return Transaction(prepare, operations=tuple(operations))

    def cut(self, change: Change) -> None:
        """For `full` to render, where a change comes while everything is made anew."""
        for interface, direction in to_cut(
            change, subjects=self._subjects, policies=self._policies, all_strict=self._strict
        ):
            self._numbers.renew(interface, direction)

    def settle(self, interfaces: Collection[str]) -> Transaction:
        """New numbers for pods whose connections are judged again, once no packet is under way from before that."""
        for interface in interfaces:
            self._numbers.settle(interface)
        return self.transaction(Change(subjects=tuple(self._subjects[i] for i in interfaces if i in self._subjects)))

    def limit(self, overfull: Collection[str]) -> Transaction:
        """These pods, by interface, open no further connections, and all others do again."""
        changed = [i for i, numbers in self._numbered.items() if numbers.overfull != (i in overfull)]
        for interface in changed:
            self._numbers.limit(interface, overfull=interface in overfull)
        return self.transaction(Change(subjects=tuple(self._subjects[i] for i in changed)))

    def expected_of(self, interface: str) -> ExpectedOfPod | None:
        """None if there is no such pod.  Costs what the pod has."""
        pod = self._pod(interface)
        if pod is None:
            return None
        judging = {**layout.CHAINS, **walls.chains(antispoofing=self._antispoofing)}
        rules: dict[tuple[Table, str], int] = {(TABLE, name): count for name, count in layout.count(judging).items()}
        rules |= {(BIND_TABLE, name): count for name, count in layout.count(layout.BIND_CHAINS).items()}
        rules |= {(BIND_TABLE, chain(interface)): 1 for chain in (source_chain, destination_chain)}
        classes = classes_of(*pod)
        if any(class_.kind in AUDITS for class_ in classes):
            rules |= {(TABLE, name): count for name, count in layout.count(layout.AUDIT_CHAINS).items()}
        for class_ in classes:
            named = [class_.chain, *(name for asked in class_.asked() for name in self._parts[asked])]
            rules |= {(TABLE, name): len(self._rules[name]) for name in named}
        return ExpectedOfPod(tuple(dict.fromkeys(pod_elements(pod))), rules)

    def expected(self, compiled: Compiled) -> Expected:
        """For comparing with what is in the kernel."""
        fixed = {**layout.CHAINS, **layout.BIND_CHAINS, **walls.chains(antispoofing=self._antispoofing)}
        rules = layout.count({**fixed, **(layout.AUDIT_CHAINS if self._audits else {})})
        for interface in self._subjects:
            rules |= {source_chain(interface): 1, destination_chain(interface): 1}
        elements = Counter(dict.fromkeys(_SETS, 0))
        pods = zip(self._subjects.values(), self._numbered.values(), strict=True)
        elements.update(e.set for pod in pods for e in {*pod_elements(pod)} if e.table != ARP_TABLE)
        for group, addresses in compiled.groups.items():
            for version in (6, 4):
                elements[names.group_set(group, version)] = sum(a.version == version for a in addresses)
        for (whose, port), endpoints in compiled.named.items():
            for version in (0,) if whose is None else (6, 4):
                elements[names.port_set(whose, port, version)] = sum(version_of(a) == version for a, _ in endpoints)
        return Expected(rules | {name: len(lines) for name, lines in self._rules.items()}, dict(elements))

    # --- taking a change in -------------------------------------------------------------------------------------

    def _take(self, change: Change, *, cut: Collection[Cut]) -> "_Steps":
        """A policy that changes does so before pods join it, so that they meet what it says now.  Where a pod leaves
        it, which must not meet that any more, it changes together with the pods."""
        self._policies.update({policy.key: policy for policy in change.policies})
        sets, old_sets = self._new_sets(change), self._old_sets(change)
        uses, audited = ChainUse(self._classes, self._chains), self._audits
        subjects = self._take_subjects(change, cut, uses)
        updated = {policy.key for policy in change.policies}
        rewritten = {asked for asked in self._chains if not updated.isdisjoint(asked.policies)} if updated else set()
        late = (rewritten - uses.new_chains) & uses.left
        crowds = (
            {c for c in self._classes if c.is_crowd and not updated.isdisjoint(c.policies or ())} if updated else set()
        )
        classes = uses.new_classes | crowds
        late_classes = {c for c in classes if not late.isdisjoint(c.asked())} if late else set()
        begins, ends = self._audits and not audited, audited and not self._audits
        steps = _Steps(
            sets=sets,
            members=self._members(change),
            chains=[
                *self._define(uses.new_chains | rewritten - late, classes - late_classes),
                *(layout.auditing() if begins else ()),
            ],
            late=self._define(late, late_classes),
            moves=subjects,
            gone=[
                *(Operation(False, Chain(name)) for name in (layout.AUDIT_CHAINS if ends else ())),
                *(Operation(False, Chain(name)) for name in self._gone(uses.old_classes, uses.old_chains)),
                *(Operation(False, NamedSet(name)) for name in old_sets),
            ],
        )
        for key in change.removed_policies:
            self._policies.pop(key, None)
        return steps

    @property
    def _audits(self) -> bool:
        """Is some pod judged by policies that are only audited?"""
        return any(class_.kind in AUDITS for class_ in self._classes)

    def _define(self, policies: Collection[Asked], classes: Collection[Class]) -> list[str]:
        """Chains of policies, new or anew, and of new classes; all are named before the first jump to one."""
        chains, stale = [], []
        for asked in sorted(policies, key=by_name):
            made = chains_of(asked, self._policies)
            stale += [name for name in self._parts.get(asked, ()) if name not in made]
            self._parts[asked] = tuple(made)
            chains += [(name, asked.comment, rules) for name, rules in made.items()]
        chains += [(c.chain, c.comment, c.lines(self._together(c))) for c in sorted(classes, key=by_name)]
        chains = [(name, text, rules) for name, text, rules in chains if self._rules.get(name) != rules]
        lines = [f'add chain {TABLE} {name} {{ comment "{text}"; }}' for name, text, _ in chains]
        lines += [f"flush chain {TABLE} {name}" for name, _, _ in chains if name in self._rules]
        for name, _, rules in chains:
            lines += [f"add rule {TABLE} {name} {rule}" for rule in rules]
            self._rules[name] = rules
        for name in stale:
            del self._rules[name]
        return lines + [f"delete chain {TABLE} {name}" for name in stale]

    def _together(self, class_: Class) -> Together | None:
        """What its policies say, where they are many and the unions of their groups are there."""
        if not class_.is_crowd:
            return None
        found = together(class_.policies or (), self._policies, VIEWS[class_.kind].direction)
        return found if self._groups.issuperset(found.unions) else None

    def _gone(self, classes: Collection[Class], policies: Collection[Asked]) -> list[str]:
        gone = [c.chain for c in sorted(classes, key=by_name)]
        gone += [name for asked in sorted(policies, key=by_name) for name in self._parts.pop(asked)]
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
        for whose, port in sorted(audiences - self._audiences, key=audience_order):
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
        return gone

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

    def _take_subjects(self, change: Change, cut: Collection[Cut], uses: ChainUse) -> list[Operation]:
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
                same = old is not None and (old[0].pod, old[1]) == (subject.pod, numbers)
                if not same and (old is None or binding(subject, numbers) != binding(*old)):
                    bound.append(binding(subject, numbers))
            elif old is not None:
                self._numbers.release(interface)
                del self._subjects[interface], self._numbered[interface]
                unbound.append(binding(*old))
            new = self._pod(interface)
            uses.change(old, new)
            going, coming = pod_difference(old, new)
            gone += going
            come += coming
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


class _Steps(NamedTuple):
    """What a change comes to, in the order in which it is to happen."""

    sets: list[str]
    members: list[Operation]
    chains: list[str]  # new ones, and policies that change before pods join them
    late: list[str]  # policies that change in the moment in which pods leave them
    moves: list[Operation]  # pods
    gone: list[Operation]


_SETS = {name: position for position, name in enumerate([*layout.SETS, *layout.BIND_SETS])}
_IP = {6: "ipv6_addr", 4: "ipv4_addr", 0: "ifname"}


def _set_order(element: Element) -> tuple[str, int]:
    return (element.table, _SETS[element.set])


def _add_set(name: str, type_: str, comment: str) -> str:
    return f'add set {TABLE} {name} {{ type {type_}; comment "{comment}"; }}'


def _script(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
