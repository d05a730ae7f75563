"""What a routing daemon beside flock's nodes is told, whichever daemon it is.

`asked` makes `Speaker`s from NodeConfigs for routers anywhere, the lab's `mirror` for its own; one module per daemon
translates them into its configuration.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from flock.core.naming import fnv1a32
from flock.core.nodeconfig import Family
from flock.core.nodeconfig.shape import BFD, NO_BFD, OSPFInterface

# What every router may spread one prefix over; more replicas than anyone starts in a lab.
MULTIPATH = 8
# Of a name inside of an identifier: BIRD's symbols end at 63, and FRR's at 64, with a word of ours behind them.
_LONGEST = 40


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken from a node: its aggregates as they are, and single addresses inside of `hosts`."""

    aggregates: tuple[str, ...]
    hosts: tuple[str, ...]

    def of(self, family: Family) -> tuple[list[str], list[str]]:
        six = family == "ipv6"
        return [a for a in self.aggregates if (":" in a) == six], [h for h in self.hosts if (":" in h) == six]


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """The far end of one BGP session."""

    name: str  # the element it belongs to
    address: str
    interface: str | None = None  # ours towards a link-local address
    asn: int
    local_address: str
    families: tuple[Family, ...]
    hold_time: int
    bfd: BFD = NO_BFD
    multihop: int | None = None
    ttl_security: bool = False
    password: str | None = None
    default_route: bool = False  # announce the way out to it
    only_default: bool = False  # and nothing else
    accepted: Accepted | None = None  # None: whatever it announces
    mark: str = ""  # what tells its session from others that would be called alike

    @property
    def session(self) -> str:
        """A name that every daemon takes as an identifier, unique among the neighbours of a speaker (`distinct`)."""
        plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in shortened(self.name, _LONGEST))
        begun = f"_{plain}" if plain[:1].isdecimal() else plain
        return f"{begun}_{'6' if ':' in self.address else '4'}{self.mark}"


def distinct(neighbours: Iterable[Neighbour]) -> tuple[Neighbour, ...]:
    """The same, no two sessions of them called alike: nodes `a.b` and `a-b` may be, and two links to one node are.
    What a session is called does not depend on the order."""
    neighbours = tuple(neighbours)
    alike = Counter(n.session for n in neighbours)
    return tuple(msgspec.structs.replace(n, mark=f"_{_mark(n)}") if alike[n.session] > 1 else n for n in neighbours)


def _mark(n: Neighbour) -> str:
    return f"{fnv1a32(f'{n.name} {n.address} {n.interface} {n.local_address}'.encode()):08x}"


def shortened(name: str, longest: int) -> str:
    """Its beginning and a number made of the whole, where it is longer."""
    return name if len(name) <= longest else f"{name[: longest - 9]}-{fnv1a32(name.encode()):08x}"


class OspfLink(msgspec.Struct, frozen=True, kw_only=True):
    """An interface that speaks OSPF: the node's own settings, on our interface."""

    interface: str
    area: str
    families: tuple[Family, ...]
    settings: OSPFInterface
    password: str | None = None


class Speaker(msgspec.Struct, frozen=True, kw_only=True):
    """One daemon's job."""

    name: str
    asn: int
    router_id: str
    neighbours: tuple[Neighbour, ...]
    ospf: tuple[OspfLink, ...] = ()
    connected: bool = True  # announce the networks it is on, as routers do and the node has to guard against
    aggregates: tuple[str, ...] = ()  # announced, and a blackhole for what no more specific route claims
    learn: bool = False  # announce routes that someone puts into the kernel with `proto static`
    source: tuple[str, ...] = ()  # own addresses that the kernel uses towards learned routes
