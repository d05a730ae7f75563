"""One NetworkPolicy object → its rules in compiled form, with the API's own defaults and checks.

Rules depend on nothing but their policy, so they are compiled here once and for all: selectors of peers become group
ids (equal selectors, equal ids), blocks become disjoint networks, numbers disjoint ranges.  An API server has checked
all of this before, a manifest file nobody, and neither bounds the size.  Fields we do not know pass, as the API server
drops them.

A policy that is refused has a closed form: it isolates what it would have, and allows nothing.  What cannot be read
counts as the most it could mean: every pod of the namespace, both directions, strict.

Defaults that matter: no `policyTypes` means Ingress, and Egress too if there are egress rules; no or empty `from`,
`to` or `ports` in a rule means all; no `protocol` means TCP; null is the same as absent; no `podSelector` selects all.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, get_args

import msgspec

from flock.core.annotations import BOOLEANS, STRICT
from flock.core.errors import FieldError
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
from flock.core.policy.labels import canonical, selector_text
from flock.core.selectors import LabelSelector

T = TypeVar("T")

PROTOCOLS: tuple[str, ...] = get_args(Protocol)
EVERYTHING = LabelSelector()

# Each entry is at least one set element in the kernel of every node the policy touches.  Real policies have dozens; a
# generator that went wild must not take the others' transaction down with it.
MAX_ENTRIES = 4096  # rules, peers, ports, exceptions and selector terms of one policy together

_PORT_NAME = re.compile(r"(?=.{1,15}\Z)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")  # IANA service name, as the API requires


class PolicyError(FieldError):
    """A NetworkPolicy is refused, for one field of it.  `policy` is its namespace/name, `reason` goes without it."""

    def __init__(self, policy: str, field: str, problem: str) -> None:
        self.reason = f"{field}: {problem}" if field else problem
        super().__init__(f"NetworkPolicy {policy}", self.reason)
        self.policy = policy
        self.field = field


class PeerSelector(msgspec.Struct, frozen=True):
    """What a group id stands for, canonical.  `namespaces` None: the policy's own namespace."""

    namespaces: LabelSelector | None
    pods: LabelSelector


class ParsedPolicy(msgspec.Struct, frozen=True):
    """`selector` chooses the subjects in the policy's namespace; `groups` has every group its rules name."""

    key: PolicyKey
    selector: LabelSelector
    compiled: CompiledPolicy
    groups: Mapping[GroupId, PeerSelector]


def policy_key(obj: Mapping[str, Any]) -> PolicyKey:
    """Namespace and name; what is missing is `default` and `?`."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        return "default", "?"
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return (
        namespace if isinstance(namespace, str) and namespace else "default",
        name if isinstance(name, str) and name else "?",
    )


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


class _Reader:
    """Reads one policy; keeps its name for errors, and counts what it has taken in."""

    def __init__(self, key: PolicyKey) -> None:
        self._key = key
        self._entries = 0
        self._groups: dict[GroupId, PeerSelector] = {}

    def policy(self, obj: Mapping[str, Any]) -> ParsedPolicy:
        if refusal := obj.get(REFUSED):
            raise self._wrong("", str(refusal))
        metadata = self._mapping(obj.get("metadata"), "metadata")
        for field in ("name", "namespace"):
            if not isinstance(metadata.get(field, ""), str | None) or (field == "name" and not metadata.get(field)):
                raise self._wrong(f"metadata.{field}", "must be a text")
        spec = self._mapping(obj.get("spec"), "spec")
        selector = self._selector(spec.get("podSelector"), "spec.podSelector")
        rules = {direction: self._rules(spec, direction) for direction in get_args(Direction)}
        isolates = self._types(spec, has_egress=bool(rules["egress"]))
        compiled = CompiledPolicy(
            key=self._key,
            ingress=rules["ingress"] if "Ingress" in isolates else None,
            egress=rules["egress"] if "Egress" in isolates else None,
            strict=self._strict(metadata),
        )
        if (needed := sets(compiled)) > POLICY_SETS:
            each = "2 for a selector, 1 for a port name in ingress, 2 for a port name with a selector in egress"
            raise self._wrong("spec", f"needs {needed} sets in the kernel, more than {POLICY_SETS}: {each}")
        used = {g for rule in (*(compiled.ingress or ()), *(compiled.egress or ())) for g in rule.peers.groups}
        return ParsedPolicy(self._key, selector, compiled, {g: s for g, s in self._groups.items() if g in used})

    def closed(self, obj: Mapping[str, Any], reason: str) -> ParsedPolicy:
        spec, metadata = obj.get("spec"), obj.get("metadata")
        selector, isolates, strict = EVERYTHING, ["Ingress", "Egress"], True
        if isinstance(spec, Mapping):
            with suppress(PolicyError):
                selector = self._selector(spec.get("podSelector"), "spec.podSelector")
            with suppress(PolicyError):
                isolates = list(self._types(spec, has_egress=bool(spec.get("egress"))))
        with suppress(PolicyError):
            strict = self._strict(self._mapping(metadata, "metadata"))
        compiled = CompiledPolicy(
            key=self._key,
            ingress=() if "Ingress" in isolates else None,
            egress=() if "Egress" in isolates else None,
            strict=strict,
            closed=reason,
        )
        return ParsedPolicy(self._key, selector, compiled, {})

    def _types(self, spec: Mapping[str, Any], *, has_egress: bool) -> Sequence[str]:
        types = list(self._list(spec, "policyTypes", "spec"))
        if len(types) > 2:
            raise self._wrong("spec.policyTypes", "may not have more than two entries")
        for at, value in types:
            if value not in ("Ingress", "Egress"):
                raise self._wrong(at, f"{value!r:.80} is neither Ingress nor Egress")
        return [value for _, value in types] or (["Ingress", "Egress"] if has_egress else ["Ingress"])

    def _strict(self, metadata: Mapping[str, Any]) -> bool:
        at = f"metadata.annotations[{STRICT}]"
        value = self._mapping(metadata.get("annotations"), "metadata.annotations").get(STRICT)
        if value is None:
            return False
        if not isinstance(value, str) or value not in BOOLEANS:
            raise self._wrong(at, f'{value!r:.80} is neither "true" nor "false"')
        return BOOLEANS[value]

    # --- rules ---------------------------------------------------------------------------------------------

    def _rules(self, spec: Mapping[str, Any], direction: Direction) -> tuple[Rule, ...]:
        peers_field = "from" if direction == "ingress" else "to"
        found = []
        for at, raw in self._list(spec, direction, "spec"):
            rule = self._mapping(raw, at, null=False)
            peers = self._peers(self._list(rule, peers_field, at))
            ports, named, any_port = self._ports(self._list(rule, "ports", at))
            found.append(Rule(peers=peers, any_port=any_port, ports=ports, named=named))
        return tuple(found)

    def _peers(self, entries: Iterator[tuple[str, Any]]) -> Peers:
        groups: set[GroupId] = set()
        blocks: list[Block] = []
        anywhere = True
        for at, raw in entries:
            anywhere = False
            peer = self._mapping(raw, at, null=False)
            pods, namespaces, block = (peer.get(field) for field in ("podSelector", "namespaceSelector", "ipBlock"))
            if block is not None:
                if pods is not None or namespaces is not None:
                    raise self._wrong(at, "may not have ipBlock together with a selector")
                blocks.append(self._block(self._mapping(block, f"{at}.ipBlock"), f"{at}.ipBlock"))
            elif pods is None and namespaces is None:
                raise self._wrong(at, "must have podSelector, namespaceSelector or ipBlock")
            else:
                groups.add(self._group(pods, namespaces, at))
        return Peers(anywhere=anywhere, groups=tuple(sorted(groups)), blocks=united(blocks))

    def _group(self, pods: Any, namespaces: Any, at: str) -> GroupId:
        selector = PeerSelector(
            None if namespaces is None else self._selector(namespaces, f"{at}.namespaceSelector"),
            self._selector(pods, f"{at}.podSelector"),
        )
        if selector.namespaces is None:
            group = GroupId(self._key[0], "", selector_text(selector.pods))
        else:
            group = GroupId("", selector_text(selector.namespaces), selector_text(selector.pods))
        self._groups[group] = selector
        return group

    def _block(self, block: Mapping[str, Any], at: str) -> Block:
        network = self._checked(f"{at}.cidr", parse_cidr, block.get("cidr"))
        exceptions = []
        for where, raw in self._list(block, "except", at):
            exception = self._checked(where, parse_cidr, raw)
            inside = exception.version == network.version and exception.subnet_of(network)  # type: ignore[arg-type]
            if not inside or exception == network:
                raise self._wrong(where, f"{raw} is not a part of {network}")
            exceptions.append(exception)
        return Block(network, tuple(exceptions))

    def _ports(self, entries: Iterator[tuple[str, Any]]) -> tuple[tuple[PortRange, ...], tuple[NamedPort, ...], bool]:
        numbers: list[PortRange] = []
        named: set[NamedPort] = set()
        any_port = True
        for at, raw in entries:
            any_port = False
            port = self._port(self._mapping(raw, at, null=False), at)
            if isinstance(port, NamedPort):
                named.add(port)
            else:
                numbers.append(port)
        return _merged(numbers), tuple(sorted(named)), any_port

    def _port(self, entry: Mapping[str, Any], at: str) -> PortRange | NamedPort:
        protocol = self._checked(f"{at}.protocol", _protocol, entry.get("protocol"))
        port, end = entry.get("port"), entry.get("endPort")
        if end is not None and (port is None or isinstance(port, str)):
            raise self._wrong(f"{at}.endPort", "needs a port, and that a number")
        if port is None:
            return PortRange(protocol, 0, 65535)
        if isinstance(port, str):
            if not _PORT_NAME.fullmatch(port):
                raise self._wrong(f"{at}.port", f"{port!r:.80} is no port name (a number goes without quotes)")
            return NamedPort(port, protocol)
        first = self._checked(f"{at}.port", _port_number, port)
        last = first if end is None else self._checked(f"{at}.endPort", _port_number, end)
        if last < first:
            raise self._wrong(f"{at}.endPort", f"{last} is below port {first}")
        return PortRange(protocol, first, last)

    # --- values --------------------------------------------------------------------------------------------

    def _selector(self, raw: Any, at: str) -> LabelSelector:
        if raw is None:
            return EVERYTHING
        try:
            selector = msgspec.convert(self._mapping(raw, at), LabelSelector)
        except msgspec.ValidationError as error:
            problem, _, where = str(error).partition(" - at `$")
            raise self._wrong(at + where.rstrip("`"), problem) from None
        for where, problem in selector.problems():
            raise self._wrong(f"{at}.{where}", f"{problem:.160}")
        selector = canonical(selector)
        for requirement in selector.match_expressions or ():
            self._count(at, len(requirement.values or ()) or 1)
        return selector

    def _mapping(self, value: Any, at: str, *, null: bool = True) -> Mapping[str, Any]:
        if value is None and null:
            return {}
        if not isinstance(value, Mapping):
            raise self._wrong(at, "must be a mapping")
        return value

    def _list(self, parent: Mapping[str, Any], field: str, path: str) -> Iterator[tuple[str, Any]]:
        """The entries with their paths."""
        value, at = parent.get(field), f"{path}.{field}"
        if value is None:
            return
        if not isinstance(value, list | tuple):
            raise self._wrong(at, "must be a list")
        self._count(at, len(value))
        yield from ((f"{at}[{number}]", entry) for number, entry in enumerate(value))

    def _count(self, at: str, entries: int) -> None:
        self._entries += entries
        if self._entries > MAX_ENTRIES:
            raise self._wrong(at, f"the policy has more than {MAX_ENTRIES} entries; split it or use ranges (endPort)")

    def _checked(self, at: str, read: Callable[[Any], T], raw: Any) -> T:
        try:
            return read(raw)
        except ValueError as problem:
            raise self._wrong(at, str(problem)) from None

    def _wrong(self, field: str, problem: str) -> PolicyError:
        return PolicyError("/".join(self._key), field, problem)


def _protocol(value: Any) -> Protocol:
    if value is None:
        return "TCP"
    if value not in PROTOCOLS:
        raise ValueError(f"{value!r:.80} is none of {', '.join(PROTOCOLS)}")
    return value  # type: ignore[no-any-return]


def _port_number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65535:
        raise ValueError(f"{value!r:.80} is no port number from 1 to 65535")
    return value


def _merged(ranges: list[PortRange]) -> tuple[PortRange, ...]:
    """The same ports in disjoint ranges, sorted; neighbours are joined."""
    found: list[PortRange] = []
    for current in sorted(ranges):
        last = found[-1] if found else None
        if last and last.protocol == current.protocol and current.first <= last.last + 1:
            found[-1] = PortRange(last.protocol, last.first, max(last.last, current.last))
        else:
            found.append(current)
    return tuple(found)
