"""The compiled form of all policies that touch this node's pods.

    subject (a local pod's interface) ──▶ verdict class (which policies select it, per direction)
    verdict class ──▶ policies ──▶ rules ──▶ peers (groups, blocks, anywhere) and ports (numbers, names)

Everything is shared: pods with the same policies share a class, rules with the same selector share a group.  So an
event changes what it is about: a pod that comes or goes changes members of groups, a policy its own rules and the
classes it is in.  `Change` says exactly what; applying it to the kernel is one transaction.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Direction = Literal["ingress", "egress"]
DIRECTIONS: tuple[Direction, ...] = ("ingress", "egress")
Protocol = Literal["TCP", "UDP", "SCTP"]
Tier = Literal["Admin", "Baseline"]
Action = Literal["Accept", "Deny", "Pass"]
PolicyKey = tuple[str, str]  # namespace, name; a ClusterNetworkPolicy has no namespace
TRIED = "~"  # ends the name of a policy that nobody has applied yet; no object's name can have it
Endpoint = tuple[Address | str, int]  # address or interface, port number


class PortRange(msgspec.Struct, frozen=True, order=True):
    """Numbers of one protocol; 0-65535 where the policy names only the protocol."""

    protocol: Protocol
    first: int
    last: int


class GroupId(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """Pods a peer selector means.  Canonical: equal selectors have equal ids, whichever policy they come from.

    `namespaces` and `pods` are canonical texts of the selectors; `namespace` is set where there is no
    namespaceSelector and the policy's own namespace is meant.  `of`: instead of these, all pods of so many groups.
    `suspects`: pods whose labels are not known yet are in it, as they might be meant; for rules that deny.
    """

    namespace: str
    namespaces: str
    pods: str
    of: tuple["GroupId", ...] = ()
    suspects: bool = False


ALL_PODS = GroupId("", "", "")  # what an egress rule that names a port and no peers means
NODES = "/nodes"  # in the place of a namespace, whose name it cannot be: the cluster's Nodes, by their labels


class NamedPort(msgspec.Struct, frozen=True, order=True):
    """A port by name, resolved per destination pod: see NamedMembership."""

    name: str
    protocol: Protocol


class Span(msgspec.Struct, frozen=True):
    """Addresses of one family from the first to the last.  As text a network, where they are one.

    Not networks: all but one address of IPv6 are two spans, and 128 networks of half a kilobyte each."""

    version: int
    first: int
    last: int

    @classmethod
    def of(cls, network: Network) -> "Span":
        return cls(network.version, int(network.network_address), int(network.broadcast_address))

    def __contains__(self, address: Address) -> bool:
        return address.version == self.version and self.first <= int(address) <= self.last

    @property
    def is_everything(self) -> bool:
        return self.first == 0 and self.last == (1 << self._bits) - 1

    @property
    def _bits(self) -> int:
        return 32 if self.version == 4 else 128

    def __str__(self) -> str:
        size = self.last - self.first + 1
        address = IPv4Address if self.version == 4 else IPv6Address
        if size & (size - 1) == 0 and self.first % size == 0:
            return f"{address(self.first)}/{self._bits + 1 - size.bit_length()}"
        return f"{address(self.first)}-{address(self.last)}"


class Peers(msgspec.Struct, frozen=True):
    """Who a rule is about: pods of groups, addresses in blocks.  `anywhere`: the rule names no peers at all."""

    anywhere: bool = False
    groups: tuple[GroupId, ...] = ()
    blocks: tuple[Span, ...] = ()  # `except` already taken out: disjoint, sorted


class Rule(msgspec.Struct, frozen=True):
    """Traffic that matches is allowed, or what else the rule of a ClusterNetworkPolicy says.  No ports and no names:
    all of it, ICMP included (`any_port`)."""

    peers: Peers
    any_port: bool
    ports: tuple[PortRange, ...] = ()  # sorted, disjoint
    named: tuple[NamedPort, ...] = ()
    action: Action = "Accept"
    name: str = ""  # for people


class CompiledPolicy(msgspec.Struct, frozen=True):
    """`ingress`/`egress` None: the policy does not isolate in that direction; (): it isolates and allows nothing.

    `closed` says why a policy is refused that has no good version: it isolates what it would have isolated, and has
    no rules, for open is what nobody asked for.

    With a `tier` it is a ClusterNetworkPolicy: it isolates nobody, None means that it says nothing in that direction,
    and the first rule that matches decides; policies of a tier go by priority, then by name.
    """

    key: PolicyKey
    ingress: tuple[Rule, ...] | None
    egress: tuple[Rule, ...] | None
    strict: bool = False  # a new deny cuts established connections as well
    audited: bool = False  # nobody is judged by it; but it is told whom it would cut off
    closed: str = ""
    tier: Tier | None = None
    priority: int = 0  # lower goes first

    def rules(self, direction: Direction) -> tuple[Rule, ...] | None:
        return self.ingress if direction == "ingress" else self.egress


DENY_ALL = Rule(Peers(anywhere=True), any_port=True, action="Deny")


def closed_form(policy: CompiledPolicy, reason: str) -> CompiledPolicy:
    """It isolates whom it isolates and allows nothing; one of a tier denies where it denied or passed something."""
    closed = {direction: _closed(policy, policy.rules(direction)) for direction in DIRECTIONS}
    return replace(policy, **closed, closed=reason)


def _closed(policy: CompiledPolicy, rules: tuple[Rule, ...] | None) -> tuple[Rule, ...] | None:
    if rules is None or policy.tier is None:
        return None if rules is None else ()
    return (DENY_ALL,) if any(rule.action != "Accept" for rule in rules) else None


def named_audiences(rule: Rule, direction: Direction) -> tuple[tuple[GroupId | None, NamedPort], ...]:
    """The NamedMemberships a rule's named ports mean; behind an ipBlock a named port matches nothing in egress."""
    groups: tuple[GroupId | None, ...] = (None,)
    if direction == "egress":
        groups = (ALL_PODS,) if rule.peers.anywhere else rule.peers.groups
    return tuple((group, port) for group in groups for port in rule.named)


class Tiers(msgspec.Struct, frozen=True, order=True):
    """ClusterNetworkPolicies that have rules for a pod in one direction, sorted by name; the order they are asked in is
    theirs (`counting`).  `doubtful`: those of them that may mean the pod or not, as its labels are not known yet."""

    admin: tuple[PolicyKey, ...] = ()
    baseline: tuple[PolicyKey, ...] = ()
    doubtful: tuple[PolicyKey, ...] = ()


NO_TIERS = Tiers()


class Verdicts(msgspec.Struct, frozen=True):
    """Per direction the NetworkPolicies that isolate a pod, sorted; None: it is not isolated in that direction.

    An empty tuple means: isolated and allowed nothing, by a policy that cannot be decided yet (labels unknown).
    """

    ingress: tuple[PolicyKey, ...] | None = None
    egress: tuple[PolicyKey, ...] | None = None
    ingress_tiers: Tiers = NO_TIERS
    egress_tiers: Tiers = NO_TIERS

    def policies(self, direction: Direction) -> tuple[PolicyKey, ...] | None:
        return self.ingress if direction == "ingress" else self.egress

    def tiers(self, direction: Direction) -> Tiers:
        return self.ingress_tiers if direction == "ingress" else self.egress_tiers

    def named(self, direction: Direction) -> tuple[PolicyKey, ...]:
        """All policies that judge the pod in that direction."""
        tiers = self.tiers(direction)
        return (*tiers.admin, *(self.policies(direction) or ()), *tiers.baseline)


class Audit(msgspec.Struct, frozen=True):
    """How a pod would be judged, were those policies in force too that are only audited (`by`, sorted)."""

    verdicts: Verdicts
    by: tuple[PolicyKey, ...]


class Counting(NamedTuple):
    """A rule that counts, and where it is."""

    policy: CompiledPolicy
    number: int
    rule: Rule


def counting(
    policies: Iterable[CompiledPolicy], direction: Direction, doubtful: Collection[PolicyKey] = ()
) -> Iterator[Counting]:
    """The rules of one tier in the order they are asked: policies by priority, then by name, bytewise.

    Of a policy that may not mean the pod only what it denies counts.  Had it passed a packet on, an Accept that comes
    later would not have been asked, so that does not count either: closed is never wrong here."""
    passed = False
    for policy in sorted(policies, key=lambda policy: (policy.priority, policy.key[1].encode())):
        in_doubt = policy.key in doubtful
        for number, rule in enumerate(policy.rules(direction) or ()):
            if rule.action == "Deny" or not (in_doubt or (passed and rule.action == "Accept")):
                yield Counting(policy, number, rule)
            passed = passed or (in_doubt and rule.action == "Pass")


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of this node, known by its host interface.

    What comes from a pod and goes back to the same pod (through a Service, in and out of one interface) passes
    whatever the verdicts say.
    """

    interface: str
    container_id: str
    pod: str  # namespace/name for people
    addresses: tuple[Address, ...]  # primary, extra, anycast
    link_local: IPv6Address | None = None  # None: not known
    verdicts: Verdicts
    audit: Audit | None = None  # None: it would be judged as it is


class Membership(msgspec.Struct, frozen=True):
    """Addresses of a group."""

    group: GroupId
    addresses: frozenset[Address]


class NamedMembership(msgspec.Struct, frozen=True):
    """Destinations of a named port, each with the port's number there.

    `group` None: local subjects' own ports (ingress rules), by *interface*: of two pods that share an anycast address
    each has its own numbers.  Else those of the group's pods (egress rules), by address, which implies membership.
    """

    group: GroupId | None
    port: NamedPort
    endpoints: frozenset[Endpoint]


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """Everything in force: what all Changes so far add up to."""

    subjects: Mapping[str, Subject]  # by interface
    policies: Mapping[PolicyKey, CompiledPolicy]
    groups: Mapping[GroupId, Collection[Address]]
    named: Mapping[tuple[GroupId | None, NamedPort], Collection[Endpoint]]


def as_audited(compiled: Compiled, interfaces: Iterable[str]) -> Compiled | None:
    """Were audited policies in force for these pods too; None where that changes nothing."""
    subjects = (subject for i in interfaces if (subject := compiled.subjects.get(i)) is not None)
    would = {s.interface: replace(s, verdicts=s.audit.verdicts) for s in subjects if s.audit is not None}
    return replace(compiled, subjects={**compiled.subjects, **would}) if would else None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch of events changed, in terms of the compiled form.  Empty: nothing to do."""

    policies: tuple[CompiledPolicy, ...] = ()  # new or changed, and in use by a local subject
    removed_policies: tuple[PolicyKey, ...] = ()  # no longer in use here
    subjects: tuple[Subject, ...] = ()  # new or changed
    removed_subjects: tuple[str, ...] = ()  # interfaces
    added: tuple[Membership, ...] = ()  # addresses that joined a group; the first mention creates it
    dropped: tuple[Membership, ...] = ()  # addresses that left
    removed_groups: tuple[GroupId, ...] = ()
    added_named: tuple[NamedMembership, ...] = ()
    dropped_named: tuple[NamedMembership, ...] = ()
    removed_named: tuple[tuple[GroupId | None, NamedPort], ...] = ()


def everything(compiled: Compiled) -> Change:
    """What takes an empty kernel there."""
    named = sorted(compiled.named.items(), key=lambda item: audience_order(item[0]))
    return Change(
        policies=tuple(policy for _, policy in sorted(compiled.policies.items())),
        subjects=tuple(subject for _, subject in sorted(compiled.subjects.items())),
        added=tuple(Membership(group, frozenset(a)) for group, a in sorted(compiled.groups.items())),
        added_named=tuple(NamedMembership(*audience, frozenset(endpoints)) for audience, endpoints in named),
    )


def audience_order(audience: tuple[GroupId | None, NamedPort]) -> tuple[bool, GroupId, NamedPort]:
    """A key for sorting: this node's own pods first."""
    group, port = audience
    return (group is not None, group or ALL_PODS, port)
