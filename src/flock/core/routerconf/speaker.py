"""What a routing daemon beside flock's nodes is told, whichever daemon it is.

`asked` makes `Speaker`s from NodeConfigs for routers anywhere, the lab's `mirror` for its own; one module per daemon
translates them into its configuration.
"""

import msgspec

from flock.core.nodeconfig import Family
from flock.core.nodeconfig.shape import BFD, NO_BFD, OSPFInterface

# What every router may spread one prefix over; more replicas than anyone starts in a lab.
MULTIPATH = 8


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

    @property
    def session(self) -> str:
        """A name that every daemon takes as an identifier, unique among the neighbours of a speaker."""
        plain = "".join(c if c.isalnum() else "_" for c in self.name)
        return f"{plain}_{'6' if ':' in self.address else '4'}"


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
