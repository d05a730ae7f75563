"""Element operations as nfnetlink messages: what `nft` would send, without starting it.

Starting `nft` costs 6 to 12 ms and an ADD takes 3 in all, so what every pod needs is packed here: elements of sets and
maps, and the pod's binding chains, each of one rule `ct mark & HALF != WRITTEN ct mark set ct mark & KEPT | WRITTEN`.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from itertools import groupby
from typing import Any

from flock.core.policy.elements import (
    BIND_TABLE,
    TABLE,
    Binding,
    Chain,
    Element,
    Mark,
    NamedSet,
    Operation,
    Part,
    Port,
    Raw,
)
from flock.edge.netlink import wire as w
from flock.edge.netlink.route import Request

SUBSYSTEM = 10  # NFNL_SUBSYS_NFTABLES
BATCH_BEGIN, BATCH_END = 16, 17
NEWTABLE, GETTABLE, DELTABLE = 0, 1, 2
NEWCHAIN, GETCHAIN, DELCHAIN = 3, 4, 5
NEWRULE, GETRULE, DELRULE = 6, 7, 8
GETSET, DELSET = 10, 11
NEWSETELEM, GETSETELEM, DELSETELEM = 12, 13, 14
NEWGEN = 15
GETOBJ = 19
FAMILIES = {"inet": 1, "ip": 2, "arp": 3, "ip6": 10}

TABLE_NAME = 1
CHAIN_NAME, CHAIN_HOOK, CHAIN_POLICY, CHAIN_USERDATA = 3, 4, 5, 12
RULE_CHAIN, RULE_EXPRESSIONS = 2, 4
SET_NAME = 2
ELEMENTS_SET, ELEMENTS = 2, 3
LIST_ELEMENT = 1
ELEMENT_KEY, ELEMENT_DATA, ELEMENT_USERDATA = 1, 2, 6
DATA_VALUE, DATA_VERDICT, VERDICT_CODE, VERDICT_CHAIN = 1, 2, 1, 2
JUMP = struct.pack(">i", -3)
EXPRESSION_NAME, EXPRESSION_DATA = 1, 2
CT_DREG, CT_KEY, CT_SREG, CT_MARK = 1, 2, 4, 3
COMPARE_SREG, COMPARE_OPERATION, COMPARE_DATA, UNEQUAL = 1, 2, 3, struct.pack(">I", 1)
BITWISE_SREG, BITWISE_DREG, BITWISE_LEN, BITWISE_MASK, BITWISE_XOR = 1, 2, 3, 4, 5
REGISTER = struct.pack(">I", 1)
COMMENT = 0  # the type of user data `nft` shows as a comment
INTERFACE_SIZE = 16
_LISTED = struct.Struct("=HHHHHH")
_HERE = 0xF10C57A6  # in the place of a number, when it is not known yet
PER_MESSAGE = 200  # elements: an attribute holds 64 KiB, an element with comment some 200 bytes


def messages(operations: Iterable[Operation], *, per_message: int = PER_MESSAGE) -> Iterator[Request]:
    """In the given order; neighbours of the same set share a message."""
    for (add, *place), group in groupby(operations, _place):
        if not place:
            for operation in group:
                yield from _other(operation)
            continue
        what, kind, flags, begin = _about(*place, add=add)
        encode = _added if add else _deleted
        elements = [encode(o.what) for o in group if isinstance(o.what, Element)]
        for start in range(0, len(elements), per_message):
            listed = w.attr(ELEMENTS | w.NLA_F_NESTED, b"".join(elements[start : start + per_message]))
            yield Request(what, kind, flags, begin + listed)


def _place(operation: Operation) -> tuple[bool] | tuple[bool, str, str]:
    add, what = operation
    return (add, what.table, what.set) if isinstance(what, Element) else (add,)


def _other(operation: Operation) -> Iterator[Request]:
    match operation.what:
        case Binding() as binding:
            yield from _bind(binding) if operation.add else _unbind(binding)
        case Chain(name):
            yield Request(f"delete chain {name}", message_type(DELCHAIN), 0, header(TABLE) + w.text(CHAIN_NAME, name))
        case NamedSet(name):
            yield Request(f"delete set {name}", message_type(DELSET), 0, header(TABLE) + w.text(SET_NAME, name))


@lru_cache
def header(table: str) -> bytes:
    """Of every message about a table: its family, and its name as the first attribute."""
    family, name = table.split(" ")
    return struct.pack(">BBH", FAMILIES[family], 0, 0) + w.text(TABLE_NAME, name)


def plain_header(resource: int = 0) -> bytes:
    return struct.pack(">BBH", 0, 0, resource)


def message_type(kind: int) -> int:
    return SUBSYSTEM << 8 | kind


# --- elements ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _about(table: str, name: str, *, add: bool) -> tuple[str, int, int, bytes]:
    """What a request for elements of this set begins with."""
    begin = header(table) + w.text(ELEMENTS_SET, name)
    if add:
        return f"add to {table} {name}", message_type(NEWSETELEM), w.NLM_F_CREATE, begin
    return f"delete from {table} {name}", message_type(DELSETELEM), 0, begin


def _added(element: Element) -> bytes:
    _, _, parts, verdict, comment = element
    more = _verdict(verdict) if verdict else b""
    return _listed(key(parts), more + w.attr(ELEMENT_USERDATA, _comment(comment)) if comment else more)


def _deleted(element: Element) -> bytes:
    return _listed(key(element.key), _verdict(element.verdict) if element.verdict else b"")


def _listed(value: bytes, more: bytes) -> bytes:
    """Three attributes, one in the other, in one go: a pod has a dozen of these.  A key is whole words."""
    size = len(value)
    return (
        _LISTED.pack(
            12 + size + len(more),
            LIST_ELEMENT | w.NLA_F_NESTED,
            8 + size,
            ELEMENT_KEY | w.NLA_F_NESTED,
            4 + size,
            DATA_VALUE,
        )
        + value
        + more
    )


def question(element: Element) -> bytes:
    """The body of a request for one element."""
    wanted = _nested(LIST_ELEMENT, _nested(ELEMENT_KEY, w.attr(DATA_VALUE, key(element.key))))
    return header(element.table) + w.text(ELEMENTS_SET, element.set) + _nested(ELEMENTS, wanted)


def key(parts: tuple[Part, ...]) -> bytes:
    """Parts of a concatenation are padded to four bytes each."""
    return b"".join([_PARTS[type(part)](part) for part in parts])


_PARTS: dict[type, Callable[[Any], bytes]] = {
    str: lambda name: name.encode().ljust(INTERFACE_SIZE, b"\0"),
    IPv6Address: lambda address: address.packed,
    IPv4Address: lambda address: address.packed,
    Mark: struct.Struct("=I").pack,
    Port: struct.Struct(">Hxx").pack,
    Raw: bytes,
}


@lru_cache(maxsize=64)  # pods that are judged alike come one after the other
def _verdict(text: str) -> bytes:
    chain = text.removeprefix("jump ")
    return _nested(ELEMENT_DATA, _nested(DATA_VERDICT, w.attr(VERDICT_CODE, JUMP), w.text(VERDICT_CHAIN, chain)))


# --- binding chains ---------------------------------------------------------------------------------------------


def _bind(binding: Binding) -> Iterator[Request]:
    """Makes the chains, or gives them another number."""
    table, comment = header(BIND_TABLE), w.attr(CHAIN_USERDATA, _comment(binding.comment))
    for name, kept, written in binding.chains():
        chain, rule = table + w.text(CHAIN_NAME, name), table + w.text(RULE_CHAIN, name)
        yield Request(f"make chain {name}", message_type(NEWCHAIN), w.NLM_F_CREATE, chain + comment)
        yield Request(f"flush chain {name}", message_type(DELRULE), 0, rule)
        flags, mark = w.NLM_F_CREATE | w.NLM_F_APPEND, struct.pack("=I", written)
        yield Request(f"write chain {name}", message_type(NEWRULE), flags, rule + mark.join(_marking(kept)))


def _unbind(binding: Binding) -> Iterator[Request]:
    for name, _, _ in binding.chains():
        body = header(BIND_TABLE) + w.text(CHAIN_NAME, name)
        yield Request(f"delete chain {name}", message_type(DELCHAIN), 0, body)


@lru_cache
def _marking(kept: Mark) -> list[bytes]:
    """The rule's expressions, without what is written, which stands between the pieces."""
    load, store = _ct_mark(CT_DREG), _ct_mark(CT_SREG)
    compare = w.attr(COMPARE_SREG, REGISTER) + w.attr(COMPARE_OPERATION, UNEQUAL)
    expressions = (
        load,
        _bitwise(mask=kept ^ 0xFFFFFFFF, xor=0),
        _expression("cmp", compare, _value(COMPARE_DATA, _HERE)),
        load,
        _bitwise(mask=kept, xor=_HERE),
        store,
    )
    pieces = _nested(RULE_EXPRESSIONS, *expressions).split(struct.pack("=I", _HERE))
    assert len(pieces) == 3, "the number stands nowhere else"
    return pieces


def _ct_mark(register: int) -> bytes:
    return _expression("ct", w.attr(register, REGISTER), w.attr(CT_KEY, struct.pack(">I", CT_MARK)))


def _bitwise(*, mask: int, xor: int) -> bytes:
    return _expression(
        "bitwise",
        w.attr(BITWISE_SREG, REGISTER),
        w.attr(BITWISE_DREG, REGISTER),
        w.attr(BITWISE_LEN, struct.pack(">I", 4)),
        _value(BITWISE_MASK, mask),
        _value(BITWISE_XOR, xor),
    )


def _value(kind: int, number: int) -> bytes:
    return _nested(kind, w.attr(DATA_VALUE, struct.pack("=I", number)))


def _expression(name: str, *data: bytes) -> bytes:
    return _nested(LIST_ELEMENT, w.text(EXPRESSION_NAME, name), _nested(EXPRESSION_DATA, *data))


def _nested(kind: int, *children: bytes) -> bytes:
    return w.nested(kind | w.NLA_F_NESTED, *children)


def _comment(text: str) -> bytes:
    data = text.encode() + b"\0"
    return bytes([COMMENT, len(data)]) + data
