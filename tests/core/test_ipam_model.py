"""The allocator against a model that cannot be wrong."""

import itertools
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from books import BASE, COOLDOWN, LARGE6, embedded, entry, ipam, v4, v6
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from flock.core.errors import AddressInUse, PoolExhausted
from flock.core.pools import Address, Network
from thoroughness import examples

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
        self.check_pick(asked, lambda: self.book.pick(asked, container, self.now).address, container)

    @rule(pools=st.permutations(POOLS6), count=st.integers(1, 2), container=CONTAINERS)
    def pick6(self, pools: list[IPv6Network], count: int, container: str) -> None:
        asked = pools[:count]
        self.check_pick(asked, lambda: self.book.pick(asked, container, self.now).address, container)

    @rule(container=CONTAINERS, count=st.integers(1, 5))
    def pick_embedded(self, container: str, count: int) -> None:
        for _ in range(count):
            nibbles = [a for n in range(16) if self.free(a := IPv6Address(BASE | n))]
            pick = self.book.pick([LARGE6], container, self.now, embedded)
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
TestAgainstModel.settings = settings(max_examples=examples(250), stateful_step_count=40, database=None)


def test_the_model_s_pools_are_what_they_seem() -> None:
    assert [len(usable(pool)) for pools in (POOLS4, POOLS6) for pool in pools] == [5, 1, 1, 6, 2]
    assert POOLS4[2].subnet_of(POOLS4[0])
    assert POOLS6[1].subnet_of(POOLS6[0])
    assert ip_network("2001:db8:2::/125") == POOLS6[0]
