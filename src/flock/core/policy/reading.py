"""What reading a policy of either kind takes: values checked one by one, every complaint with the path of its field.

An API server has checked most of it before, a manifest file nobody, and neither bounds the size.  Fields we do not know
pass, as the API server drops them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from flock.core.annotations import AUDIT, BOOLEANS, STRICT
from flock.core.errors import FieldError
from flock.core.policy.compiled import NODES, GroupId, PolicyKey, PortRange
from flock.core.policy.labels import canonical, selector_text
from flock.core.selectors import LabelSelector

T = TypeVar("T")

EVERYTHING = LabelSelector()

# Each entry is at least one set element in the kernel of every node the policy touches.  Real policies have dozens; a
# generator that went wild must not take the others' transaction down with it.
MAX_ENTRIES = 4096  # rules, peers, ports, exceptions and selector terms of one policy together

_PORT_NAME = re.compile(r"(?=.{1,15}\Z)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")  # IANA service name, as the API requires


class PolicyError(FieldError):
    """A policy is refused, for one field of it.  `policy` is its kind and name, `reason` goes without it."""

    def __init__(self, policy: str, field: str, problem: str) -> None:
        self.reason = f"{field}: {problem}" if field else problem
        super().__init__(policy, self.reason)
        self.policy = policy
        self.field = field


class PeerSelector(msgspec.Struct, frozen=True):
    """What a group id stands for, canonical.  `namespaces` None: the policy's own namespace."""

    namespaces: LabelSelector | None
    pods: LabelSelector


class Flags(NamedTuple):
    """What annotations say of a policy as a whole."""

    strict: bool = False
    audited: bool = False


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


class Reading:
    """Of one policy: keeps its name for errors, counts what was taken in, and knows what the groups mean."""

    def __init__(self, kind: str, key: PolicyKey) -> None:
        self.key = key
        self.groups: dict[GroupId, PeerSelector] = {}
        self._policy = f"{kind} {'/'.join(filter(None, key))}"
        self._entries = 0

    def metadata(self, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        metadata = self.mapping(obj.get("metadata"), "metadata")
        for field in ("name", "namespace"):
            if not isinstance(metadata.get(field, ""), str | None) or (field == "name" and not metadata.get(field)):
                raise self.wrong(f"metadata.{field}", "must be a text")
        return metadata

    def flags(self, metadata: Mapping[str, Any]) -> Flags:
        annotations = self.mapping(metadata.get("annotations"), "metadata.annotations")
        return Flags(strict=self._flag(annotations, STRICT), audited=self._flag(annotations, AUDIT))

    def _flag(self, annotations: Mapping[str, Any], name: str) -> bool:
        value = annotations.get(name)
        if value is None:
            return False
        if not isinstance(value, str) or value not in BOOLEANS:
            raise self.wrong(f"metadata.annotations[{name}]", f'{value!r:.80} is neither "true" nor "false"')
        return BOOLEANS[value]

    def group(self, namespaces: LabelSelector | None, pods: LabelSelector, *, suspects: bool = False) -> GroupId:
        """`namespaces` None: the policy's own."""
        own, chosen = (self.key[0], "") if namespaces is None else ("", selector_text(namespaces))
        group = GroupId(own, chosen, selector_text(pods), suspects=suspects)
        self.groups[group] = PeerSelector(namespaces, pods)
        return group

    def nodes(self, selector: LabelSelector) -> GroupId:
        group = GroupId(NODES, "", selector_text(selector))
        self.groups[group] = PeerSelector(None, selector)
        return group

    def selector(self, raw: Any, at: str) -> LabelSelector:
        if raw is None:
            return EVERYTHING
        try:
            selector = msgspec.convert(self.mapping(raw, at), LabelSelector)
        except msgspec.ValidationError as error:
            problem, _, where = str(error).partition(" - at `$")
            raise self.wrong(at + where.rstrip("`"), problem) from None
        for where, problem in selector.problems():
            raise self.wrong(f"{at}.{where}", f"{problem:.160}")
        selector = canonical(selector)
        for requirement in selector.match_expressions or ():
            self._count(at, len(requirement.values or ()) or 1)
        return selector

    def mapping(self, value: Any, at: str, *, null: bool = True) -> Mapping[str, Any]:
        if value is None and null:
            return {}
        if not isinstance(value, Mapping):
            raise self.wrong(at, "must be a mapping")
        return value

    def entries(self, parent: Mapping[str, Any], field: str, path: str) -> Iterator[tuple[str, Any]]:
        """Of a list, with their paths."""
        value, at = parent.get(field), f"{path}.{field}"
        if value is None:
            return
        if not isinstance(value, list | tuple):
            raise self.wrong(at, "must be a list")
        self._count(at, len(value))
        yield from ((f"{at}[{number}]", entry) for number, entry in enumerate(value))

    def _count(self, at: str, entries: int) -> None:
        self._entries += entries
        if self._entries > MAX_ENTRIES:
            raise self.wrong(at, f"the policy has more than {MAX_ENTRIES} entries; split it or use ranges (endPort)")

    def checked(self, at: str, read: Callable[[Any], T], raw: Any) -> T:
        try:
            return read(raw)
        except ValueError as problem:
            raise self.wrong(at, str(problem)) from None

    def wrong(self, field: str, problem: str) -> PolicyError:
        return PolicyError(self._policy, field, problem)


def port_number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65535:
        raise ValueError(f"{value!r:.80} is no port number from 1 to 65535")
    return value


def port_name(value: Any) -> str:
    if not isinstance(value, str) or not _PORT_NAME.fullmatch(value):
        raise ValueError(f"{value!r:.80} is no port name (a number goes without quotes)")
    return value


def merged(ranges: list[PortRange]) -> tuple[PortRange, ...]:
    """The same ports in disjoint ranges, sorted; neighbours are joined."""
    found: list[PortRange] = []
    for current in sorted(ranges):
        last = found[-1] if found else None
        if last and last.protocol == current.protocol and current.first <= last.last + 1:
            found[-1] = PortRange(last.protocol, last.first, max(last.last, current.last))
        else:
            found.append(current)
    return tuple(found)
