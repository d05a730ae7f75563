"""What is in our tables, as far as it tells that somebody changed them."""

import struct
from collections.abc import Iterator
from ipaddress import ip_address

import msgspec

from flock.core.policy.dropping import COUNTERS
from flock.core.policy.elements import (
    ARP_TABLE,
    BIND_TABLE,
    DESTINATION,
    ORIGINAL_TABLE,
    SOURCE,
    TABLE,
    TABLES,
    Element,
    element_text,
)
from flock.core.policy.layout import Content
from flock.core.policy.numbers import Numbered, PodNumbers
from flock.core.policy.rendered import Expected, ExpectedOfPod
from flock.edge.netlink import wire as w
from flock.edge.nft import batch as b
from flock.edge.nft.socket import NftSocket

SET_FLAGS, SET_ANONYMOUS, SET_MAP, SET_DYNAMIC = 3, 0x1, 0x8, 0x20
OBJECT_NAME, OBJECT_TYPE, OBJECT_DATA = 2, 3, 4
COUNTER_TYPE, COUNTER_PACKETS = 1, 2


class Counted(msgspec.Struct, frozen=True):
    """Packets dropped since the tables were last made anew; and connections let through that audited policies would not
    have."""

    ingress: int = 0
    egress: int = 0
    spoofed: int = 0
    walled: int = 0
    overfull: int = 0
    spoofed_arp: int = 0
    audited: int = 0


def sources() -> dict[str, list[str]]:
    """Addresses each pod may send from by the rules in force, by its interface; in the calling thread's namespace."""
    found: dict[str, list[str]] = {}
    with NftSocket() as socket:
        for name in ("sources6", "sources4"):
            for key in elements(socket, TABLE, name):
                interface, address = w.as_text(key[: b.INTERFACE_SIZE]), key[b.INTERFACE_SIZE :]
                found.setdefault(interface, []).append(str(ip_address(address)))
    return found


def originals(socket: NftSocket) -> bool:
    """Are rules of the original flock there?"""
    return bool(socket.ask(b.GETTABLE, b.header(ORIGINAL_TABLE), dump=False))


def observe(socket: NftSocket) -> Expected:
    """Rules by chain and elements by set, in the form the renderer expects them."""
    rules: dict[str, int] = {}
    counts: dict[str, int] = {}
    for table in (TABLE, BIND_TABLE):
        rules |= dict.fromkeys(_names(socket, table, b.GETCHAIN, b.CHAIN_NAME), 0)
        for found in _dump(socket, table, b.GETRULE):
            rules[w.as_text(found[b.RULE_CHAIN])] += 1
        for name in _names(socket, table, b.GETSET, b.SET_NAME):
            counts[name] = len(elements(socket, table, name))
    return Expected(rules, counts)


def lacking(socket: NftSocket, expected: ExpectedOfPod) -> list[str]:
    """What of one pod's is not there, in words.  Asks by key and by chain, so it costs what the pod has."""
    found = [
        f"{element.table} {element.set} lacks {element_text(element, full=False)}"
        for element in expected.elements
        if not _has(socket, element)
    ]
    for (table, chain), count in expected.rules.items():
        rules = sum(1 for _ in _dump(socket, table, b.GETRULE, w.text(b.RULE_CHAIN, chain)))
        if rules != count:
            found.append(f"{table} chain {chain} has {rules} rules, expected {count}")
    return found


def _has(socket: NftSocket, element: Element) -> bool:
    """With that verdict, if it is in a map."""
    for answer in socket.ask(b.GETSETELEM, b.question(element), dump=False):
        for found in w.items(w.attrs(answer, 4).get(b.ELEMENTS, b"")):
            data = w.attrs(w.attrs(found).get(b.ELEMENT_DATA, b""))
            chain = w.attrs(data.get(b.DATA_VERDICT, b"")).get(b.VERDICT_CHAIN, b"")
            return w.as_text(chain) == element.verdict.partition(" ")[2]
    return False


def existing(socket: NftSocket) -> dict[str, Content]:
    """Names of everything in our tables, for a script that replaces it."""
    return {
        table: Content(
            _names(socket, table, b.GETCHAIN, b.CHAIN_NAME),
            [
                ("map" if _flags(found) & SET_MAP else "set", w.as_text(found[b.SET_NAME]))
                for found in _dump(socket, table, b.GETSET)
                if not _flags(found) & SET_ANONYMOUS
            ],
        )
        for table in TABLES
    }


def elements(socket: NftSocket, table: str, name: str) -> list[bytes]:
    """The keys of a set's elements."""
    body = b.header(table) + w.text(b.ELEMENTS_SET, name)
    found = []
    for answer in socket.ask(b.GETSETELEM, body, dump=True):
        for element in w.items(w.attrs(answer, 4).get(b.ELEMENTS, b"")):
            found.append(w.attrs(w.attrs(element)[b.ELEMENT_KEY])[b.DATA_VALUE])
    return found


def numbers(socket: NftSocket) -> dict[str, PodNumbers]:
    """Each pod's numbers as the kernel has them, by interface: they outlive the agent there."""
    current, earlier = _numbers(socket, "pods"), _numbers(socket, "earlier")
    found = {}
    for name in {name for name, _ in (*current, *earlier)}:
        sides = []
        for side in (SOURCE, DESTINATION):
            had = sorted(earlier.get((name, side), ()))
            now = current.get((name, side), had[-1:])  # one that is not settled is an earlier one only
            sides += [Numbered(now[0], tuple(had))] if now else []
        if len(sides) == 2:
            found[name] = PodNumbers(source=sides[0], destination=sides[1])
    return found


def _numbers(socket: NftSocket, set_: str) -> dict[tuple[str, int], list[int]]:
    """By interface and half of the mark."""
    found: dict[tuple[str, int], list[int]] = {}
    for key in elements(socket, TABLE, set_):
        name, mark = w.as_text(key[: b.INTERFACE_SIZE]), w.as_u32(key[b.INTERFACE_SIZE :])
        side = SOURCE if mark & SOURCE else DESTINATION
        found.setdefault((name, side), []).append(mark & 0xFFFF or mark >> 16)
    return found


def dropped(socket: NftSocket) -> Counted:
    counts: dict[str, int] = {}
    for table, suffix in ((TABLE, ""), (ARP_TABLE, "_arp")):
        for found in _dump(socket, table, b.GETOBJ, w.attr(OBJECT_TYPE, struct.pack(">I", COUNTER_TYPE))):
            field = COUNTERS[w.as_text(found[OBJECT_NAME])]
            counts[field + suffix] = int(struct.unpack(">Q", w.attrs(found[OBJECT_DATA])[COUNTER_PACKETS])[0])
    return Counted(**counts)


def _dump(socket: NftSocket, table: str, kind: int, filter_: bytes = b"") -> Iterator[w.Attrs]:
    """All objects of a kind; not every kernel filters all kinds by table."""
    for body in socket.ask(kind, b.header(table) + filter_, dump=True):
        found = w.attrs(body, 4)
        if w.as_text(found[b.TABLE_NAME]) == table.split(" ")[1]:
            yield found


def _names(socket: NftSocket, table: str, kind: int, attribute: int) -> list[str]:
    """Of the chains or sets of a table, without nameless sets that belong to rules, and those that packets fill."""
    return [
        w.as_text(found[attribute])
        for found in _dump(socket, table, kind)
        if kind != b.GETSET or not _flags(found) & (SET_ANONYMOUS | SET_DYNAMIC)
    ]


def _flags(found: w.Attrs) -> int:
    return int(struct.unpack(">I", found.get(SET_FLAGS, bytes(4)))[0])
