"""Addresses composed by ip-algo, and random ones where none can be composed."""

import random
from ipaddress import IPv6Address, IPv6Network

from books import BASE, LARGE6, embedded, ipam, v6

from flock.core.ipam import Ipam
from flock.core.pools import Address


def test_replicas_differ_in_the_instance_nibble_alone_until_all_sixteen_are_used() -> None:
    book = ipam()
    picks = [book.pick([LARGE6], f"c{n}", 0, embedded) for n in range(16)]
    assert {int(pick.address) for pick in picks} == {BASE | n for n in range(16)}
    assert not any(pick.warning for pick in picks)


def test_the_seventeenth_replica_gets_a_random_address_and_a_warning() -> None:
    book = ipam()
    for n in range(16):
        book.pick([LARGE6], f"c{n}", 0, embedded)
    pick = book.pick([LARGE6], "c16", 0, embedded)
    assert pick.address in LARGE6
    assert int(pick.address) & ~0xF != BASE
    assert "2001:db8:1::abcd:0/124" in pick.warning


def test_a_composed_address_cools_and_the_oldest_is_used_when_all_do() -> None:
    book = ipam()
    for n in range(16):
        book.claim(IPv6Address(BASE | n), f"c{n}", 0)
    for at, nibble in enumerate((9, 3), start=1):
        book.release(IPv6Address(BASE | nibble), f"c{nibble}", cool_since=at)
    assert int(book.pick([LARGE6], "x", 5, embedded).address) == BASE | 9
    assert int(book.pick([LARGE6], "y", 5, embedded).address) == BASE | 3
    book.release(IPv6Address(BASE | 7), "c7", cool_since=6)
    book.release(IPv6Address(BASE | 8), "c8", cool_since=None)
    assert int(book.pick([LARGE6], "z", 7, embedded).address) == BASE | 8


def test_a_pool_that_cannot_be_composed_in_is_passed_over() -> None:
    pick = ipam().pick(v6("2001:db8:2::/64", "2001:db8:1::/64"), "a", 0, embedded)
    assert int(pick.address) & ~0xF == BASE
    assert ipam().pick(v6("2001:db8:2::/64"), "a", 0, embedded).address in IPv6Network("2001:db8:2::/64")


def test_a_composed_address_is_never_the_network_or_gateway_address() -> None:
    book = ipam()
    pool = IPv6Network("2001:db8::/120")
    picks = [book.pick([pool], f"c{n}", 0, lambda p: int(p.network_address)) for n in range(15)]
    assert {int(pick.address) & 0xFF for pick in picks[:14]} == set(range(2, 16))
    assert picks[14].warning
    assert int(picks[14].address) & 0xFF >= 16


def test_a_random_address_is_never_the_network_or_gateway_address() -> None:
    class Lowest(random.Random):
        def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
            return 0

    assert Ipam(rng=Lowest()).pick([LARGE6], "a", 0).address == IPv6Address("2001:db8:1::2")


def test_a_colliding_random_address_is_drawn_again() -> None:
    numbers = iter([3, 3, 4, 5])

    class Scripted(random.Random):
        def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
            return next(numbers)

    book = Ipam(rng=Scripted())
    book.claim(LARGE6[6], "other", 0)
    assert [book.pick([LARGE6], c, 0).address for c in "ab"] == [LARGE6[5], LARGE6[7]]


def test_the_random_source_decides() -> None:
    def draw(seed: int) -> list[Address]:
        book = ipam(seed)
        return [book.pick([LARGE6], f"c{n}", 0, embedded if n % 2 else None).address for n in range(20)]

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)
