"""Rules and sets of anybody as the kernel tells them, read into values (`core/foreign/matches.py`).

Each rule is a list of expressions, each a name and attributes.  An expression that only counts, logs or alters what no
rule asks for is left out; one that is not known here, or does not have the form it should, is a Puzzle by its name.
Nothing that the kernel tells makes this fail.
"""

import struct
from collections.abc import Callable, Iterable, Sequence

from flock.core.foreign.matches import (
    VERDICT,
    Between,
    Compare,
    Constant,
    Decide,
    Element,
    Elements,
    Extension,
    Load,
    Lookup,
    Mask,
    Never,
    Puzzle,
    Rate,
    Rule,
    Step,
    Swap,
    Untrack,
    Write,
)
from flock.core.foreign.packet import Meta
from flock.edge.netlink import wire as w
from flock.edge.nft import batch as b

RULE_HANDLE = 3
REGISTERS = 64  # bytes in all
VERDICTS = {0: "drop", 1: "accept", 3: "queue", -1: "", -2: "", -3: "jump", -4: "goto", -5: "return"}
PASSED = frozenset({"counter", "log", "last", "dup", "flow_offload"})
NAT = frozenset({"nat", "masq", "redir"})  # which end a chain of their own kind
TARGETS_PASSED = frozenset(
    {
        "LOG", "NFLOG", "ULOG", "AUDIT", "TRACE", "CONNMARK", "CONNSECMARK", "SECMARK", "TCPMSS", "TCPOPTSTRIP",
        "CHECKSUM", "TTL", "HL", "DSCP", "TOS", "ECN", "CLASSIFY", "SET", "RATEEST", "IDLETIMER", "LED",
        "HMARK", "TEE", "NFACCT",
    }
)  # fmt: skip
TARGETS_NAT = frozenset({"SNAT", "DNAT", "MASQUERADE", "REDIRECT", "NETMAP"})
PASSED_OBJECTS = frozenset({1, 3, 7, 8, 9})  # counter, helper, timeout, secmark, expectation
INVERSE = 1
IPV6_HEADERS, TCP_OPTIONS = 0, 1
ELEMENT_FLAGS, ELEMENT_KEY_END = 3, 10
INTERVAL_END, CATCHALL = 1, 2
SET_FLAGS, SET_KEY_SIZE, SET_DESCRIPTION, DESCRIBED_FIELDS, FIELD_SIZE = 3, 5, 9, 2, 1
IS_INTERVAL = 4


def rule(body: bytes) -> Rule:
    found = w.attrs(body, 4)
    steps: list[Step] = []
    for item in w.items(found.get(b.RULE_EXPRESSIONS, b"")):
        expression = w.attrs(item)
        name = w.as_text(expression.get(b.EXPRESSION_NAME, b""))
        steps += _steps(name, w.attrs(expression.get(b.EXPRESSION_DATA, b"")))
    return Rule(int.from_bytes(found.get(RULE_HANDLE, b"")), tuple(steps))


def _steps(name: str, a: w.Attrs) -> Iterable[Step]:
    if name in PASSED:
        return ()
    if name in NAT:
        return (Decide("accept"),)
    read = READERS.get(name)
    try:
        return (Puzzle(name),) if read is None else read(a)
    except (KeyError, IndexError, ValueError, struct.error):
        return (Puzzle(name),)


# --- loads ------------------------------------------------------------------------------------------------------


def _payload(a: w.Attrs) -> Sequence[Step]:
    """With a register to take from it is written, to addresses or ports that nobody asks for later."""
    if 5 in a:
        return ()
    numbers = (_number(a[2]), _number(a[3]), _size(a[4]))
    return (Load(_register(a[1]), "payload", numbers),)


def _meta(a: w.Attrs) -> Sequence[Step]:
    key = _number(a[2])
    if 3 in a:
        return (Write(_register(a[3])),) if key == Meta.MARK else ()
    return (Load(_register(a[1]), "meta", (key,)),)


def _ct(a: w.Attrs) -> Sequence[Step]:
    return () if 4 in a else (Load(_register(a[1]), "ct", (_number(a[2]),)),)


def _fib(a: w.Attrs) -> Sequence[Step]:
    return (Load(_register(a[1]), "fib", (_number(a[2]), _number(a[3]))),)


def _exthdr(a: w.Attrs) -> Sequence[Step]:
    """Headers that a plain packet does not have; options of TCP are anybody's guess."""
    if 1 not in a:  # it is written, or taken out
        return ()
    operation, present = _number(a.get(6, b"")), _number(a.get(5, b"")) & 1
    if operation == IPV6_HEADERS:
        return (Constant(_register(a[1]), b"\0"),) if present else (Never(),)
    return _unknowable(a)


def _unknowable(a: w.Attrs) -> Sequence[Step]:
    return (Load(_register(a[1]), "", (), 16),)


def _hash(a: w.Attrs) -> Sequence[Step]:
    return (Load(_register(a[2]), "", (), 4),)


# --- comparisons ------------------------------------------------------------------------------------------------


def _compare(a: w.Attrs) -> Sequence[Step]:
    return (Compare(_register(a[b.COMPARE_SREG]), _number(a[b.COMPARE_OPERATION]), _data(a[b.COMPARE_DATA])),)


def _range(a: w.Attrs) -> Sequence[Step]:
    return (Between(_register(a[1]), _data(a[3]), _data(a[4]), bool(_number(a[2]))),)


def _bitwise(a: w.Attrs) -> Sequence[Step]:
    """Shifts, and what takes its mask out of another register, leave nothing that is known."""
    of, to = _register(a[b.BITWISE_SREG]), _register(a[b.BITWISE_DREG])
    if _number(a.get(6, b"")):
        return (Load(to, "", (), _size(a[b.BITWISE_LEN])),)
    return (Mask(of, to, _data(a[b.BITWISE_MASK]), _data(a[b.BITWISE_XOR])),)


def _byteorder(a: w.Attrs) -> Sequence[Step]:
    return (Swap(_register(a[1]), _register(a[2]), _size(a[4]), _size(a[5])),)


def _lookup(a: w.Attrs) -> Sequence[Step]:
    to = _register(a[3]) if 3 in a else None
    return (Lookup(_register(a[2]), w.as_text(a[1]), to, bool(_number(a.get(5, b"")) & INVERSE)),)


def _match(a: w.Attrs) -> Sequence[Step]:
    return (Extension(w.as_text(a[1]), _number(a[2]), a[3]),)


# --- decisions --------------------------------------------------------------------------------------------------


def _immediate(a: w.Attrs) -> Sequence[Step]:
    data = w.attrs(a[2])
    if b.DATA_VERDICT in data:
        decided = _verdict(data[b.DATA_VERDICT])
        return (decided,) if decided.verdict else ()
    return (Constant(_register(a[1]), data[b.DATA_VALUE]),)


def _verdict(data: bytes) -> Decide:
    found = w.attrs(data)
    code = int.from_bytes(found[b.VERDICT_CODE], signed=True)
    return Decide(VERDICTS[code if code < 0 else code & 0xFF], w.as_text(found.get(b.VERDICT_CHAIN, b"")))


def _target(a: w.Attrs) -> Sequence[Step]:
    name, info = w.as_text(a[1]), a[3]
    if name == "REJECT":
        return (Decide("drop"),)
    if name in TARGETS_PASSED:
        return ()
    if name in TARGETS_NAT:
        return (Decide("accept"),)
    if name == "MARK":
        return (Write(None, info[4:8], info[:4]),)
    if name in ("CT", "NOTRACK"):
        return (Untrack(),) if name == "NOTRACK" or info[0] & 1 else ()
    return (Decide("queue"),) if name in ("NFQUEUE", "SYNPROXY", "TPROXY") else (Puzzle(f"target {name}"),)


def _rate(flags: int) -> Callable[[w.Attrs], Sequence[Step]]:
    """Over a limit, by the flag that is this attribute."""
    return lambda a: (Rate(bool(_number(a.get(flags, b"")) & INVERSE)),)


def _objref(a: w.Attrs) -> Sequence[Step]:
    """A limit, quota or bound of connections by name: whether it is over that stands elsewhere."""
    return () if _number(a.get(1, b"")) in PASSED_OBJECTS else (Rate(over=False),)


def _dynset(a: w.Attrs) -> Sequence[Step]:
    """An element is put into a set; with a limit of its own it holds as that does."""
    nested = [a[7]] if 7 in a else w.items(a.get(10, b""))
    found = [w.attrs(item) for item in nested]
    steps: list[Step] = []
    for expression in found:
        name = w.as_text(expression.get(b.EXPRESSION_NAME, b""))
        steps += _steps(name, w.attrs(expression.get(b.EXPRESSION_DATA, b"")))
    return steps


READERS: dict[str, Callable[[w.Attrs], Iterable[Step]]] = {
    "payload": _payload,
    "meta": _meta,
    "ct": _ct,
    "fib": _fib,
    "exthdr": _exthdr,
    "rt": _unknowable,
    "numgen": _unknowable,
    "osf": _unknowable,
    "hash": _hash,
    "socket": lambda _: (Never(),),
    "xfrm": lambda _: (Never(),),
    "tunnel": lambda _: (Never(),),
    "cmp": _compare,
    "range": _range,
    "bitwise": _bitwise,
    "byteorder": _byteorder,
    "lookup": _lookup,
    "match": _match,
    "immediate": _immediate,
    "reject": lambda _: (Decide("drop"),),
    "target": _target,
    "queue": lambda _: (Decide("queue"),),
    "synproxy": lambda _: (Decide("queue"),),
    "tproxy": lambda _: (Decide("queue"),),
    "notrack": lambda _: (Untrack(),),
    "limit": _rate(5),
    "quota": _rate(2),
    "connlimit": _rate(2),
    "objref": _objref,
    "dynset": _dynset,
}


# --- sets -------------------------------------------------------------------------------------------------------


def elements(described: bytes, told: Sequence[bytes], *, whole: bool) -> Elements | None:
    """Of a set, by its description and the elements the kernel told.  None: it is not one that can be read."""
    a = w.attrs(described, 4)
    try:
        flags, size = _number(a.get(SET_FLAGS, b"")), _size(a[SET_KEY_SIZE])
        listed = [item for body in told for item in w.items(w.attrs(body, 4).get(b.ELEMENTS, b""))]
        found = [_element(w.attrs(item), size) for item in listed]
    except (KeyError, IndexError, ValueError, struct.error):
        return None
    description = w.attrs(a.get(SET_DESCRIPTION, b""))
    fields = tuple(
        -(-_number(w.attrs(item).get(FIELD_SIZE, b"")) // 4) * 4
        for item in w.items(description.get(DESCRIBED_FIELDS, b""))
    )
    if flags & IS_INTERVAL and len(fields) < 2:
        return Elements(size, tuple(_intervals(found, size, whole=whole)), (), whole)
    return Elements(size, tuple(element for element, _ in found), fields if sum(fields) == size else (), whole)


def _element(a: w.Attrs, size: int) -> tuple[Element, bool]:
    """And whether it is where an interval ends, of which the next value is told."""
    flags = _number(a.get(ELEMENT_FLAGS, b""))
    low = b"" if flags & CATCHALL else _data(a[b.ELEMENT_KEY])[:size]
    high = _data(a[ELEMENT_KEY_END])[:size] if ELEMENT_KEY_END in a else low
    gives: Decide | bytes | None = None
    if b.ELEMENT_DATA in a:
        data = w.attrs(a[b.ELEMENT_DATA])
        gives = _verdict(data[b.DATA_VERDICT]) if b.DATA_VERDICT in data else data.get(b.DATA_VALUE, b"")
    return Element(low, high, gives), bool(flags & INTERVAL_END)


def _intervals(found: Sequence[tuple[Element, bool]], size: int, *, whole: bool) -> list[Element]:
    """Told as where they begin and end, in no order; an end may be another's beginning, or none be told for the last.
    Neighbours that give the same are one."""
    result = [element for element, _ in found if not element.low]
    begun: Element | None = None
    for element, ends in sorted(((e, ends) for e, ends in found if e.low), key=lambda mark: (mark[0].low, not mark[1])):
        if begun is not None and element.low > begun.low:
            _add(result, begun, (int.from_bytes(element.low) - 1).to_bytes(size))
        begun = None if ends else element
    if begun is not None and whole:
        _add(result, begun, b"\xff" * size)
    return result


def _add(result: list[Element], begun: Element, high: bytes) -> None:
    last = result[-1] if result else None
    if last is not None and last.low and last.gives == begun.gives and _next(last.high) == int.from_bytes(begun.low):
        result[-1] = Element(last.low, high, last.gives)
    else:
        result.append(Element(begun.low, high, begun.gives))


def _next(value: bytes) -> int:
    return int.from_bytes(value) + 1


# --- attributes -------------------------------------------------------------------------------------------------


def _number(data: bytes) -> int:
    return int.from_bytes(data)


def _size(data: bytes) -> int:
    """Of what is in registers.  ValueError if it does not fit them."""
    number = _number(data)
    if not 0 < number <= REGISTERS:
        raise ValueError(number)
    return number


def _data(attribute: bytes) -> bytes:
    return w.attrs(attribute)[b.DATA_VALUE]


def _register(data: bytes) -> int:
    """As the number of its first four bytes.  The older names are of sixteen each."""
    number = _number(data)
    if number == 0:
        return VERDICT
    return (number - 1) * 4 if number <= 4 else number - 8
