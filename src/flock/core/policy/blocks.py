"""ipBlocks of one rule → the networks they allow: disjoint, sorted, as few as there can be.

Worked on ranges of integers: take the exceptions out of each block, unite what is left, and only then cut it into
networks.  That is linear in the exceptions (after sorting), where taking networks out of networks one by one is not.
Cutting may still multiply: one /128 out of ::/0 leaves 128 networks, so the caller gives a bound.
"""

import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_network, summarize_address_range
from itertools import islice

import msgspec

from flock.core.policy.compiled import Network

Range = tuple[int, int]

# `ip_network` also takes integers, bare addresses, netmasks and zones, none of which the API does.
_CIDR = re.compile(r"[0-9A-Fa-f.:]+/[0-9]{1,3}")


class TooMany(ValueError):
    """More networks than the bound."""


class Block(msgspec.Struct, frozen=True):
    """One ipBlock; exceptions are inside the network."""

    network: Network
    exceptions: tuple[Network, ...] = ()


def parse_cidr(text: object) -> Network:
    """Bits beyond the prefix are dropped, as the API does.  Raises ValueError with the problem in words."""
    if not isinstance(text, str):
        raise ValueError("must be a text such as 192.0.2.0/24")
    if not _CIDR.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no network such as 192.0.2.0/24 or 2001:db8::/32")
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise ValueError(f"{text[:80]!r} is no network: {error}") from None


def networks(blocks: Iterable[Block], *, bound: int) -> tuple[Network, ...]:
    """What the blocks allow together, IPv4 first.  Raises TooMany."""
    found: list[Network] = []
    kept = list(blocks)
    for version in (4, 6):
        ranges = [left for block in kept if block.network.version == version for left in _without(block)]
        for first, last in _united(ranges):
            # islice: a range is cut into 2 x 128 networks at most, but there may be thousands of ranges
            found.extend(islice(_cut(version, first, last), bound + 1 - len(found)))
            if len(found) > bound:
                raise TooMany(f"more than {bound} networks are left when the exceptions are taken out")
    return tuple(found)


def spans(networks: Iterable[Network]) -> Iterator[str]:
    """Disjoint networks of one family, sorted, in as few words as possible: `10.0.0.0/8`, `10.1.0.1-10.1.0.9`.

    Exceptions cut a block into many networks, which are still no more ranges than there are exceptions."""
    joined: list[tuple[Network, Network]] = []
    for network in networks:
        if joined and int(joined[-1][1].broadcast_address) + 1 == int(network.network_address):
            joined[-1] = joined[-1][0], network
        else:
            joined.append((network, network))
    for first, last in joined:
        yield str(first) if first == last else f"{first.network_address}-{last.broadcast_address}"


def _range(network: Network) -> Range:
    return int(network.network_address), int(network.broadcast_address)


def _without(block: Block) -> Iterator[Range]:
    start, end = _range(block.network)
    for first, last in _united(map(_range, block.exceptions)):
        if start < first:
            yield start, first - 1
        start = last + 1
    if start <= end:
        yield start, end


def _united(ranges: Iterable[Range]) -> Iterator[Range]:
    """The same numbers in as few ranges as possible, sorted."""
    current: Range | None = None
    for first, last in sorted(ranges):
        if current is None:
            current = first, last
        elif first <= current[1] + 1:
            current = current[0], max(current[1], last)
        else:
            yield current
            current = first, last
    if current is not None:
        yield current


def _cut(version: int, first: int, last: int) -> Iterator[Network]:
    if version == 4:
        return summarize_address_range(IPv4Address(first), IPv4Address(last))
    return summarize_address_range(IPv6Address(first), IPv6Address(last))
