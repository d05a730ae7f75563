"""A policy's rules as lines of an nft chain, and the classes pods are judged by.

The same rules come in two views.  Usually a packet is judged as the first of its connection: the peer of an ingress
rule is the source, the port the destination's.  Where a connection is to be judged again and only its answers are seen,
the rules are read backwards: the peer of an ingress rule is where the answer goes, the port where it comes from.

Peers are matched once and ports once: where a rule has several of both, each peer jumps to a chain with the ports, so
that a policy comes to as many lines as it has entries, and never to their product.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Literal, NamedTuple

from flock.core.policy import crowds, names
from flock.core.policy.compiled import (
    NO_TIERS,
    Address,
    CompiledPolicy,
    Direction,
    PolicyKey,
    PortRange,
    Rule,
    Tier,
    Tiers,
    counting,
    named_audiences,
)
from flock.core.policy.crowds import Together
from flock.core.policy.dropping import ITSELF, audited, logged_drop
from flock.core.policy.wording import policy_text

Kind = Literal[
    "ingress", "egress", "ingress-replies", "egress-replies", "egress-node",
    "audit-ingress", "audit-egress", "audit-egress-node",
]  # fmt: skip
FEW = 4  # lines that may stay together where a chain for the ports would only be one jump more
REPLIES: dict[Direction, Kind] = {"ingress": "ingress-replies", "egress": "egress-replies"}


class View(NamedTuple):
    """Which fields of a packet a rule means."""

    direction: Direction
    peer: str  # address of the other side
    server: str  # address of the side that was connected to
    own: str  # the interface of the subject
    port: str


VIEWS: dict[Kind, View] = {
    "ingress": View("ingress", peer="saddr", server="daddr", own="oifname", port="dport"),
    "egress": View("egress", peer="daddr", server="daddr", own="iifname", port="dport"),
    "ingress-replies": View("ingress", peer="daddr", server="saddr", own="iifname", port="sport"),
    "egress-replies": View("egress", peer="saddr", server="saddr", own="oifname", port="sport"),
    "egress-node": View("egress", peer="daddr", server="daddr", own="iifname", port="dport"),
}
# The same, for how packets would be judged, were audited policies in force.
AUDITS: dict[Kind, Kind] = {"audit-ingress": "ingress", "audit-egress": "egress", "audit-egress-node": "egress-node"}
VIEWS |= {audit: VIEWS[kind] for audit, kind in AUDITS.items()}


def _drop(kind: Kind, by: tuple[PolicyKey, ...] | str) -> list[str]:
    """Dropped, or told that it would be.  `by`: whose doing that is, policies or one rule in words."""
    direction = VIEWS[kind].direction
    said = f"audit-{direction}" if kind in AUDITS else direction
    prefix = names.rule_prefix(said, by) if isinstance(by, str) else names.log_prefix(said, by)
    if kind in AUDITS:
        return audited(prefix, told=kind == "audit-egress")
    return logged_drop(prefix, f"{direction}-drops")


class Asked(NamedTuple):
    """What has a chain, or several, that classes jump to: one NetworkPolicy, or the policies of a tier that mean a pod.

    A tier's chain has the rules of all of them in their order, so that a Pass leaves it by returning."""

    kind: Kind
    policies: tuple[PolicyKey, ...]
    tier: Tier | None = None
    doubtful: tuple[PolicyKey, ...] = ()

    @property
    def chain(self) -> str:
        if self.tier is None:
            return names.policy_chain(self.kind, self.policies[0])
        return names.tier_chain(self.kind, self.tier, self.policies, self.doubtful)

    @property
    def comment(self) -> str:
        if self.tier is None:
            return names.comment("/".join(self.policies[0]))
        return f"{self.tier} {names.policies_text(self.policies, names.LONGEST_COMMENT - len(self.tier) - 1)}"


class Class(NamedTuple):
    """Pods that are judged by the same policies are judged by one chain.  `policies`: None where none isolates.
    `audited`: those of all of them that are, where the chain is about that."""

    kind: Kind
    policies: tuple[PolicyKey, ...] | None
    tiers: Tiers = NO_TIERS
    audited: tuple[PolicyKey, ...] = ()

    @property
    def chain(self) -> str:
        more = (self.tiers, self.audited) if self.audited else (self.tiers,) if self.tiers != NO_TIERS else ()
        return names.class_chain(self.kind, self.policies, *more)

    @property
    def is_crowd(self) -> bool:
        """Of which unions are kept; not for what is only audited."""
        return len(self.policies or ()) > crowds.MANY and self.kind not in AUDITS

    @property
    def comment(self) -> str:
        policies = self.tiers.admin + (self.tiers.baseline if self.policies is None else self.policies)
        return names.policies_text(policies, names.LONGEST_COMMENT)

    def asked(self) -> list[Asked]:
        """In order.  Baseline is for whom no NetworkPolicy isolates."""
        found = [self._tier("Admin", self.tiers.admin)]
        if self.policies is None:
            found.append(self._tier("Baseline", self.tiers.baseline))
        else:
            found += [Asked(self.kind, (key,)) for key in self.policies]
        return [asked for asked in found if asked.policies]

    def _tier(self, tier: Tier, keys: tuple[PolicyKey, ...]) -> Asked:
        return Asked(self.kind, keys, tier, tuple(key for key in self.tiers.doubtful if key in keys))

    def lines(self, together: Together | None = None) -> list[str]:
        """`together`: what policies say that are not asked one by one.  A pod that reaches itself through a Service is
        a matter of the cluster's policies, and of no namespace's."""
        view = VIEWS[self.kind]
        tiers = [f"jump {asked.chain}" for asked in self.asked() if asked.tier]
        if self.policies is None:
            return [*tiers, "accept"]
        apart = self.policies if together is None else together.apart
        shared = [line for rule in (together.rules if together else ()) for line in _multiplied(rule, view)]
        return [
            *tiers,
            ITSELF,
            *(f"{line} accept".lstrip() for line in shared),
            *(f"jump {names.policy_chain(self.kind, policy)}" for policy in apart),
            *_drop(self.kind, self._blamed()),
        ]

    def _blamed(self) -> tuple[PolicyKey, ...]:
        """For what NetworkPolicies do not let through: these, or of audited policies those that led to it."""
        isolating = self.policies or ()
        return tuple(key for key in self.audited if key in (*self.tiers.admin, *isolating)) or isolating


def by_name(what: Asked | Class) -> tuple[str, str]:
    """A key for sorting."""
    return what.kind, what.chain


def chains_of(asked: Asked, policies: Mapping[PolicyKey, CompiledPolicy]) -> dict[str, list[str]]:
    """By name; its own is first."""
    if asked.tier is not None:
        return _tier_chains(asked, policies)
    return _policy_chains(policies.get(asked.policies[0]), asked.kind, asked.policies[0])


def _tier_chains(asked: Asked, policies: Mapping[PolicyKey, CompiledPolicy]) -> dict[str, list[str]]:
    """Accept ends the judging, Deny logs and drops, Pass returns.

    Where a rule has several peers and several ports, a chain of its own has the ports.  A Pass could not return from
    there past the rules that follow it, so it has all ports by number in one match instead: to go on in a further chain
    after each would be more jumps than the kernel follows.  Each chain comes after those that lead to it, so that they
    can be deleted in that order."""
    view, chain = VIEWS[asked.kind], asked.chain
    found: dict[str, list[str]] = {chain: []}
    lines, known = found[chain], [policies[key] for key in asked.policies if key in policies]
    for policy, position, rule in counting(known, view.direction, asked.doubtful):
        own = f"{names.digest(policy.key)}/{position}"  # wherever its place is: where that changes, these do not
        ports_chain, deny = (f"{chain}/{what}/{own}" for what in ("ports", "deny"))
        verdict = {"Accept": "accept", "Pass": "return", "Deny": f"goto {deny}"}[rule.action]
        peers, ports = list(_peers(rule, view.peer)), list(_port_matches(rule, view))
        lines += [f"{match} {verdict}" for match in _named_destinations(rule, view)]
        if min(len(peers), len(ports)) < 2 or len(peers) * len(ports) <= FEW:
            lines += [f"{match} {verdict}".lstrip() for match in _multiplied(rule, view)]
        elif rule.action == "Pass":
            lines += [f"{peer} {port} {verdict}" for peer in peers for port in _port_matches(rule, view, at_once=True)]
        else:
            found[ports_chain] = [f"{port} {verdict}" for port in ports]
            lines += [f"{peer} jump {ports_chain}" for peer in peers]
        if rule.action == "Deny":
            by = f"{policy.tier} {policy_text(policy.key)} {view.direction}[{position}]"
            found[deny] = _drop(asked.kind, by)
    return found


def _policy_chains(policy: CompiledPolicy | None, kind: Kind, key: PolicyKey) -> dict[str, list[str]]:
    """The policy's chain, which is first, and those of its rules that have one for their ports."""
    view, chain = VIEWS[kind], names.policy_chain(kind, key)
    found: dict[str, list[str]] = {chain: []}
    for position, rule in enumerate(getattr(policy, view.direction) or ()):
        comment = f'comment "{view.direction} rule {position}"'
        peers, ports = list(_peers(rule, view.peer)), list(_port_matches(rule, view))
        if min(len(peers), len(ports)) > 1 and len(peers) * len(ports) > FEW:
            found[f"{chain}/{position}"] = [f"{port} accept {comment}" for port in ports]
            found[chain] += [f"{peer} jump {chain}/{position} {comment}" for peer in peers]
        else:
            found[chain] += [f"{match} accept {comment}".lstrip() for match in _multiplied(rule, view)]
        found[chain] += [f"{match} accept {comment}" for match in _named_destinations(rule, view)]
    return found


def _multiplied(rule: Rule, view: View) -> Iterator[str]:
    for peer in _peers(rule, view.peer):
        for port in _port_matches(rule, view):
            yield " ".join(filter(None, (peer, port)))


def _port_matches(rule: Rule, view: View, *, at_once: bool = False) -> Iterator[str]:
    """`at_once`: those by number in one match, whatever the protocol."""
    if rule.any_port:
        yield ""
    if at_once and rule.ports:
        each = (f"{r.protocol.lower()} . {_numbers(r.first, r.last)}" for r in rule.ports)
        yield f"meta l4proto . th {view.port} {{ {', '.join(each)} }}"
    else:
        yield from _ports(rule.ports, view.port)
    for port in rule.named if view.direction == "ingress" else ():
        yield f"{view.own} . {port.protocol.lower()} {view.port} @{names.port_set(None, port, 0)}"


def _named_destinations(rule: Rule, view: View) -> Iterator[str]:
    """Peer and port at once."""
    for group, port in named_audiences(rule, "egress") if view.direction == "egress" else ():
        for ip, version in (("ip6", 6), ("ip", 4)):
            where = f"{ip} {view.server} . {port.protocol.lower()} {view.port}"
            yield f"{where} @{names.port_set(group, port, version)}"


def _peers(rule: Rule, field: str) -> Iterator[str]:
    if rule.peers.anywhere:
        yield ""
        return
    for group in rule.peers.groups:
        yield f"ip6 {field} @{names.group_set(group, 6)}"
        yield f"ip {field} @{names.group_set(group, 4)}"
    for ip, version in (("ip6", 6), ("ip", 4)):
        blocks = [block for block in rule.peers.blocks if block.version == version]
        if any(block.is_everything for block in blocks):
            yield f"meta nfproto ipv{version}"
        elif blocks:
            yield f"{ip} {field} {{ {', '.join(map(str, blocks))} }}"


def _ports(ranges: tuple[PortRange, ...], field: str) -> Iterator[str]:
    for protocol, group in groupby(ranges, lambda r: r.protocol.lower()):
        numbers = [(r.first, r.last) for r in group]
        if (0, 65535) in numbers:
            yield f"meta l4proto {protocol}"
        else:
            yield f"{protocol} {field} {{ {', '.join(_numbers(*each) for each in numbers)} }}"


def _numbers(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def version_of(address: Address | str) -> int:
    """0 for an interface."""
    return 0 if isinstance(address, str) else address.version
