"""One packet, judged the way the rules in the kernel do, from the compiled form they are made of.

Out of its source pod (egress), then into its destination pod (ingress), each only where that pod is on this node;
subjects are known by interface, peers by address.  In each direction the tiers are asked in turn: Admin by priority,
where the first rule that matches accepts, denies or passes the packet on; then NetworkPolicy, which is final for a pod
it isolates; then Baseline like Admin; what is left passes.  Results are plain values, ready for JSON; `str()` of them
is for people.
"""

from collections.abc import Collection, Iterator
from ipaddress import ip_address
from typing import Literal, NamedTuple

import msgspec

from flock.core.policy.compiled import (
    Address,
    Compiled,
    CompiledPolicy,
    Direction,
    PolicyKey,
    Rule,
    Subject,
    Tiers,
    counting,
    named_audiences,
)
from flock.core.policy.walls import wall_to_node
from flock.core.policy.wording import peers_text, policy_text, ports_text, rule_text, tier_rule_text

Outcome = Literal["allowed", "denied", "not isolated", "not decided here"]


class Party(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a packet.  `interface` is empty for all but pods of this node."""

    address: str
    interface: str = ""
    pod: str = ""

    def __str__(self) -> str:
        return f"{self.pod} ({self.address})" if self.pod else self.address


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one direction came to.  `allowed_by` names the policy and the rule in its spec; `reasons` tell the rest."""

    direction: Direction
    outcome: Outcome
    isolated_by: tuple[str, ...] = ()
    allowed_by: str = ""
    decided_by: str = ""  # the rule of a ClusterNetworkPolicy, with its tier
    otherwise: str = ""  # what would have decided without it
    reasons: tuple[str, ...] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Literal["allow", "deny"]
    source: Party
    destination: Party
    protocol: str
    port: int | None
    egress: Finding
    ingress: Finding
    audited: "Explanation | None" = None  # were audited policies in force too, where there are any for its ends

    def __str__(self) -> str:
        what = self.protocol if self.port is None else f"{self.port}/{self.protocol}"
        lines = [f"{self.verdict}: {self.source} → {self.destination} {what}", *self._findings()]
        if self.audited is not None:
            lines += [f"with audited policies in force: {self.audited.verdict}", *self.audited._findings()]
        return "\n".join(lines)

    def _findings(self) -> Iterator[str]:
        for finding in (self.egress, self.ingress):
            by = f", isolated by {', '.join(finding.isolated_by)}" if finding.isolated_by else ""
            allowed = f" by {finding.allowed_by}" if finding.allowed_by else ""
            decided = f" by {finding.decided_by}; without it: {finding.otherwise}" if finding.decided_by else ""
            yield f"  {finding.direction + ':':<9}{finding.outcome}{allowed}{decided}{by}"
            yield from (f"           {reason}" for reason in finding.reasons)


# --- one packet ---------------------------------------------------------------------------------------------


def evaluate(
    compiled: Compiled,
    *,
    source: Party,
    destination: Party,
    protocol: str,
    port: int | None,
    node_addresses: Collection[Address] = (),
    service: bool = False,
) -> Explanation:
    """`protocol` TCP, UDP and SCTP have a port; anything else (ICMP) has none.  `node_addresses`: this node's own, of
    whose traffic with its pods NetworkPolicy filters nothing.  `service`: a pod that meets itself does so by one."""
    packet = _Packet(compiled, source, destination, protocol, port, node_addresses, service)
    egress, ingress = packet.finding("egress"), packet.finding("ingress")
    return Explanation(
        verdict="deny" if "denied" in (egress.outcome, ingress.outcome) else "allow",
        source=source,
        destination=destination,
        protocol=protocol,
        port=port,
        egress=egress,
        ingress=ingress,
    )


class _Packet(NamedTuple):
    compiled: Compiled
    source: Party
    destination: Party
    protocol: str
    port: int | None
    node_addresses: Collection[Address]
    service: bool

    def finding(self, direction: Direction) -> Finding:
        ends = (self.source, self.destination)
        own, other = ends if direction == "egress" else ends[::-1]  # whose policies, and who is the peer
        subject = self.compiled.subjects.get(own.interface)
        if subject is None:
            why = "is on another node, which decides" if own.pod else "is no pod"
            return Finding(direction=direction, outcome="not decided here", reasons=(f"{own} {why}",))
        near = "a pod reaches itself" if own.interface == other.interface else ""
        if ip_address(other.address) in self.node_addresses:
            near = "a pod and its own node reach each other"
            wall = wall_to_node(self.protocol, self.port) if direction == "egress" else ""
            if wall:
                return Finding(direction=direction, outcome="denied", reasons=(wall,))
        decisions = self._decisions(direction, subject, ip_address(other.address), near)
        if near and not self._is_subject(direction, own, other):
            decisions = self._network_policies(direction, subject, ip_address(other.address), near)
        found = next(decisions)
        if not found.decided_by:
            return found
        without = next(decisions)
        return msgspec.structs.replace(found, otherwise=without.decided_by or without.outcome)

    def _is_subject(self, direction: Direction, own: Party, other: Party) -> bool:
        """To the tiers, of what is near: what a pod sends to its node, and to itself by way of a Service."""
        return self.service if own.interface == other.interface else direction == "egress"

    def _decisions(self, direction: Direction, subject: Subject, peer: Address, near: str) -> Iterator[Finding]:
        """The first counts; each further one is what would, were it not for those before it."""
        tiers = subject.verdicts.tiers(direction)
        passed: list[str] = []
        yield from self._tier(direction, tiers.admin, peer, tiers, passed)
        for found in self._network_policies(direction, subject, peer, near):
            if found.outcome != "not isolated":
                yield msgspec.structs.replace(found, reasons=(*passed, *found.reasons))
                return
        yield from self._tier(direction, tiers.baseline, peer, tiers, passed)
        yield Finding(direction=direction, outcome="not isolated", reasons=tuple(passed))

    def _tier(
        self, direction: Direction, keys: tuple[PolicyKey, ...], peer: Address, tiers: Tiers, passed: list[str]
    ) -> Iterator[Finding]:
        policies = (self.compiled.policies[key] for key in keys)
        for policy, number, rule in counting(policies, direction, tiers.doubtful):
            if self._miss(rule, direction, peer):
                continue
            text = tier_rule_text(policy, direction, number)
            if rule.action == "Pass":
                passed.append(f"{text} passes it on")
                return
            outcome: Outcome = "allowed" if rule.action == "Accept" else "denied"
            reasons = (*passed, *_caveats(policy, policy.key in tiers.doubtful))
            yield Finding(direction=direction, outcome=outcome, decided_by=text, reasons=reasons)

    def _network_policies(self, direction: Direction, subject: Subject, peer: Address, near: str) -> Iterator[Finding]:
        isolating = subject.verdicts.policies(direction)
        if isolating is None:
            yield Finding(direction=direction, outcome="not isolated")
        elif near:
            names = tuple(map(policy_text, isolating))
            yield Finding(direction=direction, outcome="allowed", isolated_by=names, reasons=(near,))
        elif not isolating:
            unknown = f"the labels of {subject.pod} are not known yet, so every policy of its namespace counts"
            yield Finding(direction=direction, outcome="denied", reasons=(unknown,))
        else:
            yield self._judged(direction, isolating, peer)

    def _judged(self, direction: Direction, isolating: tuple[PolicyKey, ...], peer: Address) -> Finding:
        names = tuple(map(policy_text, isolating))
        reasons = []
        for key in isolating:
            rules = self.compiled.policies[key].rules(direction) or ()
            if closed := self.compiled.policies[key].closed:
                reasons.append(f"{policy_text(key)}: is refused, so it isolates and allows nothing: {closed}")
            elif not rules:
                reasons.append(f"{policy_text(key)}: has no {direction} rules")
            for number, rule in enumerate(rules):
                where = f"{policy_text(key)} {direction}[{number}]"
                miss = self._miss(rule, direction, peer)
                if not miss:
                    text = f"{where} ({rule_text(rule, direction)})"
                    return Finding(direction=direction, outcome="allowed", isolated_by=names, allowed_by=text)
                reasons.append(f"{where}: {miss}")
        return Finding(direction=direction, outcome="denied", isolated_by=names, reasons=tuple(reasons))

    def _miss(self, rule: Rule, direction: Direction, peer: Address) -> str:
        """Why the rule does not let the packet through; empty if it does."""
        if not self._means(rule, peer):
            return f"{peer} is not among {peers_text(rule.peers)}"
        if rule.any_port or self._numbered(rule) or self._named(rule, direction):
            return ""
        if self.port is None:
            return f"{self.protocol} passes only rules without ports, this one has {ports_text(rule)}"
        return f"{self.port}/{self.protocol} is not among {ports_text(rule)}"

    def _means(self, rule: Rule, peer: Address) -> bool:
        return (
            rule.peers.anywhere
            or any(peer in self.compiled.groups[group] for group in rule.peers.groups)
            or any(peer in block for block in rule.peers.blocks)
        )

    def _numbered(self, rule: Rule) -> bool:
        return self.port is not None and any(
            ports.protocol == self.protocol and ports.first <= self.port <= ports.last for ports in rule.ports
        )

    def _named(self, rule: Rule, direction: Direction) -> bool:
        if self.port is None:
            return False
        for group, named in named_audiences(rule, direction):
            at = self.destination.interface if group is None else ip_address(self.destination.address)
            if named.protocol == self.protocol and (at, self.port) in self.compiled.named[group, named]:
                return True
        return False


def _caveats(policy: CompiledPolicy, in_doubt: bool) -> Iterator[str]:
    if policy.closed:
        yield f"{policy_text(policy.key)} is refused and denies what its subject means: {policy.closed}"
    if in_doubt:
        yield "the pod's labels are not known yet, so what may mean it counts where it denies"
