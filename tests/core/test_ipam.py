"""Which address comes next, and who holds which."""

import itertools
import random
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from flock.core.errors import AddressInUse, Code, PoolExhausted
from flock.core.ipam import Ipam
from flock.core.model import Allocation, Released
from flock.core.pools import Address, Network

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
    return [str(book.pick4(pools, f"c{n}", now)) for n in range(count)]


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


# --- the order within pools and between them ---


def test_network_gateway_and_broadcast_address_are_never_given_out() -> None:
    assert take4(ipam(), [SMALL4], 5) == [f"192.0.2.{n}" for n in (2, 3, 4, 5, 6)]


def test_a_block_that_does_not_start_at_zero_skips_its_own_first_two_addresses() -> None:
    assert take4(ipam(), v4("192.0.2.128/29"), 5) == [f"192.0.2.{128 + n}" for n in (2, 3, 4, 5, 6)]


def test_the_smallest_block_gives_exactly_one_address() -> None:
    book = ipam()
    assert take4(book, v4("192.0.2.8/30"), 1) == ["192.0.2.10"]
    with pytest.raises(PoolExhausted):
        book.pick4(v4("192.0.2.8/30"), "late", 0)


def test_pools_are_used_in_the_order_given() -> None:
    pools = v4("198.51.100.8/30", "192.0.2.0/30", "203.0.113.0/29")
    assert take4(ipam(), pools, 3) == ["198.51.100.10", "192.0.2.2", "203.0.113.2"]


def test_ipv6_pools_are_used_in_the_order_given() -> None:
    book = ipam()
    pools = v6("2001:db8:2::/126", "2001:db8:1::/64")
    picks = [book.pick6(pools, f"c{n}", 0).address for n in range(4)]
    assert picks[:2] == [IPv6Address("2001:db8:2::2"), IPv6Address("2001:db8:2::3")]
    assert all(pick in LARGE6 for pick in picks[2:])


def test_the_first_pool_is_preferred_again_once_its_addresses_have_rested() -> None:
    book = ipam()
    pools = v4("192.0.2.0/30", "198.51.100.0/29")
    take4(book, pools, 2)
    give_back(book, "192.0.2.2", at=10)
    assert str(book.pick4(pools, "x", 10 + COOLDOWN)) == "192.0.2.2"


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
    assert [str(book.pick6(v6(pool), f"c{n}", 0).address) for n in range(len(expected))] == expected
    with pytest.raises(PoolExhausted):
        book.pick6(v6(pool), "late", 0)


# --- exhaustion ---


def test_exhaustion_names_each_pool_and_how_full_it_is() -> None:
    book = ipam()
    pools = v4("192.0.2.0/29", "198.51.100.0/30")
    take4(book, pools, 6)
    with pytest.raises(PoolExhausted) as caught:
        book.pick4(pools, "late", 0)
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


def test_exhaustion_takes_nothing_and_ends_when_an_address_is_given_back() -> None:
    book = ipam()
    take4(book, [SMALL4], 5)
    with pytest.raises(PoolExhausted):
        book.pick4([SMALL4], "late", 0)
    give_back(book, "192.0.2.4", at=0)
    assert str(book.pick4([SMALL4], "late", 1)) == "192.0.2.4"


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
    pick = book.pick6(pool, "a", 0)
    book.release(pick.address, "a", cool_since=1)
    assert book.pick6(pool, "b", 2).address == IPv6Address("2001:db8::3")
    assert book.pick6(pool, "c", 2).address == pick.address


# --- pools named by annotation ---


def test_a_sub_pool_gives_its_own_addresses_and_the_node_pool_skips_them() -> None:
    book = ipam()
    node, part = v4("192.0.2.0/28"), v4("192.0.2.4/30")
    assert take4(book, part, 1) == ["192.0.2.6"]
    assert "192.0.2.6" not in take4(book, node, 12)
    with pytest.raises(PoolExhausted):
        book.pick4(node, "late", 0)


def test_what_the_node_pool_gave_away_returns_to_the_sub_pool() -> None:
    book = ipam()
    node, part = v4("192.0.2.0/29"), v4("192.0.2.4/30")
    take4(book, node, 5)
    with pytest.raises(PoolExhausted, match=r"192\.0\.2\.4/30 has 1 of 1 in use"):
        book.pick4(part, "x", 0)
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
            book.pick4([SMALL4], "late", 0)
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
    address = book.pick4([SMALL4], "old", 0)
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


# --- ip-algo ---


def test_replicas_differ_in_the_instance_nibble_alone_until_all_sixteen_are_used() -> None:
    book = ipam()
    picks = [book.pick6([LARGE6], f"c{n}", 0, embedded) for n in range(16)]
    assert {int(pick.address) for pick in picks} == {BASE | n for n in range(16)}
    assert not any(pick.warning for pick in picks)


def test_the_seventeenth_replica_gets_a_random_address_and_a_warning() -> None:
    book = ipam()
    for n in range(16):
        book.pick6([LARGE6], f"c{n}", 0, embedded)
    pick = book.pick6([LARGE6], "c16", 0, embedded)
    assert pick.address in LARGE6
    assert int(pick.address) & ~0xF != BASE
    assert "2001:db8:1::abcd:0/124" in pick.warning


def test_a_composed_address_cools_and_the_oldest_is_used_when_all_do() -> None:
    book = ipam()
    for n in range(16):
        book.claim(IPv6Address(BASE | n), f"c{n}", 0)
    for at, nibble in enumerate((9, 3), start=1):
        book.release(IPv6Address(BASE | nibble), f"c{nibble}", cool_since=at)
    assert int(book.pick6([LARGE6], "x", 5, embedded).address) == BASE | 9
    assert int(book.pick6([LARGE6], "y", 5, embedded).address) == BASE | 3
    book.release(IPv6Address(BASE | 7), "c7", cool_since=6)
    book.release(IPv6Address(BASE | 8), "c8", cool_since=None)
    assert int(book.pick6([LARGE6], "z", 7, embedded).address) == BASE | 8


def test_a_pool_that_cannot_be_composed_in_is_passed_over() -> None:
    pick = ipam().pick6(v6("2001:db8:2::/64", "2001:db8:1::/64"), "a", 0, embedded)
    assert int(pick.address) & ~0xF == BASE
    assert ipam().pick6(v6("2001:db8:2::/64"), "a", 0, embedded).address in IPv6Network("2001:db8:2::/64")


def test_a_composed_address_is_never_the_network_or_gateway_address() -> None:
    book = ipam()
    pool = IPv6Network("2001:db8::/120")
    picks = [book.pick6([pool], f"c{n}", 0, lambda p: int(p.network_address)) for n in range(15)]
    assert {int(pick.address) & 0xFF for pick in picks[:14]} == set(range(2, 16))
    assert picks[14].warning
    assert int(picks[14].address) & 0xFF >= 16


def test_a_random_address_is_never_the_network_or_gateway_address() -> None:
    class Lowest(random.Random):
        def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
            return 0

    assert Ipam(rng=Lowest()).pick6([LARGE6], "a", 0).address == IPv6Address("2001:db8:1::2")


def test_a_colliding_random_address_is_drawn_again() -> None:
    numbers = iter([3, 3, 4, 5])

    class Scripted(random.Random):
        def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
            return next(numbers)

    book = Ipam(rng=Scripted())
    book.claim(LARGE6[6], "other", 0)
    assert [book.pick6([LARGE6], c, 0).address for c in "ab"] == [LARGE6[5], LARGE6[7]]


def test_the_random_source_decides() -> None:
    def draw(seed: int) -> list[Address]:
        book = ipam(seed)
        return [book.pick6([LARGE6], f"c{n}", 0, embedded if n % 2 else None).address for n in range(20)]

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


# --- picking does not search ---


class Counting(Ipam):
    """Counts the questions whether an address is free: what a search would ask for each candidate."""

    asked = 0

    def _free(self, address: Address) -> bool:
        self.asked += 1
        return super()._free(address)

    def cost(self, work: Callable[[], object]) -> int:
        before = self.asked
        work()
        return self.asked - before


@pytest.mark.parametrize("pool", v4("10.0.0.0/28", "10.0.0.0/16"), ids=str)
def test_picking_costs_the_same_in_pools_of_all_sizes_and_on_a_full_node(pool: IPv4Network) -> None:
    book = Counting(rng=random.Random(1), cooldown=COOLDOWN)
    size = pool.num_addresses - 3
    assert {book.cost(lambda n=n: book.pick4([pool], f"c{n}", 0)) for n in range(10)} == {1}  # type: ignore[misc]
    for n in range(10, size):
        book.pick4([pool], f"c{n}", 0)
    costs = set()
    for n in range(10):
        address = pool[2 + n]
        book.release(address, f"c{n}", cool_since=n)
        costs.add(book.cost(lambda n=n: book.pick4([pool], f"c{n}", n)))  # type: ignore[misc]
    assert max(costs) <= 4

    def exhausted() -> None:
        with pytest.raises(PoolExhausted):
            book.pick4([pool], "late", 20)

    assert book.cost(exhausted) <= 4


@pytest.mark.parametrize("pool", v6("2001:db8::/124", "2001:db8::/112", "2001:db8::/64"), ids=str)
def test_picking_ipv6_costs_the_same_in_pools_of_all_sizes(pool: IPv6Network) -> None:
    book = Counting(cooldown=COOLDOWN, rng=random.Random(1))
    assert {book.cost(lambda n=n: book.pick6([pool], f"c{n}", 0)) for n in range(10)} == {1}  # type: ignore[misc]


def test_held_addresses_are_walked_past_once_and_never_again() -> None:
    book = Counting(rng=random.Random(1), cooldown=COOLDOWN)
    pool = v4("10.0.0.0/16")
    book.seed([entry(f"s{n}", ip4=str(pool[0][2 + n])) for n in range(1000)], [])
    book.pick4(pool, "first", 0)
    assert {book.cost(lambda n=n: book.pick4(pool, f"c{n}", 0)) for n in range(50)} == {1}  # type: ignore[misc]


def test_a_sub_pool_left_alone_does_not_pay_for_the_node_pool_s_comings_and_goings() -> None:
    book = Counting(rng=random.Random(1), cooldown=COOLDOWN)
    part = v4("192.0.2.4/30")
    take4(book, part, 1)
    give_back(book, "192.0.2.6", at=0)
    for now in range(1, 1001):
        address = book.pick4([SMALL4], "c", now)
        book.release(address, "c", cool_since=now)
    assert book.cost(lambda: book.pick4(part, "x", 1001)) <= 4


# --- against a model that cannot be wrong ---

POOLS4 = v4("192.0.2.0/29", "192.0.2.8/30", "192.0.2.4/30")  # the last is part of the first
POOLS6 = v6("2001:db8:2::/125", "2001:db8:2::4/126")
CONTAINERS = st.sampled_from(["a", "b", "c"])
EXACT: list[Address] = [*POOLS4[0], *POOLS6[0], IPv4Address("203.0.113.9"), IPv6Address(BASE | 1)]


def usable(pool: Network) -> list[Address]:
    addresses: list[Address] = [*pool]
    return addresses[2:-1] if pool.version == 4 else addresses[2:]


class AgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.book = ipam()
        self.now = 0.0
        self.held: dict[Address, str] = {}
        self.shared: dict[Address, set[str]] = {}
        self.resting: dict[Address, float] = {}

    def free(self, address: Address) -> bool:
        return address not in self.held and address not in self.shared

    def rests(self, address: Address) -> bool:
        return self.now < self.resting.get(address, -COOLDOWN) + COOLDOWN

    def hold(self, address: Address, container: str) -> None:
        assert self.free(address)
        self.resting.pop(address, None)
        self.held[address] = container

    def check_pick(self, pools: Sequence[Network], pick: Callable[[], Address], container: str) -> None:
        free = [[a for a in usable(pool) if self.free(a)] for pool in pools]
        if not any(free):
            with pytest.raises(PoolExhausted):
                pick()
            return
        address = pick()
        rested = next((r for pool in free if (r := [a for a in pool if not self.rests(a)])), None)
        if rested is not None:
            assert address in rested
        else:
            oldest = min(self.resting[a] for pool in free for a in pool)
            assert address in itertools.chain(*free)
            assert self.resting[address] == oldest
        self.hold(address, container)

    @rule(pools=st.permutations(POOLS4), count=st.integers(1, 3), container=CONTAINERS)
    def pick4(self, pools: list[IPv4Network], count: int, container: str) -> None:
        asked = pools[:count]
        self.check_pick(asked, lambda: self.book.pick4(asked, container, self.now), container)

    @rule(pools=st.permutations(POOLS6), count=st.integers(1, 2), container=CONTAINERS)
    def pick6(self, pools: list[IPv6Network], count: int, container: str) -> None:
        asked = pools[:count]
        self.check_pick(asked, lambda: self.book.pick6(asked, container, self.now).address, container)

    @rule(container=CONTAINERS, count=st.integers(1, 5))
    def pick_embedded(self, container: str, count: int) -> None:
        for _ in range(count):
            nibbles = [a for n in range(16) if self.free(a := IPv6Address(BASE | n))]
            pick = self.book.pick6([LARGE6], container, self.now, embedded)
            assert bool(pick.warning) == (not nibbles)
            if nibbles:
                oldest = min(self.resting[a] if self.rests(a) else -1 for a in nibbles)
                assert pick.address in nibbles
                assert (self.resting[pick.address] if self.rests(pick.address) else -1) == oldest
            assert pick.address in LARGE6
            self.hold(pick.address, container)

    @rule(address=st.sampled_from(EXACT), container=CONTAINERS)
    def claim(self, address: Address, container: str) -> None:
        if self.held.get(address, container) != container or self.shared.get(address, set()) - {container}:
            with pytest.raises(AddressInUse):
                self.book.claim(address, container, 0)
            return
        self.book.claim(address, container, 0)
        self.held[address] = container
        self.resting.pop(address, None)

    @rule(address=st.sampled_from(EXACT), container=CONTAINERS)
    def share(self, address: Address, container: str) -> None:
        if address in self.held:
            with pytest.raises(AddressInUse):
                self.book.share(address, container, 0)
            return
        self.book.share(address, container, 0)
        self.shared.setdefault(address, set()).add(container)
        self.resting.pop(address, None)

    @rule(data=st.data(), container=CONTAINERS, cool=st.booleans())
    def release(self, data: st.DataObject, container: str, cool: bool) -> None:
        known = sorted({*self.held, *self.shared, *EXACT}, key=lambda a: (a.version, int(a)))
        address = data.draw(st.sampled_from(known))
        self.book.release(address, container, cool_since=self.now if cool else None)
        sharers = self.shared.get(address, set())
        if self.held.get(address) != container and container not in sharers:
            return
        self.held.pop(address, None)
        sharers.discard(container)
        if not sharers:
            self.shared.pop(address, None)
            if cool:
                self.resting[address] = self.now

    @rule(container=CONTAINERS)
    def release_all(self, container: str) -> None:
        for address in [a for a, holder in self.held.items() if holder == container]:
            self.book.release(address, container, cool_since=self.now)
            self.shared.pop(address, None)
            del self.held[address]
            self.resting[address] = self.now

    @rule(seconds=st.sampled_from([1.0, 10.0, COOLDOWN / 2, COOLDOWN]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def restart(self) -> None:
        cooling = self.book.cooling(self.now)
        self.book = ipam()
        holding = [entry(c, addresses=(str(a),)) for a, c in self.held.items()]
        sharing = [entry(c, anycast=(str(a),)) for a, sharers in self.shared.items() for c in sharers]
        self.book.seed(holding + sharing, cooling)

    @invariant()
    def the_book_agrees_with_the_model(self) -> None:
        for address in {*EXACT, *self.held}:
            assert self.book.holder(address) == self.held.get(address)
            assert self.book.sharers(address) == self.shared.get(address, set())
        assert {ip_address(r.address): r.at for r in self.book.cooling(self.now)} == {
            a: at for a, at in self.resting.items() if self.rests(a)
        }
        taken = {*self.held, *self.shared}
        assert [use.used for use in self.book.use(POOLS4, self.now)] == [
            len(taken.intersection(usable(pool))) for pool in POOLS4
        ]


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(max_examples=250, stateful_step_count=40, database=None)


def test_the_model_s_pools_are_what_they_seem() -> None:
    assert [len(usable(pool)) for pools in (POOLS4, POOLS6) for pool in pools] == [5, 1, 1, 6, 2]
    assert POOLS4[2].subnet_of(POOLS4[0])
    assert POOLS6[1].subnet_of(POOLS6[0])
    assert ip_network("2001:db8:2::/125") == POOLS6[0]
