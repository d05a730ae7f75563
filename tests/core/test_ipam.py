"""Which address comes next, and who holds which."""

import itertools
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import pytest
from books import COOLDOWN, LARGE6, SMALL4, entry, give_back, ipam, take4, v4, v6

from flock.core.errors import AddressInUse, Code, PoolExhausted
from flock.core.model import Released

# --- the order within pools and between them ---


def test_network_gateway_and_broadcast_address_are_never_given_out() -> None:
    assert take4(ipam(), [SMALL4], 5) == [f"192.0.2.{n}" for n in (2, 3, 4, 5, 6)]


def test_a_block_that_does_not_start_at_zero_skips_its_own_first_two_addresses() -> None:
    assert take4(ipam(), v4("192.0.2.128/29"), 5) == [f"192.0.2.{128 + n}" for n in (2, 3, 4, 5, 6)]


def test_the_smallest_block_gives_exactly_one_address() -> None:
    book = ipam()
    assert take4(book, v4("192.0.2.8/30"), 1) == ["192.0.2.10"]
    with pytest.raises(PoolExhausted):
        book.pick(v4("192.0.2.8/30"), "late", 0)


def test_pools_are_used_in_the_order_given() -> None:
    pools = v4("198.51.100.8/30", "192.0.2.0/30", "203.0.113.0/29")
    assert take4(ipam(), pools, 3) == ["198.51.100.10", "192.0.2.2", "203.0.113.2"]


def test_ipv6_pools_are_used_in_the_order_given() -> None:
    book = ipam()
    pools = v6("2001:db8:2::/126", "2001:db8:1::/64")
    picks = [book.pick(pools, f"c{n}", 0).address for n in range(4)]
    assert picks[:2] == [IPv6Address("2001:db8:2::2"), IPv6Address("2001:db8:2::3")]
    assert all(pick in LARGE6 for pick in picks[2:])


def test_the_first_pool_is_preferred_again_once_its_addresses_have_rested() -> None:
    book = ipam()
    pools = v4("192.0.2.0/30", "198.51.100.0/29")
    take4(book, pools, 2)
    give_back(book, "192.0.2.2", at=10)
    assert str(book.pick(pools, "x", 10 + COOLDOWN).address) == "192.0.2.2"


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        ("2001:db8::/128", ["2001:db8::"]),
        ("2001:db8::/127", ["2001:db8::", "2001:db8::1"]),
        ("2001:db8::/126", ["2001:db8::2", "2001:db8::3"]),
        ("2001:db8::/125", [f"2001:db8::{n}" for n in range(2, 8)]),
    ],
)
def test_a_tiny_ipv6_pool_is_used_up_completely(pool: str, expected: list[str]) -> None:
    book = ipam()
    assert [str(book.pick(v6(pool), f"c{n}", 0).address) for n in range(len(expected))] == expected
    with pytest.raises(PoolExhausted):
        book.pick(v6(pool), "late", 0)


# --- exhaustion ---


def test_exhaustion_names_each_pool_and_how_full_it_is() -> None:
    book = ipam()
    pools = v4("192.0.2.0/29", "198.51.100.0/30")
    take4(book, pools, 6)
    with pytest.raises(PoolExhausted) as caught:
        book.pick(pools, "late", 0)
    assert caught.value.code == Code.POOL_EXHAUSTED
    assert caught.value.msg == (
        "no free IPv4 address: 192.0.2.0/29 has 5 of 5 in use, 198.51.100.0/30 has 1 of 1 in use"
    )
    assert "NodeConfig" in caught.value.details


def test_addresses_outside_the_usable_ones_do_not_count_as_fill() -> None:
    book = ipam()
    for address in ("192.0.2.0", "192.0.2.1", "192.0.2.7", "192.0.2.4"):
        book.claim(IPv4Address(address), address, 0)
    assert [(use.size, use.used) for use in book.use([SMALL4], 0)] == [(5, 1)]


def test_fill_is_counted_by_family_and_without_what_is_set_aside() -> None:
    book, taken = ipam(), ("192.0.2.3", "192.0.2.5", "2001:db8::2", "2001:db8::192:0:2:4")
    book.set_aside([IPv4Network("192.0.2.4/31")])
    for address in taken:
        book.claim(ip_address(address), address, 0)
    give_back(book, "192.0.2.3", at=0)
    pools = [SMALL4, IPv6Network("2001:db8::/64"), IPv6Network("2001:db8:1::/64")]
    assert [(use.used, use.cooling) for use in book.use(pools, 1)] == [(0, 1), (2, 0), (0, 0)]


@pytest.mark.parametrize("network", ["192.0.2.2/31", "192.0.2.2/32"])
def test_a_pool_without_usable_addresses_has_none_in_use(network: str) -> None:
    book = ipam()
    for address in ("192.0.2.2", "192.0.2.3"):
        book.claim(IPv4Address(address), address, 0)
    assert [(use.size, use.used) for use in book.use([IPv4Network(network)], 0)] == [(0, 0)]


def test_exhaustion_takes_nothing_and_ends_when_an_address_is_given_back() -> None:
    book = ipam()
    take4(book, [SMALL4], 5)
    with pytest.raises(PoolExhausted):
        book.pick([SMALL4], "late", 0)
    give_back(book, "192.0.2.4", at=0)
    assert str(book.pick([SMALL4], "late", 1).address) == "192.0.2.4"


def test_fill_counts_held_shared_and_cooling_addresses() -> None:
    book = ipam()
    take4(book, [SMALL4], 2)
    book.share(IPv4Address("192.0.2.6"), "a", 0)
    give_back(book, "192.0.2.2", at=5)
    [use] = book.use([SMALL4], 6)
    assert (use.cidr, use.size, use.used, use.cooling) == ("192.0.2.0/29", 5, 2, 1)


# --- cool-down ---


def test_a_released_address_is_not_reused_while_others_are_free() -> None:
    book = ipam()
    take4(book, [SMALL4], 1)
    give_back(book, "192.0.2.2", at=0)
    assert take4(book, [SMALL4], 4, now=1) == [f"192.0.2.{n}" for n in (3, 4, 5, 6)]


def test_when_every_free_address_is_cooling_the_oldest_is_used() -> None:
    book = ipam()
    take4(book, [SMALL4], 5)
    for at, last in enumerate((4, 2, 6), start=1):
        give_back(book, f"192.0.2.{last}", at=at)
    assert take4(book, [SMALL4], 3, now=5) == ["192.0.2.4", "192.0.2.2", "192.0.2.6"]


def test_the_oldest_is_found_across_pools() -> None:
    book = ipam()
    pools = v4("192.0.2.0/30", "198.51.100.0/30")
    take4(book, pools, 2)
    give_back(book, "198.51.100.2", at=1)
    give_back(book, "192.0.2.2", at=2)
    assert take4(book, pools, 2, now=3) == ["198.51.100.2", "192.0.2.2"]


def test_an_address_that_was_never_in_use_does_not_cool() -> None:
    book = ipam()
    take4(book, [SMALL4], 5)
    give_back(book, "192.0.2.3", at=1)
    give_back(book, "192.0.2.5", at=None)
    assert [r.address for r in book.cooling(2)] == ["192.0.2.3"]
    assert take4(book, [SMALL4], 2, now=2) == ["192.0.2.5", "192.0.2.3"]


def test_cool_down_survives_a_restart() -> None:
    book = ipam()
    take4(book, [SMALL4], 5)
    give_back(book, "192.0.2.5", at=10)
    give_back(book, "192.0.2.3", at=11)
    held = [entry(f"c{n}", ip4=f"192.0.2.{n}") for n in (2, 4)]
    restarted = ipam()
    restarted.seed(held, book.cooling(12))
    assert restarted.cooling(12) == book.cooling(12) == [Released("192.0.2.5", 10), Released("192.0.2.3", 11)]
    assert take4(restarted, [SMALL4], 3, now=12) == ["192.0.2.6", "192.0.2.5", "192.0.2.3"]


def test_cool_down_ends() -> None:
    book = ipam()
    take4(book, [SMALL4], 1)
    give_back(book, "192.0.2.2", at=10)
    assert [r.at for r in book.cooling(10 + COOLDOWN - 1)] == [10]
    assert book.cooling(10 + COOLDOWN) == []


def test_a_small_ipv6_pool_cools_too() -> None:
    book = ipam()
    pool = v6("2001:db8::/126")
    pick = book.pick(pool, "a", 0)
    book.release(pick.address, "a", cool_since=1)
    assert book.pick(pool, "b", 2).address == IPv6Address("2001:db8::3")
    assert book.pick(pool, "c", 2).address == pick.address


# --- pools named by annotation ---


def test_a_sub_pool_gives_its_own_addresses_and_the_node_pool_skips_them() -> None:
    book = ipam()
    node, part = v4("192.0.2.0/28"), v4("192.0.2.4/30")
    assert take4(book, part, 1) == ["192.0.2.6"]
    assert "192.0.2.6" not in take4(book, node, 12)
    with pytest.raises(PoolExhausted):
        book.pick(node, "late", 0)


def test_what_the_node_pool_gave_away_returns_to_the_sub_pool() -> None:
    book = ipam()
    node, part = v4("192.0.2.0/29"), v4("192.0.2.4/30")
    take4(book, node, 5)
    with pytest.raises(PoolExhausted, match=r"192\.0\.2\.4/30 has 1 of 1 in use"):
        book.pick(part, "x", 0)
    give_back(book, "192.0.2.6", at=0)
    assert take4(book, part, 1, now=1) == ["192.0.2.6"]


def test_more_sub_pools_than_are_remembered_lose_no_address_and_no_cool_down() -> None:
    book = ipam()
    node = v4("10.0.0.0/16")
    parts = [[part] for part in itertools.islice(node[0].subnets(new_prefix=29), 400)]
    for part in parts:
        take4(book, part, 5)
    for at, part in enumerate(parts):
        for address in (part[0][5], part[0][3]):
            book.release(address, book.holder(address) or "", cool_since=at / 10)
    for part in parts:
        assert take4(book, part, 2, now=50) == [str(part[0][5]), str(part[0][3])]


# --- exact addresses and shared ones ---


def test_an_address_held_by_another_container_cannot_be_claimed() -> None:
    book = ipam()
    address = IPv4Address("203.0.113.9")
    book.claim(address, "a", 0)
    book.claim(address, "a", 0)
    with pytest.raises(AddressInUse, match=r"203\.0\.113\.9.*container a"):
        book.claim(address, "b", 0)
    assert book.holder(address) == "a"


def test_a_claimed_address_is_not_picked() -> None:
    book = ipam()
    book.claim(IPv4Address("192.0.2.2"), "a", 0)
    assert take4(book, [SMALL4], 1) == ["192.0.2.3"]


def test_a_cooling_address_may_be_claimed() -> None:
    book = ipam()
    take4(book, [SMALL4], 1)
    give_back(book, "192.0.2.2", at=0)
    book.claim(IPv4Address("192.0.2.2"), "b", 0)
    assert book.cooling(1) == []


def test_an_anycast_address_has_many_sharers_and_no_holder() -> None:
    book = ipam()
    address = IPv6Address("2001:db8:53::1")
    book.share(address, "a", 0)
    book.share(address, "b", 0)
    assert book.sharers(address) == {"a", "b"}
    assert book.holder(address) is None
    book.release(address, "a", cool_since=None)
    assert book.sharers(address) == {"b"}


def test_holding_and_sharing_exclude_each_other() -> None:
    book = ipam()
    held, shared = IPv6Address("2001:db8::1"), IPv6Address("2001:db8::2")
    book.claim(held, "a", 0)
    book.share(shared, "a", 0)
    with pytest.raises(AddressInUse, match=r"2001:db8::1.*container a"):
        book.share(held, "b", 0)
    with pytest.raises(AddressInUse, match=r"2001:db8::2.*container a"):
        book.claim(shared, "b", 0)


def test_a_shared_address_inside_a_pool_is_skipped_and_returns_when_the_last_sharer_leaves() -> None:
    book = ipam()
    shared = IPv4Address("192.0.2.3")
    book.share(shared, "a", 0)
    book.share(shared, "b", 0)
    assert "192.0.2.3" not in take4(book, [SMALL4], 4)
    for container in ("a", "b"):
        with pytest.raises(PoolExhausted):
            book.pick([SMALL4], "late", 0)
        book.release(shared, container, cool_since=0)
    assert take4(book, [SMALL4], 1, now=1) == ["192.0.2.3"]


def test_release_by_a_container_that_does_not_hold_the_address_changes_nothing() -> None:
    book = ipam()
    held, shared, free = (IPv4Address(f"192.0.2.{n}") for n in (2, 3, 4))
    book.claim(held, "a", 0)
    book.share(shared, "a", 0)
    for address in (held, shared, free):
        book.release(address, "b", cool_since=1)
        book.release(address, "", cool_since=None)
    assert (book.holder(held), book.sharers(shared)) == ("a", frozenset("a"))
    assert book.cooling(2) == []
    assert take4(book, [SMALL4], 3) == ["192.0.2.4", "192.0.2.5", "192.0.2.6"]


def test_a_second_release_does_not_free_the_next_holder() -> None:
    book = ipam()
    address = book.pick([SMALL4], "old", 0).address
    book.release(address, "old", cool_since=0)
    book.claim(address, "new", 0)
    book.release(address, "old", cool_since=1)
    assert book.holder(address) == "new"


# --- seeding ---


def test_seeding_knows_every_address_of_an_allocation_however_it_is_spelled() -> None:
    book = ipam()
    book.seed(
        [entry("a", ip6="2001:DB8:0:0::5", ip4="192.0.2.2", addresses=("192.0.2.3",), anycast=("192.0.2.4",))],
        [Released("192.0.2.2", 1), Released("2001:0db8::7", 1)],
    )
    assert book.holder(IPv6Address("2001:db8::5")) == "a"
    assert book.sharers(IPv4Address("192.0.2.4")) == {"a"}
    assert [r.address for r in book.cooling(2)] == ["2001:db8::7"]
    assert take4(book, [SMALL4], 2) == ["192.0.2.5", "192.0.2.6"]
