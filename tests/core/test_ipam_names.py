"""Addresses asked for by name, against pods of other namespaces, cool-down and what is set aside."""

import random
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest

from flock.core.errors import AddressInUse, AnotherNamespaces, PoolExhausted
from flock.core.ipam import Ipam
from flock.core.model import Allocation, Released
from flock.core.pools import Pool

COOLDOWN = 100.0
SMALL = [IPv4Network("192.0.2.0/29")]  # .2 to .6
LARGE = [IPv6Network("2001:db8:1::/64")]
ANYCAST = IPv4Address("192.0.2.5")


def ipam() -> Ipam:
    return Ipam(rng=random.Random(1), cooldown=COOLDOWN)


def picks4(book: Ipam, count: int) -> list[str]:
    return [str(book.pick(SMALL, f"c{n}", 0).address) for n in range(count)]


# --- namespaces ---


def test_an_anycast_address_is_shared_within_a_namespace() -> None:
    book = ipam()
    book.share(ANYCAST, "a", 0, namespace="shop")
    book.share(ANYCAST, "b", 0, namespace="shop")
    with pytest.raises(AnotherNamespaces):
        book.share(ANYCAST, "c", 0, namespace="evil")
    assert book.sharers(ANYCAST) == {"a", "b"}
    book.share(ANYCAST, "d", 0, namespace="outlet", granted=True)
    assert book.rivals(ANYCAST, namespace="dns", shares=True, granted=True) == []
    assert set(book.rivals(ANYCAST, namespace="shop", shares=True, granted=False)) == {"d"}
    assert set(book.rivals(ANYCAST, namespace="shop", shares=False, granted=True)) == {"a", "b", "d"}


def test_a_namespace_waits_for_what_another_had_and_not_for_its_own() -> None:
    book = ipam()
    for address, shared in ((IPv6Address("2001:db8:1::7"), False), (ANYCAST, True)):
        take = book.share if shared else book.claim
        take(address, "a", 0, namespace="shop")
        book.release(address, "a", cool_since=10)
        with pytest.raises(AnotherNamespaces, match="for 60 s more"):
            take(address, "b", 50, namespace="evil")
        take(address, "c", 50, namespace="shop")
        book.release(address, "c", cool_since=50)
        take(address, "d", 50 + COOLDOWN, namespace="evil")


def test_what_several_are_granted_needs_no_rest_between_them() -> None:
    book = ipam()
    book.share(ANYCAST, "a", 0, namespace="blue", granted=True)
    book.release(ANYCAST, "a", cool_since=1)
    book.share(ANYCAST, "b", 2, namespace="green", granted=True)


def test_whose_an_address_was_survives_a_restart() -> None:
    book = ipam()
    book.claim(ANYCAST, "a", 0, namespace="shop")
    book.release(ANYCAST, "a", cool_since=1)
    again = ipam()
    again.seed([], book.cooling(2))
    with pytest.raises(AnotherNamespaces):
        again.claim(ANYCAST, "b", 3, namespace="evil")
    again.claim(ANYCAST, "b", 3, namespace="shop")


def test_what_an_earlier_version_released_is_nobodys() -> None:
    book = ipam()
    book.seed([], [Released("192.0.2.5", 1)])
    with pytest.raises(AnotherNamespaces):
        book.claim(ANYCAST, "a", 2, namespace="shop")
    book.claim(ANYCAST, "a", 1 + COOLDOWN, namespace="shop")


def test_names_are_counted_and_picks_are_not_and_a_restart_counts_the_same() -> None:
    book = ipam()
    ip4 = str(book.pick(SMALL, "a", 0, namespace="shop").address)
    book.claim(IPv4Address("192.0.2.4"), "a", 0, namespace="shop")
    book.claim(IPv4Address("192.0.2.4"), "a", 0, namespace="shop")
    for container in ("a", "a", "b"):
        book.share(ANYCAST, container, 0, namespace="shop")
    again = ipam()
    shared = {"namespace": "shop", "pod_name": "", "owner_uid": "", "state": "committed", "allocated_at": ""}
    first = Allocation(container_id="a", ip4=ip4, addresses=("192.0.2.4",), anycast=("192.0.2.5",), **shared)  # type: ignore[arg-type]
    second = Allocation(container_id="b", anycast=("192.0.2.5",), **shared)  # type: ignore[arg-type]
    again.seed([first, second], [])
    for known in (book, again):
        assert known.claims.count("shop") == 2
        for address in (ip4, "192.0.2.4", "192.0.2.5"):
            known.release(ip_address(address), "a", cool_since=None)
        assert known.claims.count("shop") == 1
        known.release(ANYCAST, "b", cool_since=None)
        assert known.claims.count("shop") == 0


def test_an_address_in_use_is_refused_whatever_the_namespace() -> None:
    book = ipam()
    book.claim(ANYCAST, "a", 0, namespace="shop")
    for take in (book.claim, book.share):
        for namespace in ("shop", "evil"):
            with pytest.raises(AddressInUse):
                take(ANYCAST, "b", 0, namespace=namespace)


# --- a pool the pod chose ---


def test_in_a_narrowed_pool_what_cools_down_is_for_the_namespace_that_had_it() -> None:
    six, four = IPv6Network("2001:db8:1::77/128"), IPv4Network("192.0.2.4/30")
    book = ipam()
    had = book.pick([six], "a", 0, namespace="shop").address, book.pick([four], "a", 0, namespace="shop").address
    for address in had:
        book.release(address, "a", cool_since=1)
    with pytest.raises(PoolExhausted):
        book.pick([six], "b", 2, namespace="evil", narrowed=True)
    with pytest.raises(PoolExhausted):
        book.pick([four], "b", 2, namespace="evil", narrowed=True)
    with pytest.raises(PoolExhausted):
        book.pick([six], "b", 2, lambda _: int(six[0]), namespace="evil", narrowed=True)
    assert book.pick([six], "c", 2, namespace="shop", narrowed=True).address == had[0]
    assert book.pick([four], "c", 2, namespace="shop", narrowed=True).address == had[1]


def test_its_own_is_found_behind_what_others_left() -> None:
    book = ipam()
    for n, namespace in ((2, "other"), (3, "shop"), (4, "shop"), (5, "other"), (6, "other")):
        book.claim(IPv4Address(f"192.0.2.{n}"), f"c{n}", 0, namespace=namespace)
        book.release(IPv4Address(f"192.0.2.{n}"), f"c{n}", cool_since=n)
    assert [str(book.pick(SMALL, c, 10, namespace="shop", narrowed=True).address) for c in "ab"] == [
        "192.0.2.3",
        "192.0.2.4",
    ]
    assert str(book.pick(SMALL, "c", 10, namespace="shop").address) == "192.0.2.2"  # the node's own pool: the oldest


# --- set aside ---


def test_what_is_set_aside_is_skipped_by_the_walk_and_left_out_of_the_count() -> None:
    book = ipam()
    book.set_aside([ip_network("192.0.2.2/32"), ip_network("192.0.2.4/31")])
    assert picks4(book, 2) == ["192.0.2.3", "192.0.2.6"]
    with pytest.raises(PoolExhausted, match="2 of 2"):
        book.pick(SMALL, "late", 0)
    book.share(IPv4Address("192.0.2.4"), "x", 0)
    assert [(use.size, use.used) for use in book.use(SMALL, 0)] == [(2, 2)]
    book.release(IPv4Address("192.0.2.4"), "x", cool_since=1)
    with pytest.raises(PoolExhausted):
        book.pick(SMALL, "late", 2)


def test_a_change_of_what_is_set_aside_holds_at_once_in_both_directions() -> None:
    book = ipam()
    assert picks4(book, 1) == ["192.0.2.2"]
    book.set_aside([ip_network("192.0.2.3/32")])
    assert str(book.pick(SMALL, "x", 0).address) == "192.0.2.4"
    book.set_aside([])
    assert str(book.pick(SMALL, "y", 0).address) == "192.0.2.3"


def test_nothing_set_aside_is_drawn_or_composed() -> None:
    book = ipam()
    book.set_aside([ip_network("2001:db8:1::/65"), ip_network("2001:db8:1:0:8000::/66")])
    drawn = [book.pick(LARGE, f"c{n}", 0).address for n in range(200)]
    assert all(address in IPv6Network("2001:db8:1:0:c000::/66") for address in drawn)
    composed = book.pick(LARGE, "x", 0, lambda _: int(IPv6Address("2001:db8:1::abc0")))
    assert composed.warning and composed.address in IPv6Network("2001:db8:1:0:c000::/66")


def test_every_usable_address_has_its_number() -> None:
    aside = [ip_network(n) for n in ("192.0.2.2/31", "192.0.2.8/30", "192.0.2.14/32", "198.51.100.0/24")]
    pool = Pool(IPv4Network("192.0.2.0/28"), aside)
    assert [str(pool.nth(n)) for n in range(pool.size)] == [f"192.0.2.{n}" for n in (4, 5, 6, 7, 12, 13)]
    assert all(pool.nth(n) in pool for n in range(pool.size))
