"""May this namespace have this address?  (Invariant 9.)

An address that an `allowed` entry of the NodeConfig names is for the namespaces the entry selects, whoever comes
first, and inside the node's own aggregates too.  Any other address of an aggregate is for whoever names it first, one
namespace at a time.  Over both stand addresses nobody may have: reserved ones, the routers', those of nodes and their
networks, and the aggregates' own network, gateway and broadcast addresses.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Literal, TypeVar

import msgspec

from flock.core.facts import Address, Network
from flock.core.nodeconfig.shape import Grant, NodeConfig
from flock.core.pools import usable
from flock.core.reserved import reserved

Kind = Literal["anycast", "addresses"]
G = TypeVar("G", bound=Grant)
Labels = Mapping[str, str]


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """By what right a namespace may have an address.  `refusal` says why it may not; empty if it may."""

    refusal: str = ""
    ungranted: bool = False  # refused for want of an entry that selects the namespace: another configuration may
    granted: bool = False  # by an entry of that kind: all namespaces it selects may have it, at once if it is anycast
    pool: Network | None = None  # the aggregate whose pool has one address less for it


def grants(config: NodeConfig, *, kind: Kind, address: Address, namespace_labels: Labels) -> bool:
    """Does an `allowed` entry hand the address to the namespace?  Says nothing of addresses nobody may have, nor of
    the node's own aggregates."""
    return any(_selects(grant, namespace_labels) for grant in _naming(_allowed(config, kind), address))


def right(
    config: NodeConfig,
    *,
    kind: Kind,
    address: Address,
    namespace_labels: Labels,
    forbidden: Iterable[Network],
) -> Right:
    """`forbidden` are the nodes' addresses (as /128 and /32) and the networks they are on.  Where a node's network
    and one of its aggregates overlap, the narrower one decides, so an aggregate may be carved out of a wide LAN."""
    if class_ := reserved(address):
        return Right(refusal=f"{address} is {class_}")
    taken = _within(address, (*forbidden, *_routers(config)))
    own = _within(address, config.aggregates)
    if taken is not None and (own is None or taken.prefixlen >= own.prefixlen):
        return Right(refusal=f"{address} belongs to a node, a router or their network ({taken})")
    granted = grants(config, kind=kind, address=address, namespace_labels=namespace_labels)
    if own is None:
        return Right(granted=True) if granted else Right(refusal=_nothing_grants(address, kind), ungranted=True)
    naming = [*_naming((*config.anycast.allowed, *config.addresses.allowed), address)]
    if naming and not any(_selects(grant, namespace_labels) for grant in naming):
        others = f"{address} is for namespaces that an entry of spec.anycast.allowed or spec.addresses.allowed selects"
        return Right(refusal=f"{others}, and this is none of them", ungranted=True)
    if not naming and any(_narrower(p, own) and address in p for p in _prefixes(config.services.allowed)):
        return Right(refusal=f"{address} is for Services, by an entry of spec.services.allowed", ungranted=True)
    if not _given(address, own, by_name=granted):
        return Right(refusal=f"{address} is the network, gateway or broadcast address of {own}")
    apart = any(p.prefixlen > own.prefixlen and address in p for grant in naming for p in grant.prefixes)
    return Right(granted=granted, pool=None if apart else own)


def service_refusal(
    config: NodeConfig,
    *,
    address: Address,
    namespace_labels: Labels,
    service_labels: Labels,
    forbidden: Iterable[Network],
) -> str:
    """Why a Service's address is not announced here; empty if it may be.  Nothing is unless an entry grants it, inside
    the node's aggregates too; where what it names and a node's network overlap, the narrower one decides."""
    if class_ := reserved(address):
        return f"{address} is {class_}"
    granting = (
        grant
        for grant in _naming(config.services.allowed, address)
        if _selects(grant, namespace_labels)
        and (grant.service_selector is None or grant.service_selector.fits(service_labels))
    )
    granted = _within(address, _prefixes(granting))
    if granted is None:
        return "no entry of spec.services.allowed grants it to this Service"
    taken = _within(address, (*forbidden, *_routers(config)))
    if taken is not None and taken.prefixlen >= granted.prefixlen:
        return f"{address} belongs to a node, a router or their network ({taken})"
    return ""


def set_aside(config: NodeConfig) -> tuple[Network, ...]:
    """What no pool gives out: what grants name inside the aggregates, and the aggregates' own addresses.

    A grant around a whole aggregate speaks of what lies beyond it, and does not close its pool.
    """
    prefixes = _prefixes((*config.anycast.allowed, *config.addresses.allowed, *config.services.allowed))
    inside = [p for p in prefixes if any(_narrower(p, own) for own in config.aggregates)]
    found = [*inside, *(edge for own in config.aggregates for edge in _edges(own))]
    six = collapse_addresses(n for n in found if isinstance(n, IPv6Network))
    four = collapse_addresses(n for n in found if isinstance(n, IPv4Network))
    return (*six, *four)


# --- inside -------------------------------------------------------------------------------------------------


def _allowed(config: NodeConfig, kind: Kind) -> tuple[Grant, ...]:
    return config.anycast.allowed if kind == "anycast" else config.addresses.allowed


def _routers(config: NodeConfig) -> Iterator[Network]:
    peers = config.bgp.peers if config.bgp else ()
    return (ip_network(peer.address) for peer in peers if peer.zone is None)


def _prefixes(allowed: Iterable[Grant]) -> Iterator[Network]:
    return (prefix for grant in allowed for prefix in grant.prefixes)


def _naming(allowed: Iterable[G], address: Address) -> Iterator[G]:
    return (grant for grant in allowed if _within(address, grant.prefixes) is not None)


def _selects(grant: Grant, namespace_labels: Labels) -> bool:
    return grant.namespace_selector is None or grant.namespace_selector.fits(namespace_labels)


def _narrower(prefix: Network, own: Network) -> bool:
    return prefix.prefixlen > own.prefixlen and prefix.network_address in own


def _edges(own: Network) -> list[Network]:
    """Network and gateway address, and the broadcast address of IPv4."""
    if isinstance(own, IPv6Network):
        return [IPv6Network((own.network_address, 127))]
    return [IPv4Network((own.network_address, 31)), IPv4Network(own.broadcast_address)]


def _given(address: Address, own: Network, *, by_name: bool) -> bool:
    """As the pool gives addresses, but the gateway's may be had if an operator says so."""
    first, last = usable(own)
    return first <= int(address) <= last or (by_name and int(address) == first - 1)


def _nothing_grants(address: Address, kind: Kind) -> str:
    return f"{address} is outside this node's aggregates and no entry of spec.{kind}.allowed grants it here"


def _within(address: Address, networks: Iterable[Network]) -> Network | None:
    """The narrowest network that holds the address."""
    return max((n for n in networks if address in n), key=lambda n: n.prefixlen, default=None)
