"""allocations.json as values: what is on record, how a change changes it, and the text that says so.

Entries are kept as encoded fragments too: encoding a thousand of them anew whenever the file is written would take
longer than writing it.
"""

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Self

import msgspec

from flock.core.errors import StoreFailure
from flock.core.model import Allocation, Released
from flock.core.naming import POD_INTERFACE, host_interface

VERSION = 1
PIECE = 64  # entries, some 30 kB


class Continued(msgspec.Struct, frozen=True):
    """Where the file goes on: in the journal that says the same id, after the change of this number."""

    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    through: Annotated[int, msgspec.Meta(ge=1, lt=2**62)]


class Content(msgspec.Struct):
    version: int
    node: str = ""
    allocations: list[Allocation] | None = None
    released: list[Released] | None = None
    journal: Continued | None = None  # None: written by the original, by an early version, or by hand


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """`allocation` is None: the container is forgotten, and what is `released` is at rest from now on.

    `unfinished`: it was written ahead, and is `pending` until it is noted as finished."""

    container_id: str
    allocation: Allocation | None = None
    released: tuple[Released, ...] = ()
    unfinished: bool = False


class Whole(msgspec.Struct, frozen=True):
    """What the file says at one moment, whatever changes meanwhile."""

    fragments: Sequence[bytes]
    released: Sequence[Released]

    def encode(self, *, node: str, journal: Continued) -> Iterator[bytes]:
        """In pieces: one copy of half a megabyte would keep all other threads from running for half a millisecond."""
        head = b'{\n  "version": 1,\n  "node": %s,\n  "allocations": [' % msgspec.json.encode(node)
        yield head + b"\n" if self.fragments else head
        for end in range(PIECE, len(self.fragments) + PIECE, PIECE):
            more = (b"",) if end < len(self.fragments) else ()
            yield b",\n".join((*self.fragments[end - PIECE : end], *more))
        rest = msgspec.json.encode(self.released), msgspec.json.encode(journal)
        yield (b"\n  " if self.fragments else b"") + b'],\n  "released": %s,\n  "journal": %s\n}\n' % rest


class Record:
    """Who holds which address, and which are at rest."""

    def __init__(self, *, cooldown: float) -> None:
        self._cooldown = cooldown
        self.entries: dict[str, Allocation] = {}
        self.released: dict[str, Released] = {}  # in the order of release
        self._fragments: dict[str, bytes] = {}

    def take(self, content: Content) -> None:
        for allocation in content.allocations or ():
            self._enter(allocation)
        self.released = {r.address: r for r in content.released or ()}

    def apply(self, changes: Iterable[Change]) -> None:
        """Costs what changes, not what is there."""
        for change in changes:
            if change.allocation is None:
                self.entries.pop(change.container_id, None)
                self._fragments.pop(change.container_id, None)
            elif change.unfinished:
                self._enter(_half_made(change.allocation))
            else:
                self._enter(change.allocation)
                for address in change.allocation.held:
                    self.released.pop(address, None)
            for entry in change.released:
                self.released.pop(entry.address, None)
                self.released[entry.address] = entry
        self._drop_cooled()

    def _enter(self, allocation: Allocation) -> None:
        self.entries[allocation.container_id] = allocation
        self._fragments[allocation.container_id] = fragment(allocation)

    def _drop_cooled(self) -> None:
        """The newest tells the time, so no clock is needed."""
        if not self.released:
            return
        latest = next(reversed(self.released.values())).at
        cooled = []
        for entry in self.released.values():
            if entry.at + self._cooldown > latest:
                break
            cooled.append(entry.address)
        for address in cooled:
            del self.released[address]

    def whole(self) -> Whole:
        return Whole(tuple(self._fragments.values()), tuple(self.released.values()))

    def changed_by(self, changes: Iterable[Change]) -> Self:
        other = type(self)(cooldown=self._cooldown)
        other.entries, other.released = dict(self.entries), dict(self.released)
        other._fragments = dict(self._fragments)
        other.apply(changes)
        return other


def decode(raw: bytes, *, where: str) -> Content:
    """StoreFailure, which says `where`, for what is not a version 1 file."""
    try:
        content = msgspec.json.decode(raw, type=Content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreFailure(
            f"cannot parse {where}: {error}", details="repair the file or move it away; the agent looks again by itself"
        ) from None
    if content.version != VERSION:
        raise StoreFailure(f"{where} has version {content.version}, this agent knows version {VERSION}")
    entries = [_canonical(a, where) for a in content.allocations or ()]
    if len({a.container_id for a in entries}) != len(entries):
        raise StoreFailure(f"{where} lists a container twice")
    resting = f"{where}: released"
    released = [Released(_canonical_address(r.address, resting), r.at, r.namespace) for r in content.released or ()]
    return Content(content.version, content.node, entries, sorted(released, key=lambda r: r.at), content.journal)


def completed(allocation: Allocation) -> Allocation:
    """The original recorded no interfaces: its name for the host's follows from the container."""
    return msgspec.structs.replace(
        allocation,
        ifname=allocation.ifname or POD_INTERFACE,
        host_interface=allocation.host_interface or host_interface(allocation.container_id),
    )


def _half_made(allocation: Allocation) -> Allocation:
    """As it is on record until it is finished: a namespace is that of a pod whose link was there."""
    return msgspec.structs.replace(allocation, state="pending", netns_id="", netns_cookie=0, boot_id="")


def fragment(allocation: Allocation) -> bytes:
    """The entry as it stands in the file: indented, so that a human can read it."""
    text = msgspec.json.format(msgspec.json.encode(allocation), indent=2)
    return b"    " + text.replace(b"\n", b"\n    ")


def _canonical(allocation: Allocation, file: str) -> Allocation:
    """One spelling per address, whoever wrote the file: two spellings of one address once freed a live one."""
    where = f"{file}: container {allocation.container_id}"
    return msgspec.structs.replace(
        completed(allocation),
        ip6=allocation.ip6 and _canonical_address(allocation.ip6, f"{where}: ip6", ipaddress.IPv6Address),
        ip4=allocation.ip4 and _canonical_address(allocation.ip4, f"{where}: ip4", ipaddress.IPv4Address),
        anycast=tuple(_canonical_address(a, where) for a in allocation.anycast),
        addresses=tuple(_canonical_address(a, where) for a in allocation.addresses),
    )


def _canonical_address(
    text: str, where: str, parse: Callable[[str], ipaddress.IPv4Address | ipaddress.IPv6Address] = ipaddress.ip_address
) -> str:
    try:
        return str(parse(text))
    except ValueError:
        raise StoreFailure(f"{where}: {text!r} is not an address of that kind") from None
