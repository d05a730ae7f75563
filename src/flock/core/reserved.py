"""Addresses that mean something to the network stack itself: no pod, aggregate or peer can have one (invariant 9)."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

_CLASSES: tuple[tuple[IPv4Network | IPv6Network, str], ...] = tuple(
    (ip_network(prefix), name)
    for prefix, name in (
        ("::/128", "the unspecified address"),
        ("::1/128", "the loopback address"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
        ("0.0.0.0/8", '"this network"'),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "the broadcast address"),
        ("240.0.0.0/4", "reserved for future use"),  # routers drop it
    )
)


def reserved(address: IPv4Address | IPv6Address) -> str | None:
    """What the address is reserved for, None if for nothing."""
    return next((name for prefix, name in _CLASSES if address in prefix), None)


def reserved_overlap(network: IPv4Network | IPv6Network) -> str | None:
    """A class the network contains, touches or lies in, with its prefix."""
    return next((f"{name} ({prefix})" for prefix, name in _CLASSES if prefix.overlaps(network)), None)


def reserved_whole(network: IPv4Network | IPv6Network) -> str | None:
    """What every address of the network is reserved for."""
    return next((n for p, n in _CLASSES if p.overlaps(network) and p.prefixlen <= network.prefixlen), None)
