"""What a pod, a group or a named port puts into the sets and maps."""

from collections.abc import Collection, Iterable
from ipaddress import IPv6Address

from flock.core.policy import names
from flock.core.policy.compiled import DIRECTIONS, Address, Endpoint, GroupId, NamedPort, Subject
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
from flock.core.policy.rules import REPLIES, Class, version_of


def subject_elements(subject: Subject, numbers: PodNumbers) -> list[Element]:
    """Everything that is in the kernel because of this pod, but its binding chains."""
    name, pod = subject.interface, names.comment(subject.pod)
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
    for side, shift in ((numbers.source, 0), (numbers.destination, 16)):
        if side.settled:
            found.append(Element(TABLE, "pods", (name, Mark(side.current << shift)), comment=pod))
        found += [Element(TABLE, "earlier", (name, Mark(n << shift)), comment=pod) for n in side.earlier]
    found.append(Element(TABLE, "self", (name, name)))
    if numbers.overfull:
        found.append(Element(TABLE, "overfull", (name,), comment=pod))
    for class_ in classes_of(subject, numbers):
        found.append(Element(TABLE, class_.kind, (name,), f"jump {class_.chain}", pod))
        found.append(Element(TABLE, f"isolated-{class_.kind}", (name,)))
    found.append(Element(BIND_TABLE, "bind-source", (name,), f"jump {source_chain(name)}"))
    found.append(Element(BIND_TABLE, "bind-destination", (name,), f"jump {destination_chain(name)}"))
    return found


def classes_of(subject: Subject, numbers: PodNumbers) -> Iterable[Class]:
    """Only a pod with earlier numbers has connections that are judged by their answers."""
    for direction in DIRECTIONS:
        policies = getattr(subject.verdicts, direction)
        if policies is not None:
            yield Class(direction, policies)
            if numbers.on(direction).earlier:
                yield Class(REPLIES[direction], policies)


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
