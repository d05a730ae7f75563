"""ipBlocks of one rule → the addresses they allow: disjoint spans, sorted, as few as there can be.

Worked on ranges of integers: take the exceptions out of each block and unite what is left.  That is linear in the
exceptions (after sorting), where taking networks out of networks one by one is not, and multiplies: one /128 out of
::/0 leaves 128 networks, and two spans.
"""

import re
from collections.abc import Iterable, Iterator
from ipaddress import ip_network

import msgspec

from flock.core.policy.compiled import Network, Span

Range = tuple[int, int]

# `ip_network` also takes integers, bare addresses, netmasks and zones, none of which the API does.
_CIDR = re.compile(r"[0-9A-Fa-f.:]+/[0-9]{1,3}")


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


def united(blocks: Iterable[Block]) -> tuple[Span, ...]:
    """What the blocks allow together, IPv4 first: no more than there are blocks and exceptions."""
    return joined(Span(block.network.version, first, last) for block in blocks for first, last in _without(block))


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same addresses in as few spans as there can be, IPv4 first."""
    kept = list(spans)
    return tuple(
        Span(version, first, last)
        for version in (4, 6)
        for first, last in _united((span.first, span.last) for span in kept if span.version == version)
    )


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
