"""The scalars of a NodeConfig: each function takes what the YAML held and returns it typed, or raises `ValueError`
with the problem in words an operator can act on.

The patterns are narrower than the systems behind them: what passes here can be written into a configuration file
between quotes, as a file name or on a command line without another thought.
"""

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from reprlib import repr as short
from typing import Any, Literal, TypeVar, get_args

import msgspec

from flock.core.facts import Address, Network
from flock.core.reserved import reserved, reserved_overlap, reserved_whole

Family = Literal["ipv6", "ipv4"]
Community = tuple[int, ...]  # two 16-bit numbers, or three 32-bit numbers: a large community
# A prefix stands for itself and all inside it, but 0.0.0.0/0 and ::/0 for the default route alone ("all" says more).
ImportPolicy = Literal["all", "none", "default"] | tuple[Network, ...]
N = TypeVar("N", IPv4Network, IPv6Network)

_PEER_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,46}[A-Za-z0-9])?")  # BIRD's symbols end at 64
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_CLASS = re.compile(rf"({_SUBDOMAIN.pattern}/)?[A-Za-z0-9]([A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?")
_SECRET_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}")
_PATH = re.compile(r"(/[A-Za-z0-9_.+@:=-]+)+")
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h)?")
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, None: 1000}
_COMMUNITY = re.compile(r"[0-9]{1,10}(:[0-9]{1,10}){1,2}")
_AS_TRANS = 23456  # stands in for a 32-bit number towards routers that know 16 bits only (RFC 6793)


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {short(value)}; quote it")
    return value


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {short(value)}")
    return value


def _whole(value: Any) -> Any:
    """A number written as 1500.0 is 1500, as the API server has it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Bounded(msgspec.Struct, frozen=True):
    low: int
    high: int


class Integer(Bounded, frozen=True):
    def __call__(self, value: Any) -> int:
        value = _whole(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise ValueError(f"must be a whole number from {self.low} to {self.high}, not {short(value)}")
        return value


class Choice(msgspec.Struct, frozen=True):
    names: tuple[str, ...]

    def __call__(self, value: Any) -> str:
        if value not in self.names:
            raise ValueError(f"must be one of {', '.join(self.names)}, not {short(value)}")
        return str(value)


family = Choice(get_args(Family))


def asn(value: Any) -> int:
    number = Integer(1, 2**32 - 2)(value)
    if number in (_AS_TRANS, 2**16 - 1):
        raise ValueError(f"{number} is reserved and cannot be an AS number of yours")
    return number


def _milliseconds(value: Any) -> int:
    value = _whole(value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = short(value)
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'must be a duration like "100ms", "9s", "2m" or whole seconds, not {short(value)}')
    return int(found[1]) * _MILLISECONDS[found[2]]


class Milliseconds(Bounded, frozen=True):
    def __call__(self, value: Any) -> int:
        duration = _milliseconds(value)
        if not self.low <= duration <= self.high:
            raise ValueError(f"must be from {self.low}ms to {self.high}ms, not {value}")
        return duration


class Seconds(Bounded, frozen=True):
    def __call__(self, value: Any) -> int:
        duration, rest = divmod(_milliseconds(value), 1000)
        if rest or not self.low <= duration <= self.high:
            raise ValueError(f"must be whole seconds from {self.low}s to {self.high}s, not {value}")
        return duration


def community(value: Any) -> Community:
    given = text(value)
    parts = tuple(int(part) for part in given.split(":")) if _COMMUNITY.fullmatch(given) else ()
    if not parts or max(parts) >= (2**16 if len(parts) == 2 else 2**32):
        raise ValueError(f'must be "a:b" with 16-bit or "a:b:c" with 32-bit numbers, not {short(given)}')
    return parts


class Matching(msgspec.Struct, frozen=True):
    pattern: re.Pattern[str]
    what: str
    longest: int = 4096

    def __call__(self, value: Any) -> str:
        given = text(value)
        if len(given) > self.longest or not self.pattern.fullmatch(given):
            raise ValueError(f"{short(given)} is no {self.what}")
        return given


interface_name = Matching(_INTERFACE, "interface name (letters, digits and _.@- up to 15)")
peer_name = Matching(_PEER_NAME, "peer name (letters, digits and ._- up to 48, a letter or digit at both ends)")
object_name = Matching(_SUBDOMAIN, "Kubernetes object name", longest=253)
load_balancer_class = Matching(_CLASS, "loadBalancerClass like example.com/name", longest=317)
secret_key = Matching(_SECRET_KEY, "key of a Secret")


def file_path(value: Any) -> str:
    given = Matching(_PATH, "absolute path of letters, digits and _.+@:=-")(value)
    if ".." in given.split("/"):
        raise ValueError(f"{short(given)} must not contain ..")
    return given


def string_map(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("must be a mapping")
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise ValueError(f"{short(key)}: {short(item)} must both be strings; quote them")
    return dict(value)


def _ip(value: Any) -> Address:
    given = text(value)
    try:
        return ip_address(given)
    except ValueError:
        raise ValueError(f"{short(given)} is no IP address") from None


def ipv4_address(value: Any) -> IPv4Address:
    address = _ip(value)
    if not isinstance(address, IPv4Address):
        raise ValueError(f"{address} is no IPv4 address")
    return address


def router_id(value: Any) -> IPv4Address:
    address = ipv4_address(value)
    if int(address) in (0, 2**32 - 1):
        raise ValueError(f"{address} cannot identify a router")
    return address


def area_id(value: Any) -> IPv4Address:
    if isinstance(value, str) and not value.isdecimal():
        return ipv4_address(value)
    number = int(value) if isinstance(value, str) and len(value) <= 10 else value
    return IPv4Address(Integer(0, 2**32 - 1)(number))


def router_address(value: Any) -> Address:
    """Of a peer, or the local end of a session.  Both ends may be link-local; `parse` checks the zone."""
    address = _ip(value)
    zone = address.scope_id if isinstance(address, IPv6Address) else None
    if zone is not None:
        if not address.is_link_local:
            raise ValueError(f"{address} must not name a zone: only link-local addresses have one")
        interface_name(zone)
    kind = reserved(address)
    if kind not in (None, "link-local"):
        raise ValueError(f"{address} is {kind}, no router can have it")
    return address


def prefix(value: Any) -> Network:
    given = text(value)
    try:
        if not re.search(r"/[0-9]{1,3}\Z", given) or "%" in given:
            raise ValueError
        network = ip_network(given, strict=False)
    except ValueError:
        raise ValueError(f"{short(given)} is no prefix like 2001:db8:1::/64 or 192.0.2.0/26") from None
    if ip_address(given.partition("/")[0]) != network.network_address:
        raise ValueError(f"{given} has bits set after its length; write {network}")
    return network


def aggregate6(value: Any) -> IPv6Network:
    return _aggregate(prefix(value), IPv6Network, longest=126)


def aggregate4(value: Any) -> IPv4Network:
    # Network, gateway and broadcast are never given to a pod: less than four addresses hold none.
    return _aggregate(prefix(value), IPv4Network, longest=30)


def _aggregate(network: Network, family: type[N], *, longest: int) -> N:
    if not isinstance(network, family):
        raise ValueError(f"{network} is not IPv{6 if network.version == 4 else 4}")
    kind = reserved_overlap(network)
    if kind is not None:
        raise ValueError(f"{network} overlaps {kind}")
    if network.prefixlen > longest:
        raise ValueError(f"{network} is too small to hold pods; /{longest} is the smallest")
    return network


def granted_prefix(value: Any) -> Network:
    """May be as wide as the operator likes, 0.0.0.0/0 even: what is reserved stays refused inside it."""
    network = prefix(value)
    kind = reserved_whole(network)
    if kind is not None:
        raise ValueError(f"{network} is {kind}, no pod can have it")
    return network


def import_policy(value: Any) -> ImportPolicy:
    if value == "all" or value == "none" or value == "default":
        return value  # type: ignore[no-any-return]  # narrowed by the comparison
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"must be all, none, default or a list of prefixes, not {short(value)}")
    networks = tuple(prefix(item) for item in value)
    if len(set(networks)) < len(networks):
        raise ValueError("names a prefix twice")
    return networks
