"""Addresses that are not simply somebody's: what a packet from or to one comes to before any policy is asked.  Pure.

On a pod's link are the pod and its node, nobody else; what is meant for one link, or for one host, goes no further.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address

from flock.core.naming import GATEWAY6
from flock.core.policy.compiled import Address

_GATEWAY = IPv6Address(GATEWAY6)
_BROADCAST = IPv4Address("255.255.255.255")


def plain(text: str) -> Address:
    """As a packet carries it: without the link it is asked about, and IPv4 as IPv4.  ValueError."""
    address = ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def no_source(address: Address) -> str:
    """Why no packet comes from there; empty if one may."""
    if address.is_unspecified or address.is_multicast or address == _BROADCAST:
        return f"{address} is nobody's address"
    return ""


def is_nodes(address: Address) -> bool:
    """Whether it is the node that hears what a pod sends there: by the pod's gateway, or as all do on the link."""
    return address in (_GATEWAY, _BROADCAST) or _is_of_a_link(address)


def unreachable(source: Address, destination: Address) -> str:
    """Why no packet gets from one to the other, whatever policies say; empty if it may."""
    if source.is_loopback and not destination.is_loopback:
        return f"walled off: {source} is each host's own, and nothing comes from there"
    if destination.is_multicast and not _is_of_a_link(destination):
        return f"{destination} is multicast, which is not routed"
    for address in (source, destination):
        if address.version == 6 and address.is_link_local and address != _GATEWAY:
            return f"{address} is known on its own link alone; on a pod's link there is its node, {GATEWAY6}"
    return ""


def _is_of_a_link(address: Address) -> bool:
    """Multicast that no router passes on."""
    if isinstance(address, IPv6Address):
        return address.is_multicast and address.packed[1] & 0xF <= 2
    return address.is_multicast and address.packed[:3] == bytes([224, 0, 0])
