"""One NetworkPolicy object → its rules in compiled form, with the API's own defaults and checks.

Rules depend on nothing but their policy, so they are compiled here once and for all: selectors of peers become group
ids (equal selectors, equal ids), blocks become disjoint networks, numbers disjoint ranges.

A policy that is refused has a closed form: it isolates what it would have, and allows nothing.  What cannot be read
counts as the most it could mean: every pod of the namespace, both directions, strict.

Defaults that matter: no `policyTypes` means Ingress, and Egress too if there are egress rules; no or empty `from`,
`to` or `ports` in a rule means all; no `protocol` means TCP; null is the same as absent; no `podSelector` selects all.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, get_args

import msgspec

from flock.core.model import REFUSED
from flock.core.policy.blocks import Block, parse_cidr, united
from flock.core.policy.budget import POLICY_SETS, sets
from flock.core.policy.compiled import (
    CompiledPolicy,
    Direction,
    GroupId,
    NamedPort,
    Peers,
    PolicyKey,
    PortRange,
    Protocol,
    Rule,
)
from flock.core.policy.reading import (
    EVERYTHING,
    Flags,
    PeerSelector,
    PolicyError,
    Reading,
    merged,
    policy_key,
    port_name,
    port_number,
)
from flock.core.selectors import LabelSelector

PROTOCOLS: tuple[str, ...] = get_args(Protocol)


class ParsedPolicy(msgspec.Struct, frozen=True):
    """`selector` chooses the subjects in the policy's namespace; `groups` has every group its rules name."""

    key: PolicyKey
    selector: LabelSelector
    compiled: CompiledPolicy
    groups: Mapping[GroupId, PeerSelector]


def read_policy(obj: Mapping[str, Any]) -> ParsedPolicy:
    """The policy, or the closed form of one that is refused: whatever raises a PolicyError here closes it."""
    try:
        return parse_policy(obj)
    except PolicyError as error:
        reason = error.reason
    except Exception as error:  # a mistake of ours must not open this policy's pods, nor hold up other policies
        reason = f"internal error: {error!r:.200}"
    return _Reader(policy_key(obj)).closed(obj, reason)


def parse_policy(obj: Mapping[str, Any]) -> ParsedPolicy:
    """Raises PolicyError for the first thing that is wrong."""
    return _Reader(policy_key(obj)).policy(obj)


class _Reader(Reading):
    def __init__(self, key: PolicyKey) -> None:
        super().__init__("NetworkPolicy", key)

    def policy(self, obj: Mapping[str, Any]) -> ParsedPolicy:
        if refusal := obj.get(REFUSED):
            raise self.wrong("", str(refusal))
        flags = self.flags(self.metadata(obj))
        spec = self.mapping(obj.get("spec"), "spec")
        selector = self.selector(spec.get("podSelector"), "spec.podSelector")
        rules = {direction: self._rules(spec, direction) for direction in get_args(Direction)}
        isolates = self._types(spec, has_egress=bool(rules["egress"]))
        compiled = CompiledPolicy(
            key=self.key,
            ingress=rules["ingress"] if "Ingress" in isolates else None,
            egress=rules["egress"] if "Egress" in isolates else None,
            strict=flags.strict,
            audited=flags.audited,
        )
        if (needed := sets(compiled)) > POLICY_SETS:
            each = "2 for a selector, 1 for a port name in ingress, 2 for a port name with a selector in egress"
            raise self.wrong("spec", f"needs {needed} sets in the kernel, more than {POLICY_SETS}: {each}")
        used = {g for rule in (*(compiled.ingress or ()), *(compiled.egress or ())) for g in rule.peers.groups}
        return ParsedPolicy(self.key, selector, compiled, {g: s for g, s in self.groups.items() if g in used})

    def closed(self, obj: Mapping[str, Any], reason: str) -> ParsedPolicy:
        spec, metadata = obj.get("spec"), obj.get("metadata")
        selector, isolates, flags = EVERYTHING, ["Ingress", "Egress"], Flags(strict=True)
        if isinstance(spec, Mapping):
            with suppress(PolicyError):
                selector = self.selector(spec.get("podSelector"), "spec.podSelector")
            with suppress(PolicyError):
                isolates = list(self._types(spec, has_egress=bool(spec.get("egress"))))
        with suppress(PolicyError):
            flags = self.flags(self.mapping(metadata, "metadata"))
        compiled = CompiledPolicy(
            key=self.key,
            ingress=() if "Ingress" in isolates else None,
            egress=() if "Egress" in isolates else None,
            closed=reason,
            strict=flags.strict,
            audited=flags.audited,
        )
        return ParsedPolicy(self.key, selector, compiled, {})

    def _types(self, spec: Mapping[str, Any], *, has_egress: bool) -> Sequence[str]:
        types = list(self.entries(spec, "policyTypes", "spec"))
        if len(types) > 2:
            raise self.wrong("spec.policyTypes", "may not have more than two entries")
        for at, value in types:
            if value not in ("Ingress", "Egress"):
                raise self.wrong(at, f"{value!r:.80} is neither Ingress nor Egress")
        return [value for _, value in types] or (["Ingress", "Egress"] if has_egress else ["Ingress"])

    # --- rules ---------------------------------------------------------------------------------------------

    def _rules(self, spec: Mapping[str, Any], direction: Direction) -> tuple[Rule, ...]:
        peers_field = "from" if direction == "ingress" else "to"
        found = []
        for at, raw in self.entries(spec, direction, "spec"):
            rule = self.mapping(raw, at, null=False)
            peers = self._peers(self.entries(rule, peers_field, at))
            ports, named, any_port = self._ports(self.entries(rule, "ports", at))
            found.append(Rule(peers=peers, any_port=any_port, ports=ports, named=named))
        return tuple(found)

    def _peers(self, entries: Iterator[tuple[str, Any]]) -> Peers:
        groups: set[GroupId] = set()
        blocks: list[Block] = []
        anywhere = True
        for at, raw in entries:
            anywhere = False
            peer = self.mapping(raw, at, null=False)
            pods, namespaces, block = (peer.get(field) for field in ("podSelector", "namespaceSelector", "ipBlock"))
            if block is not None:
                if pods is not None or namespaces is not None:
                    raise self.wrong(at, "may not have ipBlock together with a selector")
                blocks.append(self._block(self.mapping(block, f"{at}.ipBlock"), f"{at}.ipBlock"))
            elif pods is None and namespaces is None:
                raise self.wrong(at, "must have podSelector, namespaceSelector or ipBlock")
            else:
                groups.add(self._pods(pods, namespaces, at))
        return Peers(anywhere=anywhere, groups=tuple(sorted(groups)), blocks=united(blocks))

    def _pods(self, pods: Any, namespaces: Any, at: str) -> GroupId:
        chosen = None if namespaces is None else self.selector(namespaces, f"{at}.namespaceSelector")
        return self.group(chosen, self.selector(pods, f"{at}.podSelector"))

    def _block(self, block: Mapping[str, Any], at: str) -> Block:
        network = self.checked(f"{at}.cidr", parse_cidr, block.get("cidr"))
        exceptions = []
        for where, raw in self.entries(block, "except", at):
            exception = self.checked(where, parse_cidr, raw)
            inside = exception.version == network.version and exception.subnet_of(network)  # type: ignore[arg-type]
            if not inside or exception == network:
                raise self.wrong(where, f"{raw} is not a part of {network}")
            exceptions.append(exception)
        return Block(network, tuple(exceptions))

    def _ports(self, entries: Iterator[tuple[str, Any]]) -> tuple[tuple[PortRange, ...], tuple[NamedPort, ...], bool]:
        numbers: list[PortRange] = []
        named: set[NamedPort] = set()
        any_port = True
        for at, raw in entries:
            any_port = False
            port = self._port(self.mapping(raw, at, null=False), at)
            if isinstance(port, NamedPort):
                named.add(port)
            else:
                numbers.append(port)
        return merged(numbers), tuple(sorted(named)), any_port

    def _port(self, entry: Mapping[str, Any], at: str) -> PortRange | NamedPort:
        protocol = self.checked(f"{at}.protocol", _protocol, entry.get("protocol"))
        port, end = entry.get("port"), entry.get("endPort")
        if end is not None and (port is None or isinstance(port, str)):
            raise self.wrong(f"{at}.endPort", "needs a port, and that a number")
        if port is None:
            return PortRange(protocol, 0, 65535)
        if isinstance(port, str):
            return NamedPort(self.checked(f"{at}.port", port_name, port), protocol)
        first = self.checked(f"{at}.port", port_number, port)
        last = first if end is None else self.checked(f"{at}.endPort", port_number, end)
        if last < first:
            raise self.wrong(f"{at}.endPort", f"{last} is below port {first}")
        return PortRange(protocol, first, last)


def _protocol(value: Any) -> Protocol:
    if value is None:
        return "TCP"
    if value not in PROTOCOLS:
        raise ValueError(f"{value!r:.80} is none of {', '.join(PROTOCOLS)}")
    return value  # type: ignore[no-any-return]
