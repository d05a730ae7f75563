"""Questions about policies, in words: `why` finds out which packets one is about (`judging` says what becomes of them),
`describe` lists what applies to a pod.  Results are plain values, ready for JSON; `str()` of them is for people.
"""

from collections.abc import Collection, Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Literal

import msgspec
from msgspec.structs import replace

from flock.core.errors import FieldError, in_one_line
from flock.core.policy.addresses import is_nodes, no_source, plain, unreachable
from flock.core.policy.compiled import (
    DIRECTIONS,
    Address,
    Audit,
    Compiled,
    Direction,
    PolicyKey,
    Verdicts,
    as_audited,
    counting,
)
from flock.core.policy.index import PolicyIndex
from flock.core.policy.judging import Explanation, Finding, Outcome, Party, evaluate
from flock.core.policy.wording import policy_text, rule_text, tier_rule_text

_WITH_PORTS = ("TCP", "UDP", "SCTP")
_WITHOUT_PORTS = ("ICMP", "ICMPV6", "OSPF", "IGMP", "GRE", "ESP", "AH", "IPIP", "VRRP", "PIM")


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
    # Rules of ClusterNetworkPolicies, in the order they are asked: before these, and where these do not isolate it.
    admin_ingress: tuple[str, ...] = ()
    admin_egress: tuple[str, ...] = ()
    baseline_ingress: tuple[str, ...] = ()
    baseline_egress: tuple[str, ...] = ()
    # What of audited policies would apply.
    audited_ingress: tuple[str, ...] = ()
    audited_egress: tuple[str, ...] = ()

    def __str__(self) -> str:
        labels = "not known yet" if self.labels is None else ",".join(f"{k}={v}" for k, v in self.labels.items())
        told = in_one_line(labels) or "none"
        lines = [f"{self.pod} on {self.interface}, {', '.join(self.addresses)}", f"  labels:  {told}"]
        return "\n".join(
            (
                *lines,
                *self._direction("ingress", self.admin_ingress, self.ingress, self.baseline_ingress),
                *_only_audited(self.audited_ingress),
                *self._direction("egress", self.admin_egress, self.egress, self.baseline_egress),
                *_only_audited(self.audited_egress),
            )
        )

    def _direction(
        self,
        direction: str,
        admin: tuple[str, ...],
        policies: tuple[PolicyRules, ...] | None,
        baseline: tuple[str, ...],
    ) -> Iterator[str]:
        head = f"  {direction + ':':<9}"
        if admin:
            yield f"{head}first of these that fits:"
            yield from (f"    {rule}" for rule in admin)
            head = " " * len(head)
        if policies is not None:
            yield f"{head}isolated, this passes:" if policies else f"{head.rstrip()} isolated"
            yield from (f"    {policy}" for policy in policies)
        elif baseline:
            yield f"{head}not isolated, first of these that fits, else it passes:"
            yield from (f"    {rule}" for rule in baseline)
        else:
            yield f"{head}not isolated, everything passes"


def _only_audited(texts: tuple[str, ...]) -> Iterator[str]:
    if texts:
        yield "           audited, not in force:"
    yield from (f"    {text}" for text in texts)


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
    node_addresses = frozenset(node_addresses)
    sources, destinations = _parties(index, source, field="source"), _parties(index, destination, field="destination")
    pairs = [(s, d) for s in sources for d in destinations if (":" in s.address) == (":" in d.address)]
    if not pairs:
        raise FieldError("destination", f"{destination} has no address of the family of {source}")

    def judged(compiled: Compiled, s: Party, d: Party) -> Explanation:
        own = node_addresses | {a for a in map(ip_address, (s.address, d.address)) if is_nodes(a)}
        return evaluate(compiled, source=s, destination=d, protocol=protocol, port=port, node_addresses=own)

    found = []
    for s, d in pairs:
        if settled := _settled(s, d, protocol=protocol, port=port):
            found.append(settled)
            continue
        would = as_audited(index.compiled, (s.interface, d.interface))
        answer = judged(index.compiled, s, d)
        found.append(replace(answer, audited=judged(would, s, d)) if would else answer)
    return tuple(found)


def _settled(source: Party, destination: Party, *, protocol: str, port: int | None) -> Explanation | None:
    """What becomes of it where no policy is asked."""
    ends = ip_address(source.address), ip_address(destination.address)
    if why_not := no_source(ends[0]):
        raise FieldError("source", why_not)
    if ends[1].is_unspecified:
        raise FieldError("destination", f"{ends[1]} is nobody's address")
    itself = source.interface and source.interface == destination.interface  # to its own link-local address, too
    if not itself and (why_not := unreachable(*ends)):
        return _unasked(source, destination, protocol, port, verdict="deny", why=why_not)
    if ends[1].is_loopback:
        own = f"{ends[1]} is each host's own: what is sent there does not leave it"
        return _unasked(source, destination, protocol, port, verdict="allow", why=own)
    return None


def _unasked(
    source: Party, destination: Party, protocol: str, port: int | None, *, verdict: Literal["allow", "deny"], why: str
) -> Explanation:
    outcome: Outcome = "denied" if verdict == "deny" else "allowed"
    return Explanation(
        verdict=verdict,
        source=source,
        destination=destination,
        protocol=protocol,
        port=port,
        egress=Finding(direction="egress", outcome=outcome, reasons=(why,)),
        ingress=Finding(direction="ingress", outcome="not decided here", reasons=("it does not come that far",)),
    )


def parse_port(text: str) -> tuple[str, int | None]:
    """`80/TCP`, `80` (TCP) or a protocol without ports such as `icmp` → protocol and port."""
    number, slash, protocol = text.partition("/")
    if not slash and number.upper() in _WITHOUT_PORTS:
        return number.upper(), None
    protocol = protocol if slash else "TCP"
    if protocol.upper() not in _WITH_PORTS or not number.isdecimal() or not 0 < int(number[:9]) < 65536:
        raise FieldError("port", f"{text!r} is neither a port such as 80/TCP nor one of {', '.join(_WITHOUT_PORTS)}")
    return protocol.upper(), int(number)


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
                **_tiers(compiled, subject.verdicts),
                **_audited(compiled, subject.audit),
            )
        )
    if not found:
        raise FieldError("pod", f"{pod} is no pod of this node")
    return tuple(found)


def _audited(compiled: Compiled, audit: Audit | None) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {f"audited_{direction}": [] for direction in DIRECTIONS}
    for policy in (compiled.policies[key] for key in (audit.by if audit else ()) if key in compiled.policies):
        for direction in DIRECTIONS:
            rules = policy.rules(direction)
            if policy.tier is None and rules is not None:
                passing = "; ".join(rule_text(rule, direction) for rule in rules) or "nothing"
                found[f"audited_{direction}"].append(f"{policy_text(policy.key)}: {passing}")
            elif policy.tier is not None:
                numbers = range(len(rules or ()))
                found[f"audited_{direction}"] += (tier_rule_text(policy, direction, number) for number in numbers)
    return {direction: tuple(texts) for direction, texts in found.items()}


def _tiers(compiled: Compiled, verdicts: Verdicts) -> dict[str, tuple[str, ...]]:
    found = {}
    for direction in DIRECTIONS:
        tiers = verdicts.tiers(direction)
        for tier, keys in (("admin", tiers.admin), ("baseline", tiers.baseline)):
            rules = counting((compiled.policies[key] for key in keys), direction, tiers.doubtful)
            found[f"{tier}_{direction}"] = tuple(tier_rule_text(p, direction, number) for p, number, _ in rules)
    return found


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
            address = plain(text)
        except ValueError:
            here = {(local.pod.namespace, local.pod.name) for local in index.locals.values()}
            found = sorted(f"{namespace}/{name}" for namespace, name in {*index.pods, *here} if name == text)
            perhaps = f"; there is {', '.join(found[:5])}" if found else ""
            raise FieldError(field, f"{text!r} is neither an address nor a pod as namespace/name{perhaps}") from None
        return [_holder(index, address)]
    if _is_prefix(text):
        raise FieldError(field, f"{text} is a prefix; give an address")
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


def _is_prefix(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def names_of(index: PolicyIndex, addresses: Collection[str]) -> dict[str, str]:
    """The pods that have them, as namespace/name."""
    wanted = set(map(ip_address, filter(None, addresses)))
    found: dict[str, str] = {}
    if wanted:
        for (namespace, name), facts in index.pods.items():
            if facts.takes_part and not wanted.isdisjoint(facts.addresses):
                found |= {str(address): f"{namespace}/{name}" for address in facts.addresses}
        for local in index.locals.values():
            found |= {str(address): local.pod.pod for address in local.pod.addresses}
    return found


def _per_family(addresses: Collection[Address], *, pod: str, interface: str = "") -> list[Party]:
    """The first, primary, address of each family."""
    first = {address.version: str(address) for address in reversed(tuple(addresses))}
    return [Party(address=address, interface=interface, pod=pod) for _, address in sorted(first.items())]


def _holder(index: PolicyIndex, address: Address) -> Party:
    """Who has the address; of several pods that share it, one of this node."""
    for interface, local in index.locals.items():
        if address in local.pod.addresses or address == local.pod.link_local:
            return Party(address=str(address), interface=interface, pod=local.pod.pod)
    for (namespace, name), facts in index.pods.items():
        if facts.takes_part and address in facts.addresses:
            return Party(address=str(address), pod=f"{namespace}/{name}")
    return Party(address=str(address))
