"""An allocator with a fixed random source, pools to allocate from, and entries of the store."""

import random
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from flock.core.ipam import Ipam
from flock.core.model import Allocation

COOLDOWN = 100.0
SMALL4 = IPv4Network("192.0.2.0/29")  # .2 to .6
LARGE6 = IPv6Network("2001:db8:1::/64")
BASE = int(IPv6Address("2001:db8:1::abcd:0"))  # what ip-algo composes here, instance nibble zero


def ipam(seed: int = 1) -> Ipam:
    return Ipam(cooldown=COOLDOWN, rng=random.Random(seed))


def v4(*pools: str) -> list[IPv4Network]:
    return [IPv4Network(pool) for pool in pools]


def v6(*pools: str) -> list[IPv6Network]:
    return [IPv6Network(pool) for pool in pools]


def take4(book: Ipam, pools: Sequence[IPv4Network], count: int, now: float = 0) -> list[str]:
    return [str(book.pick(pools, f"c{n}", now).address) for n in range(count)]


def give_back(book: Ipam, address: str, *, at: float | None) -> None:
    parsed = ip_address(address)
    book.release(parsed, book.holder(parsed) or "nobody", cool_since=at)


def embedded(pool: IPv6Network) -> int | None:
    return BASE if IPv6Address(BASE) in pool else None


def entry(container: str, *, ip6: str = "", ip4: str = "", **more: tuple[str, ...]) -> Allocation:
    return Allocation(
        container_id=container,
        namespace="",
        pod_name="",
        owner_uid="",
        ip6=ip6,
        ip4=ip4,
        state="committed",
        allocated_at="",
        **more,  # type: ignore[arg-type]
    )
