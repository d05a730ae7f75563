"""One ClusterNetworkPolicy object → its rules in compiled form, with the API's own defaults and checks.

The cluster's administrator writes them, above NetworkPolicy (tier Admin) or below it (Baseline).  A rule accepts,
denies or passes; nobody is isolated by being a subject.

**What we do not know fails closed, rule by rule.**  A peer or a protocol without a field we know (a newer schema,
`domainNames`): an Accept matches nothing, a Deny or a Pass denies everything in its direction.  A policy that cannot
be read at all and never could denies all of what its subject means, in its place if that can be read; where not even
the subject can be read, nothing: one unreadable policy must not take the cluster down.  `limits` names what is closed.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, get_args

import msgspec

from flock.core.model import REFUSED
from flock.core.policy.blocks import Block, parse_cidr, united
from flock.core.policy.compiled import (
    DENY_ALL,
    Action,
    CompiledPolicy,
    Direction,
    GroupId,
    NamedPort,
    Network,
    Peers,
    PolicyKey,
    PortRange,
    Protocol,
    Rule,
    Tier,
)
from flock.core.policy.reading import (
    EVERYTHING,
    Flags,
    PeerSelector,
    PolicyError,
    Reading,
    merged,
    port_name,
    port_number,
)

PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
TIERS: tuple[Tier, ...] = get_args(Tier)
ACTIONS: tuple[Action, ...] = get_args(Action)
MOST = 25  # rules of a direction, peers, protocols and networks: the API's bound
LONGEST = 43  # characters of a network: likewise
LAST_PRIORITY = 1000
BEFORE_ALL: tuple[Tier, int] = ("Admin", -1)  # the place of a policy that does not tell its own
LONGEST_NAME = 100
KNOWN_PROTOCOLS = ("tcp", "udp", "sctp", "destinationNamedPort")
KNOWN_PEERS = {"ingress": ("namespaces", "pods"), "egress": ("namespaces", "pods", "networks", "nodes")}


class ParsedClusterPolicy(msgspec.Struct, frozen=True):
    """`subject` None: it cannot be read, and nobody is meant."""

    key: PolicyKey
    compiled: CompiledPolicy
    subject: PeerSelector | None
    groups: Mapping[GroupId, PeerSelector]
    limits: tuple[str, ...] = ()  # what fails closed though the policy is in force


class _UnknownError(Exception):
    """Nobody here knows whom or what the rule is about."""


def read_cluster_policy(obj: Mapping[str, Any]) -> ParsedClusterPolicy:
    """The policy, or the closed form of one that is refused."""
    try:
        return parse_cluster_policy(obj)
    except PolicyError as error:
        reason = error.reason
    except Exception as error:  # a mistake of ours must not hold up other policies
        reason = f"internal error: {error!r:.200}"
    return _Reader(_name(obj)).closed(obj, reason)


def parse_cluster_policy(obj: Mapping[str, Any]) -> ParsedClusterPolicy:
    """Raises PolicyError for the first thing that is wrong."""
    return _Reader(_name(obj)).policy(obj)


def _name(obj: Mapping[str, Any]) -> str:
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) and name else "?"


class _Reader(Reading):
    def __init__(self, name: str) -> None:
        super().__init__("ClusterNetworkPolicy", ("", name))
        self._limits: list[str] = []

    def policy(self, obj: Mapping[str, Any]) -> ParsedClusterPolicy:
        if refusal := obj.get(REFUSED):
            raise self.wrong("", str(refusal))
        flags = self.flags(self.metadata(obj))
        spec = self.mapping(obj.get("spec"), "spec")
        tier, priority = self._place(spec)
        compiled = CompiledPolicy(
            key=self.key,
            tier=tier,
            priority=priority,
            strict=flags.strict,
            audited=flags.audited,
            ingress=self._rules(spec, "ingress"),
            egress=self._rules(spec, "egress"),
        )
        subject = self._subject(spec)
        return ParsedClusterPolicy(self.key, compiled, subject, self.groups, tuple(self._limits))

    def closed(self, obj: Mapping[str, Any], reason: str) -> ParsedClusterPolicy:
        """Denies what its subject means; as much of the rest as can be read counts."""
        spec, subject = obj.get("spec"), None
        place, flags = BEFORE_ALL, Flags()
        spec = spec if isinstance(spec, Mapping) else {}
        with suppress(PolicyError):
            subject = self._subject(spec)
        with suppress(PolicyError):
            place = self._place(spec)
        with suppress(PolicyError):
            flags = self.flags(self.mapping(obj.get("metadata"), "metadata"))
        compiled = CompiledPolicy(
            key=self.key,
            tier=place[0],
            priority=place[1],
            closed=reason,
            ingress=(DENY_ALL,),
            egress=(DENY_ALL,),
            strict=flags.strict,
            audited=flags.audited,
        )
        return ParsedClusterPolicy(self.key, compiled, subject, {})

    def _place(self, spec: Mapping[str, Any]) -> tuple[Tier, int]:
        tier = spec.get("tier")
        if tier not in TIERS:
            raise self.wrong("spec.tier", f"{tier!r:.80} is neither Admin nor Baseline")
        return tier, self.checked("spec.priority", _priority, spec.get("priority"))

    def _subject(self, spec: Mapping[str, Any]) -> PeerSelector:
        at = "spec.subject"
        subject = self.mapping(spec.get("subject"), at, null=False)
        field = self._only(subject, ("namespaces", "pods"), at)
        return self._chosen(subject[field], field, f"{at}.{field}")

    def _chosen(self, raw: Any, field: str, at: str) -> PeerSelector:
        """Pods, be it all of some namespaces or some of them."""
        if field == "namespaces":
            return PeerSelector(self.selector(self.mapping(raw, at, null=False), at), EVERYTHING)
        pods = self.mapping(raw, at, null=False)
        if pods.get("podSelector") is None:
            raise self.wrong(f"{at}.podSelector", "is required")
        return PeerSelector(
            self.selector(pods.get("namespaceSelector"), f"{at}.namespaceSelector"),
            self.selector(pods["podSelector"], f"{at}.podSelector"),
        )

    def _only(self, parent: Mapping[str, Any], fields: tuple[str, ...], at: str) -> str:
        """The one of the fields that is there."""
        there = [field for field in fields if parent.get(field) is not None]
        if len(there) != 1:
            raise self.wrong(at, f"must have exactly one of {', '.join(fields)}")
        return there[0]

    def _known(self, parent: Mapping[str, Any], fields: tuple[str, ...], at: str) -> Mapping[str, Any]:
        if any(parent.get(field) is not None for field in fields):
            return parent
        raise _UnknownError(f"{at}: the rule has what flock does not know ({', '.join(map(str, parent)) or '{}':.80})")

    # --- rules ---------------------------------------------------------------------------------------------

    def _rules(self, spec: Mapping[str, Any], direction: Direction) -> tuple[Rule, ...] | None:
        return tuple(self._rule(raw, at, direction) for at, raw in self._bounded(spec, direction, "spec")) or None

    def _rule(self, raw: Any, at: str, direction: Direction) -> Rule:
        rule = self.mapping(raw, at, null=False)
        action, name = rule.get("action"), rule.get("name")
        name = "" if name is None else name
        if action not in ACTIONS:
            raise self.wrong(f"{at}.action", f"{action!r:.80} is none of {', '.join(ACTIONS)}")
        if not isinstance(name, str) or len(name) > LONGEST_NAME:
            raise self.wrong(f"{at}.name", f"must be a text of at most {LONGEST_NAME} characters")
        peers_field = "from" if direction == "ingress" else "to"
        entries = list(self._bounded(rule, peers_field, at))
        if not entries:
            raise self.wrong(f"{at}.{peers_field}", "must have at least one entry")
        try:
            if more := [
                str(f) for f in rule if f not in ("action", "name", peers_field, "protocols") and rule[f] is not None
            ]:
                raise _UnknownError(f"{at}.{more[0]:.80}: the rule has what flock does not know")
            ports, named, any_port = self._protocols(rule, at)
            peers = self._peers(entries, direction, suspects=action == "Deny")
        except _UnknownError as unknown:
            rest = "it matches nothing" if action == "Accept" else f"it denies all {direction}"
            self._limits.append(f"{unknown}, so {rest}")
            return msgspec.structs.replace(NOTHING if action == "Accept" else DENY_ALL, name=name)
        return Rule(peers, any_port, ports, named, action, name)

    def _peers(self, entries: list[tuple[str, Any]], direction: Direction, *, suspects: bool) -> Peers:
        groups: set[GroupId] = set()
        blocks: list[Block] = []
        for at, raw in entries:
            peer = self.mapping(raw, at, null=False)
            field = self._only(self._known(peer, KNOWN_PEERS[direction], at), KNOWN_PEERS[direction], at)
            if field == "networks":
                blocks += self._networks(peer, at)
            elif field == "nodes":
                groups.add(self.nodes(self.selector(self.mapping(peer[field], at), f"{at}.nodes")))
            else:
                chosen = self._chosen(peer[field], field, f"{at}.{field}")
                groups.add(self.group(chosen.namespaces, chosen.pods, suspects=suspects))
        return Peers(groups=tuple(sorted(groups)), blocks=united(blocks))

    def _networks(self, peer: Mapping[str, Any], at: str) -> Iterator[Block]:
        entries = list(self._bounded(peer, "networks", at))
        if not entries:
            raise self.wrong(f"{at}.networks", "must have at least one entry")
        return (Block(self.checked(where, _network, raw)) for where, raw in entries)

    def _protocols(self, rule: Mapping[str, Any], at: str) -> tuple[tuple[PortRange, ...], tuple[NamedPort, ...], bool]:
        numbers: list[PortRange] = []
        named: set[NamedPort] = set()
        entries = list(self._bounded(rule, "protocols", at))
        if rule.get("protocols") is not None and not entries:
            raise self.wrong(f"{at}.protocols", "must have at least one entry, or be absent for every protocol")
        for where, raw in entries:
            entry = self.mapping(raw, where, null=False)
            field = self._only(self._known(entry, KNOWN_PROTOCOLS, where), KNOWN_PROTOCOLS, where)
            if field == "destinationNamedPort":
                name = self.checked(f"{where}.{field}", port_name, entry[field])
                named.update(NamedPort(name, protocol) for protocol in PROTOCOLS)
            else:
                numbers.append(self._numbers(entry[field], field.upper(), f"{where}.{field}"))  # type: ignore[arg-type]
        return merged(numbers), tuple(sorted(named)), not entries

    def _numbers(self, raw: Any, protocol: Protocol, at: str) -> PortRange:
        port, at = self.mapping(raw, at, null=False).get("destinationPort"), f"{at}.destinationPort"
        if port is None:
            return PortRange(protocol, 0, 65535)
        port = self.mapping(port, at)
        if self._only(port, ("number", "range"), at) == "number":
            number = self.checked(f"{at}.number", port_number, port["number"])
            return PortRange(protocol, number, number)
        range_ = self.mapping(port["range"], f"{at}.range")
        first, last = (self.checked(f"{at}.range.{f}", port_number, range_.get(f)) for f in ("start", "end"))
        if last <= first:
            raise self.wrong(f"{at}.range.end", f"{last} is not above start {first}")
        return PortRange(protocol, first, last)

    def _bounded(self, parent: Mapping[str, Any], field: str, path: str) -> Iterator[tuple[str, Any]]:
        value = parent.get(field)
        if isinstance(value, list | tuple) and len(value) > MOST:
            raise self.wrong(f"{path}.{field}", f"has {len(value)} entries, more than {MOST}")
        return self.entries(parent, field, path)


NOTHING = Rule(Peers(), any_port=True)


def _priority(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LAST_PRIORITY:
        raise ValueError(f"{value!r:.80} is no number from 0 to {LAST_PRIORITY}")
    return value


def _network(text: object) -> Network:
    if isinstance(text, str) and len(text) > LONGEST:
        raise ValueError(f"is longer than {LONGEST} characters: an IPv6 network is written as 2001:db8::/32")
    return parse_cidr(text)
