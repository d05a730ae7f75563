"""What a pod asks for in its annotations, checked against what its node has to give.

Families first: a pod's own `ipv6`/`ipv4` beats the node's default, and a family for which the node has no CIDR is off
by default.  Then, for a family that is on, where its primary address comes from: the first address of that family in
`addresses` if there is one, otherwise a pool: the node's CIDRs, narrowed by `cidr6`/`cidr4`.  Everything wrong is an
AnnotationError that names the annotation; what is merely useless becomes a warning.  Whether the namespace may have
an address at all is not decided here (NodeConfig `allowed`, invariant 9), only that it is an address pods can have.

Choices where an operator could expect more than one thing:
- Asking for a family without a CIDR (`ipv4: "true"`) is an error, unless `addresses` brings the primary address.
- `cidr6`/`cidr4`: the first listed prefix that touches a node CIDR decides alone.  Inside a node CIDR it is the pool;
  around one or several, those are the pool, in the node's order.  Pools that cannot matter (family switched off by
  the pod, or primary taken from `addresses`) are ignored with a warning.
- Repeats within a list collapse, empty entries are skipped, and a blank value counts as absent.
- A pod without any family is an error: there would be nothing to attach.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal, TypeVar

import msgspec

from flock.core.annotations import (
    ADDRESSES,
    ANYCAST,
    BOOLEANS,
    CIDR4,
    CIDR6,
    IPV4,
    IPV6,
    MAX_ENTRIES,
    OF_PODS,
    list_items,
)
from flock.core.errors import LONGEST_FIELD, AnnotationError, FieldError, in_one_line, shown
from flock.core.facts import Address
from flock.core.fixed import NOTHING, Fixed
from flock.core.model import PREFIX
from flock.core.reserved import reserved

# IPv4 pools skip network, first host and broadcast, so nothing below a /30 has an address to give.
LONGEST_CIDR4 = 30

Network = TypeVar("Network", IPv6Network, IPv4Network)


class PodRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's wishes, ready to be allocated.  For a family that is on, either its primary or its pools are set.

    `addresses` includes the primaries taken from it; lists keep the pod's order.
    """

    ipv6: bool
    ipv4: bool
    pools6: tuple[IPv6Network, ...] = ()
    pools4: tuple[IPv4Network, ...] = ()
    primary6: IPv6Address | None = None
    primary4: IPv4Address | None = None
    narrowed6: bool = False  # the pod chose a part of a node's CIDR
    narrowed4: bool = False
    anycast: tuple[Address, ...] = ()
    addresses: tuple[Address, ...] = ()
    warnings: tuple[str, ...] = ()


class Family(msgspec.Struct, frozen=True):
    """One family's names, so that both go through the same rules."""

    version: Literal[6, 4]
    switch: str
    cidr: str
    node_cidr: str

    @property
    def name(self) -> str:
        return f"IPv{self.version}"


SIX = Family(6, switch=IPV6, cidr=CIDR6, node_cidr="spec.cidr6")
FOUR = Family(4, switch=IPV4, cidr=CIDR4, node_cidr="spec.cidr4")


def parse_annotations(
    annotations: Mapping[str, str],
    *,
    default_ipv6: bool,
    default_ipv4: bool,
    cidr6: Sequence[IPv6Network],
    cidr4: Sequence[IPv4Network],
    fixed: Fixed = NOTHING,
) -> PodRequest:
    """What the runtime asks for by its own means comes before the annotation `addresses`.

    Raises AnnotationError; FieldError where it is the runtime's wish that cannot be, or where the node's configuration
    alone leaves the pod without a family."""
    anycast = _addresses(annotations, ANYCAST)
    addresses = tuple(dict.fromkeys((*fixed.addresses, *_addresses(annotations, ADDRESSES))))
    for address in addresses:
        if address in anycast:
            problem = f"{address} is listed in {ANYCAST} as well"
            raise _error(ADDRESSES, address, fixed)(problem, details="keep one of them")
    primary6 = next((a for a in addresses if isinstance(a, IPv6Address)), None)
    primary4 = next((a for a in addresses if isinstance(a, IPv4Address)), None)

    ipv6 = _family_on(annotations, SIX, default=default_ipv6, has_cidr=bool(cidr6), primary=primary6)
    ipv4 = _family_on(annotations, FOUR, default=default_ipv4, has_cidr=bool(cidr4), primary=primary4)
    for family, on in ((SIX, ipv6), (FOUR, ipv4)):
        if not on:
            _refuse_uses_of(family, annotations, {ANYCAST: anycast, ADDRESSES: addresses}, fixed)
    if not ipv6 and not ipv4:
        raise _no_family(annotations)

    warnings = [*fixed.warnings]
    pools6 = _pools(annotations, SIX, IPv6Network, cidr6, on=ipv6, primary=primary6, warnings=warnings)
    pools4 = _pools(annotations, FOUR, IPv4Network, cidr4, on=ipv4, primary=primary4, warnings=warnings)
    unknown = sorted(key for key in annotations if key.startswith(f"{PREFIX}/") and key not in OF_PODS)
    if unknown:
        others = f" and {len(unknown) - 1} others" if len(unknown) > 1 else ""
        warnings.append(f"{in_one_line(shown(unknown[0], LONGEST_FIELD))}{others}: no such annotation, ignored")
    return PodRequest(
        ipv6=ipv6,
        ipv4=ipv4,
        pools6=pools6,
        pools4=pools4,
        narrowed6=not set(pools6) <= set(cidr6),
        narrowed4=not set(pools4) <= set(cidr4),
        primary6=primary6,
        primary4=primary4,
        anycast=anycast,
        addresses=addresses,
        warnings=tuple(warnings),
    )


# --- families -----------------------------------------------------------------------------------------------


def _switch(annotations: Mapping[str, str], family: Family) -> bool | None:
    text = annotations.get(family.switch)
    if text is None:
        return None
    if text not in BOOLEANS:
        raise AnnotationError(family.switch, f"{text!r} is not a boolean", details='use "true" or "false"')
    return BOOLEANS[text]


def _family_on(
    annotations: Mapping[str, str], family: Family, *, default: bool, has_cidr: bool, primary: Address | None
) -> bool:
    asked = _switch(annotations, family)
    if asked is None:
        return default and has_cidr
    if asked and not has_cidr and primary is None:
        raise AnnotationError(
            family.switch,
            f"asks for {family.name}, but this node has no {family.name} CIDR",
            details=f"give the node's NodeConfig a {family.node_cidr}, or the pod an address of its own in {ADDRESSES}",
        )
    return asked


def _error(key: str, address: Address, fixed: Fixed) -> Callable[..., FieldError]:
    """What is raised for an address: whoever asked for it is named."""
    if key == ADDRESSES and address in fixed.addresses:
        return fixed.error
    return partial(AnnotationError, key)


def _refuse_uses_of(
    family: Family, annotations: Mapping[str, str], lists: Mapping[str, tuple[Address, ...]], fixed: Fixed
) -> None:
    """A family that is off has no return path, so an address of it would be announced and then swallow traffic."""
    why, cure = "off by default on this node", f'set {family.switch}: "true"'
    if family.switch in annotations:
        why, cure = "switched off for this pod", f"remove {family.switch}"
    elif list_items(family.cidr, annotations.get(family.cidr, "")):
        raise AnnotationError(family.cidr, f"names a pool, but {family.name} is {why}", details=cure)
    for key, addresses in lists.items():
        for address in addresses:
            if address.version == family.version:
                problem = f"{address} needs {family.name}, which is {why}"
                raise _error(key, address, fixed)(problem, details=cure)


def _no_family(annotations: Mapping[str, str]) -> FieldError:
    off = [key for key in (IPV6, IPV4) if key in annotations]
    if off:
        return AnnotationError(off[0], "leaves the pod without IPv6 and IPv4", details="a pod needs one of them")
    return no_family_here()


def no_family_here() -> FieldError:
    return FieldError(
        "spec.defaults",
        "pods get neither IPv6 nor IPv4 on this node",
        details="see cidr6, cidr4 and defaults in its NodeConfig",
    )


# --- lists --------------------------------------------------------------------------------------------------


def _items(annotations: Mapping[str, str], key: str) -> list[str]:
    items = list_items(key, annotations.get(key, ""))
    if len(items) > MAX_ENTRIES:
        raise AnnotationError(key, f"{len(items)} entries, at most {MAX_ENTRIES} are taken")
    return items


def _addresses(annotations: Mapping[str, str], key: str) -> tuple[Address, ...]:
    found: dict[Address, None] = {}
    for item in _items(annotations, key):
        try:
            address = ip_address(item)
        except ValueError:
            raise AnnotationError(key, f"{_quoted(item)} is not an IP address") from None
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            raise AnnotationError(key, f"{_quoted(item)} has a zone; pod addresses are routed and have none")
        reason = reserved(address)
        if reason:
            raise AnnotationError(key, f"no pod can have {address}: it is {reason}")
        found[address] = None
    return tuple(found)


def _pools(
    annotations: Mapping[str, str],
    family: Family,
    of_type: type[Network],
    node_cidrs: Sequence[Network],
    *,
    on: bool,
    primary: Address | None,
    warnings: list[str],
) -> tuple[Network, ...]:
    asked = [_network(family, of_type, item) for item in _items(annotations, family.cidr)]
    if not on or primary is not None:
        if asked:
            why = (
                f"{family.name} is switched off" if not on else f"{primary}, asked for by name, is the primary address"
            )
            warnings.append(f"{family.cidr}: ignored, {why}")
        return ()
    if not asked:
        return tuple(node_cidrs)
    for wanted in asked:
        if any(wanted.subnet_of(cidr) for cidr in node_cidrs):
            return (wanted,)
        covered = tuple(cidr for cidr in node_cidrs if cidr.subnet_of(wanted))
        if covered:
            return covered
    raise AnnotationError(
        family.cidr,
        f"{', '.join(map(str, asked))} has nothing in common with this node's {', '.join(map(str, node_cidrs))}",
        details="choose a prefix inside or around the node's, or keep the pod off this node",
    )


def _network(family: Family, of_type: type[Network], item: str) -> Network:
    address, _, length = item.partition("/")
    try:
        # Only address/length: the library would take netmasks, bare addresses and zones as well.
        if not (length.isascii() and length.isdigit()) or "%" in address:
            raise ValueError
        network = ip_network(item, strict=False)
    except ValueError:
        raise AnnotationError(family.cidr, f"{_quoted(item)} is not a prefix like address/length") from None
    if not isinstance(network, of_type):
        raise AnnotationError(family.cidr, f"{item} is not {family.name}")
    if network.network_address != ip_address(address):
        raise AnnotationError(family.cidr, f"{item} has bits set behind its length", details=f"perhaps {network}?")
    if family.version == 4 and network.prefixlen > LONGEST_CIDR4:
        raise AnnotationError(family.cidr, f"{item} is too small, a /{LONGEST_CIDR4} is the smallest IPv4 pool")
    return network


def _quoted(text: str) -> str:
    """User text in an error: escaped and short enough for one line."""
    return repr(text if len(text) <= 80 else f"{text[:79]}…")
