"""What changes with every pod: elements of sets and maps, and a pod's two binding chains.

These are values, so that one list serves twice: the edge packs it into a netlink batch (no `nft` needed), or it becomes
part of an nft script where chains change in the same transaction.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from itertools import groupby
from typing import Literal, NamedTuple

# Binding has a table of its own, because the kernel checks all of a table when a jump is added, and every pod adds two.
Table = Literal["inet flock", "inet flock-bind", "arp flock"]
TABLE: Table = "inet flock"
BIND_TABLE: Table = "inet flock-bind"
ARP_TABLE: Table = "arp flock"
TABLES = (TABLE, BIND_TABLE, ARP_TABLE)
ORIGINAL_TABLE = "inet flock_netpol"  # where the original flock had its rules


class Mark(int):
    """A connection mark, or part of one."""


# Where a connection's mark has the numbers of the two pods, and that these are the last two it was let through for.
SOURCE, DESTINATION, BOUND = Mark(0x0000FFFF), Mark(0x7FFF0000), Mark(0x80000000)


class Port(int):
    """A port number."""


class Raw(bytes):
    """Bytes of a packet that nft has no name for."""


Part = str | IPv4Address | IPv6Address | Mark | Port | Raw  # str: an interface's name


class Element(NamedTuple):
    """`verdict` is `jump CHAIN` in a map, empty in a set."""

    table: Table
    set: str
    key: tuple[Part, ...]
    verdict: str = ""
    comment: str = ""


class Binding(NamedTuple):
    """The chains that write a pod's numbers into the mark of a connection that was let through."""

    interface: str
    source: int
    destination: int
    comment: str

    def chains(self) -> tuple[tuple[str, Mark, Mark], ...]:
        """(chain, what of the mark is kept, what is written)."""
        return (
            (source_chain(self.interface), Mark(SOURCE ^ 0xFFFFFFFF), Mark(self.source)),
            (destination_chain(self.interface), Mark(DESTINATION ^ 0xFFFFFFFF), Mark(self.destination << 16)),
        )


class Chain(NamedTuple):
    """A chain with all its rules; only removed this way."""

    name: str


class NamedSet(NamedTuple):
    """A set with all its elements; only removed this way."""

    name: str


What = Element | Binding | Chain | NamedSet


class Operation(NamedTuple):
    add: bool
    what: What


def source_chain(interface: str) -> str:
    return f"from/{interface}"


def destination_chain(interface: str) -> str:
    return f"to/{interface}"


# --- as nft statements ------------------------------------------------------------------------------------------


def statements(operations: Iterable[Operation]) -> list[str]:
    """In the given order; neighbours of the same set become one statement."""
    lines: list[str] = []
    for (add, place), group in groupby(operations, lambda o: (o.add, _place(o.what))):
        if place is None:
            for operation in group:
                lines += _other(operation)
        else:
            elements = ", ".join(element_text(o.what, full=add) for o in group if isinstance(o.what, Element))
            lines.append(f"{'add' if add else 'delete'} element {place} {{ {elements} }}")
    return lines


def _place(what: What) -> str | None:
    return f"{what.table} {what.set}" if isinstance(what, Element) else None


def _other(operation: Operation) -> list[str]:
    match operation.what:
        case Binding() as binding:
            return _binding(binding) if operation.add else _unbinding(binding)
        case Chain(name):
            return [f"delete chain {TABLE} {name}"]
        case NamedSet(name):
            return [f"delete set {TABLE} {name}"]
    raise AssertionError(operation)


def element_text(element: Element, *, full: bool = True) -> str:
    """`full` with the comment, which only an addition takes."""
    text = " . ".join(map(_part, element.key))
    if full and element.comment:
        text += f' comment "{element.comment}"'
    return f"{text} : {element.verdict}" if element.verdict else text


def _part(part: Part) -> str:
    match part:
        case str():
            return f'"{part}"'
        case Mark():
            return f"0x{part:08x}"
        case Raw():
            return f"0x{part.hex()}"
        case Port():
            return f"{int(part)}"
        case _:
            return str(part)


def binding_rule(kept: Mark, written: Mark) -> str:
    """Unless it is written there already."""
    return (
        f"ct mark & 0x{kept ^ 0xFFFFFFFF:08x} != 0x{written:08x} ct mark set ct mark & 0x{kept:08x} | 0x{written:08x}"
    )


def _binding(binding: Binding) -> list[str]:
    """Makes the chains, or gives them another number."""
    lines = []
    for chain, kept, written in binding.chains():
        lines.append(f'add chain {BIND_TABLE} {chain} {{ comment "{binding.comment}"; }}')
        lines.append(f"flush chain {BIND_TABLE} {chain}")
        lines.append(f"add rule {BIND_TABLE} {chain} {binding_rule(kept, written)}")
    return lines


def _unbinding(binding: Binding) -> list[str]:
    return [f"delete chain {BIND_TABLE} {chain}" for chain, _, _ in binding.chains()]
