"""Picking does not search: it costs the same in pools of all sizes and on a full node."""

import random
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network

import pytest
from books import COOLDOWN, SMALL4, entry, give_back, take4, v4, v6

from flock.core.errors import PoolExhausted
from flock.core.ipam import Ipam
from flock.core.pools import Address


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
    assert {book.cost(lambda n=n: book.pick([pool], f"c{n}", 0).address) for n in range(10)} == {1}  # type: ignore[misc]
    for n in range(10, size):
        book.pick([pool], f"c{n}", 0)
    costs = set()
    for n in range(10):
        address = pool[2 + n]
        book.release(address, f"c{n}", cool_since=n)
        costs.add(book.cost(lambda n=n: book.pick([pool], f"c{n}", n).address))  # type: ignore[misc]
    assert max(costs) <= 4

    def exhausted() -> None:
        with pytest.raises(PoolExhausted):
            book.pick([pool], "late", 20)

    assert book.cost(exhausted) <= 4


@pytest.mark.parametrize("pool", v6("2001:db8::/124", "2001:db8::/112", "2001:db8::/64"), ids=str)
def test_picking_ipv6_costs_the_same_in_pools_of_all_sizes(pool: IPv6Network) -> None:
    book = Counting(cooldown=COOLDOWN, rng=random.Random(1))
    assert {book.cost(lambda n=n: book.pick([pool], f"c{n}", 0)) for n in range(10)} == {1}  # type: ignore[misc]


def test_held_addresses_are_walked_past_once_and_never_again() -> None:
    book = Counting(rng=random.Random(1), cooldown=COOLDOWN)
    pool = v4("10.0.0.0/16")
    book.seed([entry(f"s{n}", ip4=str(pool[0][2 + n])) for n in range(1000)], [])
    book.pick(pool, "first", 0)
    assert {book.cost(lambda n=n: book.pick(pool, f"c{n}", 0).address) for n in range(50)} == {1}  # type: ignore[misc]


def test_a_sub_pool_left_alone_does_not_pay_for_the_node_pool_s_comings_and_goings() -> None:
    book = Counting(rng=random.Random(1), cooldown=COOLDOWN)
    part = v4("192.0.2.4/30")
    take4(book, part, 1)
    give_back(book, "192.0.2.6", at=0)
    for now in range(1, 1001):
        address = book.pick([SMALL4], "c", now).address
        book.release(address, "c", cool_since=now)
    assert book.cost(lambda: book.pick(part, "x", 1001).address) <= 4
