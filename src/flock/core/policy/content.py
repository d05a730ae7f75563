"""What a pod, a group or a named port puts into the sets and maps."""

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from ipaddress import IPv6Address

from flock.core.policy import names
from flock.core.policy.compiled import (
    DIRECTIONS,
    NO_TIERS,
    Address,
    Audit,
    Endpoint,
    GroupId,
    NamedPort,
    Subject,
    Tiers,
    Verdicts,
)
from flock.core.policy.elements import (
    ARP_TABLE,
    BIND_TABLE,
    TABLE,
    Binding,
    Element,
    Mark,
    Port,
    Raw,
    destination_chain,
    source_chain,
)
from flock.core.policy.numbers import PodNumbers
from flock.core.policy.rules import AUDITS, REPLIES, Class, version_of

Pod = tuple[Subject, PodNumbers]
_Make = Callable[[Subject, PodNumbers], Iterable[Element]]
_Cause = Callable[[Subject, PodNumbers], object]


def pod_elements(pod: Pod) -> list[Element]:
    """Everything that is in the kernel because of this pod, but its binding chains."""
    return [element for make, _ in _PARTS for element in make(*pod)]


def pod_difference(old: Pod | None, new: Pod | None) -> tuple[list[Element], list[Element]]:
    """Elements that go and those that come.  Made are those alone that may differ: of a thousand pods that one more
    policy selects, not their addresses and numbers."""
    parts = [make for make, cause in _PARTS if old is None or new is None or cause(*old) != cause(*new)]
    before, now = (
        dict.fromkeys(element for make in parts for element in make(*pod)) if pod is not None else {}
        for pod in (old, new)
    )
    return [e for e in before if e not in now], [e for e in now if e not in before]


def _own_elements(subject: Subject, _: PodNumbers) -> list[Element]:
    name = subject.interface
    found = []
    for address in subject.addresses:
        if isinstance(address, IPv6Address):
            found.append(Element(TABLE, "sources6", (name, address)))
            found.append(Element(TABLE, "targets6", (name, Raw(address.packed))))
        else:
            found.append(Element(TABLE, "sources4", (name, address)))
            found.append(Element(ARP_TABLE, "sources4", (name, address)))
    if subject.link_local is None:
        found.append(Element(TABLE, "unknown-link-locals", (name,)))
    else:
        found.append(Element(TABLE, "link-locals", (name, subject.link_local)))
        found.append(Element(TABLE, "targets6", (name, Raw(subject.link_local.packed))))
    found.append(Element(TABLE, "self", (name, name)))
    found.append(Element(BIND_TABLE, "bind-source", (name,), f"jump {source_chain(name)}"))
    found.append(Element(BIND_TABLE, "bind-destination", (name,), f"jump {destination_chain(name)}"))
    return found


def _number_elements(subject: Subject, numbers: PodNumbers) -> list[Element]:
    name, pod = subject.interface, names.comment(subject.pod)
    found = []
    for side, shift in ((numbers.source, 0), (numbers.destination, 16)):
        if side.settled:
            found.append(Element(TABLE, "pods", (name, Mark(side.current << shift)), comment=pod))
        found += [Element(TABLE, "earlier", (name, Mark(n << shift)), comment=pod) for n in side.earlier]
    if numbers.overfull:
        found.append(Element(TABLE, "overfull", (name,), comment=pod))
    return found


def _class_elements(subject: Subject, numbers: PodNumbers) -> list[Element]:
    key, pod = (subject.interface,), names.comment(subject.pod)
    found = []
    for class_ in classes_of(subject, numbers):
        found.append(Element(TABLE, class_.kind, key, f"jump {class_.chain}", pod))
        if class_.kind not in AUDITS:
            found.append(Element(TABLE, f"isolated-{class_.kind}", key))
    return found


_PARTS: tuple[tuple[_Make, _Cause], ...] = (  # with what they depend on
    (_own_elements, lambda subject, _: (subject.addresses, subject.link_local)),
    (_number_elements, lambda subject, numbers: (subject.pod, numbers)),
    (_class_elements, lambda subject, numbers: (subject.pod, subject.verdicts, subject.audit, numbers)),
)


def classes_of(subject: Subject, numbers: PodNumbers) -> tuple[Class, ...]:
    """Only a pod with earlier numbers has connections that are judged by their answers."""
    judged = _classes(subject.verdicts, bool(numbers.destination.earlier), bool(numbers.source.earlier))
    return judged if subject.audit is None else (*judged, *_audited(subject.verdicts, subject.audit))


@lru_cache(maxsize=8)  # pods that are judged alike come one after the other
def _classes(verdicts: Verdicts, *answered: bool) -> tuple[Class, ...]:
    found = []
    for direction, answers in zip(DIRECTIONS, answered, strict=True):
        policies, tiers = verdicts.policies(direction), verdicts.tiers(direction)
        if policies is not None or tiers != NO_TIERS:
            found.append(Class(direction, policies, tiers))
            if answers:
                found.append(Class(REPLIES[direction], policies, tiers))
    # What a pod sends to its node is a matter of the cluster's policies alone; Baseline's, if no other isolates it.
    to_node = verdicts.tiers("egress")
    if verdicts.egress is not None:
        to_node = Tiers(to_node.admin, (), tuple(key for key in to_node.doubtful if key in to_node.admin))
    if to_node != NO_TIERS:
        found.append(Class("egress-node", None, to_node))
    return tuple(found)


@lru_cache(maxsize=8)
def _audited(verdicts: Verdicts, audit: Audit) -> tuple[Class, ...]:
    """Where it would be judged by others than it is."""
    judged = {(c.kind, c.policies, c.tiers) for c in _classes(verdicts, False, False)}
    would = {kind: audit_kind for audit_kind, kind in AUDITS.items()}
    return tuple(
        Class(would[c.kind], c.policies, c.tiers, audit.by)
        for c in _classes(audit.verdicts, False, False)
        if (c.kind, c.policies, c.tiers) not in judged
    )


def binding(subject: Subject, numbers: PodNumbers) -> Binding:
    comment = names.comment(subject.pod)
    return Binding(subject.interface, numbers.source.current, numbers.destination.current, comment)


def member_elements(group: GroupId, addresses: Collection[Address]) -> list[Element]:
    return [Element(TABLE, names.group_set(group, a.version), (a,)) for a in sorted(addresses, key=_address_order)]


def port_elements(group: GroupId | None, port: NamedPort, endpoints: Collection[Endpoint]) -> list[Element]:
    return [
        Element(TABLE, names.port_set(group, port, version_of(where)), (where, Port(number)))
        for where, number in sorted(endpoints, key=lambda e: (_address_order(e[0]), e[1]))
    ]


def _address_order(address: Address | str) -> tuple[int, int, str]:
    return (0, 0, address) if isinstance(address, str) else (address.version, int(address), "")
