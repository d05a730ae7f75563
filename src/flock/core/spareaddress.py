"""An address that a check may announce from several nodes for a moment: granted by all of them, and nobody's.  Pure."""

from collections.abc import Callable, Collection, Mapping, Sequence
from ipaddress import ip_network
from typing import Any

import msgspec

from flock.core.facts import Network
from flock.core.selectors import LabelSelector

TRIES = 32  # draws until a prefix counts as full


def spare_addresses(
    specs: Sequence[Mapping[str, Any]],
    *,
    labels: Mapping[str, str],
    taken: Collection[str],
    draw: Callable[[int], int],
) -> dict[str, str]:
    """One of each family that `spec.anycast.allowed` of every node grants a namespace with these labels, if there is.

    `draw(n)` gives a number below n.  Neither end of a prefix is drawn: somebody may think of them as its own.
    """
    if not specs:
        return {}
    first, *others = ([*_granted(spec, labels)] for spec in specs)
    found: dict[str, str] = {}
    for prefix in first:
        shared = all(any(_holds(wider, prefix) for wider in other) for other in others)
        inside = prefix.num_addresses - 2
        for _ in range(TRIES if shared and inside > 0 else 0):
            address = str(prefix[1 + draw(inside)])
            if address not in taken:
                found.setdefault("ipv6" if ":" in address else "ipv4", address)
                break
    return found


def _granted(spec: Mapping[str, Any], labels: Mapping[str, str]) -> list[Network]:
    return [
        ip_network(prefix)
        for grant in spec.get("anycast", {}).get("allowed", ())
        if msgspec.convert(grant.get("namespaceSelector") or {}, LabelSelector).fits(labels)
        for prefix in grant["prefixes"]
    ]


def _holds(wider: Network, prefix: Network) -> bool:
    return wider.version == prefix.version and prefix.subnet_of(wider)  # type: ignore[arg-type]
