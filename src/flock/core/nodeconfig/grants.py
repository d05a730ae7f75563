"""May this namespace have this address?  (Invariant 9.)

A node's own aggregates are its pods' to use.  Beyond them an address is granted by an `allowed` entry of the
NodeConfig, to the namespaces it selects.  Over both stand addresses nobody may have: reserved ones, the routers',
and those of nodes and their networks.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import Literal

from flock.core.nodeconfig.shape import Address, Network, NodeConfig
from flock.core.reserved import reserved


def grants(
    config: NodeConfig,
    *,
    kind: Literal["anycast", "addresses"],
    address: Address,
    namespace_labels: Mapping[str, str],
) -> bool:
    """Does the NodeConfig hand the address to the namespace?  Says nothing of addresses nobody may have."""
    allowed = config.anycast.allowed if kind == "anycast" else config.addresses.allowed
    return _within(address, config.aggregates) is not None or any(
        _within(address, grant.prefixes) is not None
        and (grant.namespace_selector is None or grant.namespace_selector.fits(namespace_labels))
        for grant in allowed
    )


def refusal(
    config: NodeConfig,
    *,
    kind: Literal["anycast", "addresses"],
    address: Address,
    namespace_labels: Mapping[str, str],
    forbidden: Iterable[Network],
) -> str | None:
    """Why the namespace may not have the address; None if it may.

    `forbidden` are the nodes' addresses (as /128 and /32) and the networks they are on.  Where a node's network
    and one of its aggregates overlap, the narrower one decides, so an aggregate may be carved out of a wide LAN.
    """
    if class_ := reserved(address):
        return f"{address} is {class_}"
    peers = config.bgp.peers if config.bgp else ()
    routers = (ip_network(peer.address) for peer in peers if peer.zone is None)
    taken = _within(address, (*forbidden, *routers))
    own = _within(address, config.aggregates)
    if taken is not None and (own is None or taken.prefixlen >= own.prefixlen):
        return f"{address} belongs to a node, a router or their network ({taken})"
    if not grants(config, kind=kind, address=address, namespace_labels=namespace_labels):
        return f"{address} is outside this node's aggregates and no entry of spec.{kind}.allowed grants it here"
    return None


def _within(address: Address, networks: Iterable[Network]) -> Network | None:
    """The narrowest network that holds the address."""
    return max((n for n in networks if address in n), key=lambda n: n.prefixlen, default=None)
