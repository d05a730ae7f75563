"""Why a packet passes or not, from the compiled form that is in the kernel.

`evaluate` follows one packet the way the rules do: out of its source pod (egress), then into its destination pod
(ingress), each only where that pod is on this node; subjects are known by interface, peers by address.  `why` finds
out which packets a question in words is about, `describe` lists what applies to a pod.  All results are plain values,
ready for JSON; `str()` of them is for people.
"""

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from typing import Literal, NamedTuple

import msgspec

from flock.core.errors import FieldError
from flock.core.policy.compiled import Address, Compiled, Direction, PolicyKey, Rule, named_audiences
from flock.core.policy.index import PolicyIndex
from flock.core.policy.wording import peers_text, policy_text, ports_text, rule_text

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
    reasons: tuple[str, ...] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Literal["allow", "deny"]
    source: Party
    destination: Party
    protocol: str
    port: int | None
    egress: Finding
    ingress: Finding

    def __str__(self) -> str:
        what = self.protocol if self.port is None else f"{self.port}/{self.protocol}"
        lines = [f"{self.verdict}: {self.source} → {self.destination} {what}"]
        for finding in (self.egress, self.ingress):
            by = f", isolated by {', '.join(finding.isolated_by)}" if finding.isolated_by else ""
            allowed = f" by {finding.allowed_by}" if finding.allowed_by else ""
            lines.append(f"  {finding.direction + ':':<9}{finding.outcome}{allowed}{by}")
            lines += (f"           {reason}" for reason in finding.reasons)
        return "\n".join(lines)


class PolicyRules(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    strict: bool
    rules: tuple[str, ...]
    refused: str = ""  # why its latest version is
    closed: bool = False  # it has no good one, so it allows nothing; else the last good one is in force

    def __str__(self) -> str:
        strict = " (strict)" if self.strict else ""
        told = "for it is refused" if self.closed else "as it last was good; now it is refused"
        refused = f", {told}: {self.refused}" if self.refused else ""
        return f"{self.policy}{strict}: {'; '.join(self.rules) or 'nothing'}{refused}"


class PodPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """What applies to a pod of this node; a direction is None where it is not isolated."""

    pod: str
    interface: str
    addresses: tuple[str, ...]
    labels: dict[str, str] | None  # None: not known yet, so it is allowed nothing
    ingress: tuple[PolicyRules, ...] | None
    egress: tuple[PolicyRules, ...] | None

    def __str__(self) -> str:
        labels = "not known yet" if self.labels is None else ",".join(f"{k}={v}" for k, v in self.labels.items())
        lines = [f"{self.pod} on {self.interface}, {', '.join(self.addresses)}", f"  labels:  {labels or 'none'}"]
        for direction, policies in (("ingress", self.ingress), ("egress", self.egress)):
            if policies is None:
                lines.append(f"  {direction + ':':<9}not isolated, everything passes")
                continue
            lines.append(f"  {direction + ':':<9}isolated, this passes:" if policies else f"  {direction}: isolated")
            lines += (f"    {policy}" for policy in policies)
        return "\n".join(lines)


# --- one packet ---------------------------------------------------------------------------------------------


def evaluate(
    compiled: Compiled,
    *,
    source: Party,
    destination: Party,
    protocol: str,
    port: int | None,
    node_addresses: Collection[Address] = (),
) -> Explanation:
    """`protocol` TCP, UDP and SCTP have a port; anything else (ICMP) has none.  Traffic with one of
    this node's own addresses (`node_addresses`) is not filtered."""
    packet = _Packet(compiled, source, destination, protocol, port, node_addresses)
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

    def finding(self, direction: Direction) -> Finding:
        ends = (self.source, self.destination)
        own, other = ends if direction == "egress" else ends[::-1]  # whose policies, and who is the peer
        subject = self.compiled.subjects.get(own.interface)
        if subject is None:
            why = "is on another node, which decides" if own.pod else "is no pod"
            return Finding(direction=direction, outcome="not decided here", reasons=(f"{own} {why}",))
        isolating = subject.verdicts.policies(direction)
        if isolating is None:
            return Finding(direction=direction, outcome="not isolated")
        names = tuple(map(policy_text, isolating))
        passing = "a pod reaches itself" if own.interface == other.interface else ""
        if ip_address(other.address) in self.node_addresses:
            passing = "a pod and its own node reach each other"
        if passing:
            return Finding(direction=direction, outcome="allowed", isolated_by=names, reasons=(passing,))
        if not isolating:
            unknown = f"the labels of {subject.pod} are not known yet, so every policy of its namespace counts"
            return Finding(direction=direction, outcome="denied", reasons=(unknown,))
        return self._judged(direction, isolating, ip_address(other.address))

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


# --- questions in words -------------------------------------------------------------------------------------


def why(
    index: PolicyIndex,
    *,
    source: str,
    destination: str,
    protocol: str,
    port: int | None,
    node_addresses: Collection[Address] = (),
) -> tuple[Explanation, ...]:
    """`source`, `destination`: `namespace/name` of a pod, or an address.  One answer per family both ends have."""
    sources, destinations = _parties(index, source, field="source"), _parties(index, destination, field="destination")
    pairs = [(s, d) for s in sources for d in destinations if (":" in s.address) == (":" in d.address)]
    if not pairs:
        raise FieldError("destination", f"{destination} has no address of the family of {source}")
    compiled = index.compiled
    return tuple(
        evaluate(compiled, source=s, destination=d, protocol=protocol, port=port, node_addresses=node_addresses)
        for s, d in pairs
    )


def parse_port(text: str) -> tuple[str, int | None]:
    """`80/TCP`, `80` (TCP) or a protocol without ports such as `icmp` → protocol and port."""
    number, slash, protocol = text.partition("/")
    if not slash and not number.isdecimal():
        return number.upper(), None
    if protocol.upper() not in ("TCP", "UDP", "SCTP", "") or not number.isdecimal() or not 0 < int(number) < 65536:
        raise FieldError("port", f"{text!r} is not of the form 80/TCP")
    return protocol.upper() or "TCP", int(number)


def describe(index: PolicyIndex, pod: str) -> tuple[PodPolicies, ...]:
    """What applies to a pod of this node; two answers for a moment while it gets a new sandbox."""
    compiled = index.compiled
    found = []
    for interface, subject in sorted(compiled.subjects.items()):
        if subject.pod != pod:
            continue
        labels = index.locals[interface].labels
        found.append(
            PodPolicies(
                pod=pod,
                interface=interface,
                addresses=tuple(map(str, subject.addresses)),
                labels=None if labels is None else dict(sorted(labels.items())),
                ingress=_listed(compiled, subject.verdicts.ingress, "ingress", index.problems),
                egress=_listed(compiled, subject.verdicts.egress, "egress", index.problems),
            )
        )
    if not found:
        raise FieldError("pod", f"{pod} is no pod of this node")
    return tuple(found)


def _listed(
    compiled: Compiled, keys: tuple[PolicyKey, ...] | None, direction: Direction, problems: Mapping[PolicyKey, str]
) -> tuple[PolicyRules, ...] | None:
    if keys is None:
        return None
    policies = (compiled.policies[key] for key in keys)
    return tuple(
        PolicyRules(
            policy=policy_text(policy.key),
            strict=policy.strict,
            rules=tuple(rule_text(rule, direction) for rule in policy.rules(direction) or ()),
            refused=problems.get(policy.key, ""),
            closed=bool(policy.closed),
        )
        for policy in policies
    )


def _parties(index: PolicyIndex, text: str, *, field: str) -> list[Party]:
    if "/" not in text:
        try:
            return [_holder(index, ip_address(text))]
        except ValueError:
            raise FieldError(field, f"{text!r} is neither an address nor a pod as namespace/name") from None
    for interface, local in index.locals.items():
        if local.pod.pod == text:
            return _per_family(local.pod.addresses, interface=interface, pod=text)
    namespace, _, name = text.partition("/")
    facts = index.pods.get((namespace, name))
    if facts is None or not facts.addresses:
        raise FieldError(
            field, f"pod {text} is not known here; give its address" if facts is None else f"pod {text} has no address"
        )
    return _per_family(facts.addresses, pod=text)


def _per_family(addresses: Collection[Address], *, pod: str, interface: str = "") -> list[Party]:
    """The first, primary, address of each family."""
    first = {address.version: str(address) for address in reversed(tuple(addresses))}
    return [Party(address=address, interface=interface, pod=pod) for _, address in sorted(first.items())]


def _holder(index: PolicyIndex, address: Address) -> Party:
    """Who has the address; of several pods that share it, one of this node."""
    for interface, local in index.locals.items():
        if address in local.pod.addresses:
            return Party(address=str(address), interface=interface, pod=local.pod.pod)
    for (namespace, name), facts in index.pods.items():
        if facts.takes_part and address in facts.addresses:
            return Party(address=str(address), pod=f"{namespace}/{name}")
    return Party(address=str(address))
