"""What a routing daemon of the lab is told, and what it tells back, whichever daemon it is.

`mirror` makes `Speaker`s from NodeConfigs, the `router_*` modules translate them into each daemon's configuration
and its tables back into `Routes` and `Session`s.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from flock.core.nodeconfig import Family
from flock.core.nodeconfig.shape import BFD, OSPFInterface
from flock.lab.hosts import Host

Kind = Literal["bird", "frr", "gobgp"]

# Prefix -> next hops of its best routes, sorted; what the daemon learned from others, not what it originates.
Routes = Mapping[str, tuple[str, ...]]

# What every router may spread one prefix over; more replicas than anyone starts in a lab.
MULTIPATH = 8


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """The far end of one BGP session."""

    name: str  # the element it belongs to
    address: str
    interface: str | None = None  # ours towards a link-local address
    asn: int
    local_address: str
    families: tuple[Family, ...]
    hold_time: int
    bfd: BFD
    multihop: int | None = None
    ttl_security: bool = False
    password: str | None = None
    default_route: bool = False  # announce the way out to it

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


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One BGP session as its daemon sees it."""

    peer: str  # the element at the other end
    address: str
    up: bool
    state: str  # the daemon's word: Established, Active, Connect ...
    received: int = 0  # prefixes
    bfd: str = ""  # up, down ...; empty where there is no BFD
    since: str = ""  # in the daemon's words, where it tells
    last_error: str = ""

    @property
    def settled(self) -> bool:
        """Up, watched by BFD where that is asked for, and the first routes are in."""
        return self.up and self.bfd in ("", "up") and self.received > 0


class Router(ABC):
    """A routing daemon in its namespace.  Starting a running one and stopping a stopped one change nothing."""

    def __init__(self, host: Host, speaker: Speaker) -> None:
        self.host = host
        self.speaker = speaker

    @abstractmethod
    def start(self) -> None:
        """Write the configuration and run the daemon; returns when it answers, raises LabError when it does not."""

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def routes(self) -> Routes: ...

    @abstractmethod
    def sessions(self) -> tuple[Session, ...]: ...

    def _write(self, name: str, text: str) -> Path:
        """A file of the daemon's, which may hold passwords."""
        self.host.home.mkdir(parents=True, exist_ok=True)
        path = self.host.home / name
        path.write_text(text)
        path.chmod(0o600)
        return path
