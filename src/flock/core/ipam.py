"""Address management of one node: who holds what, and which address comes next.

In memory and without I/O; the store is what survives, and `seed` rebuilds this from it.  Time and randomness are
passed in.

Small pools (all of IPv4, IPv6 from /112 on) are walked once by a cursor; released addresses queue up behind it,
oldest first, so a released address rests as long as the pool allows and never less than `cooldown` while any
other is free.  Nothing is ever searched: picking costs the same in an empty /16 and on a full node.
Large IPv6 pools are drawn from at random, or composed by ip-algo with a free instance nibble.

An address may also be asked for by name: to hold (`claim`) or to share (`share`).  Then it is one namespace's at a
time, and stays so while it cools down; only what an operator grants to several may be shared by several.
"""

import ipaddress
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from flock.core.errors import AddressInUse, AnotherNamespaces, PoolExhausted
from flock.core.facts import Address, Network
from flock.core.holdings import Claims, Holder, Holdings
from flock.core.model import Allocation, Released
from flock.core.pools import Pool

Compose = Callable[[ipaddress.IPv6Network], int | None]

# Outlasts the kernel's defaults for UDP streams (120 s) and TCP TIME_WAIT (120 s) in connection tracking: a peer
# that still remembers the old holder has forgotten it before the address is given to another pod.
COOLDOWN = 120.0
RANDOM_TRIES = 64
CACHED_POOLS = 256  # distinct pools remembered; pods may name sub-pools by annotation


class Pick(NamedTuple):
    address: Address
    warning: str = ""


class PoolUse(NamedTuple):
    cidr: str
    size: int
    used: int
    cooling: int

    @property
    def full(self) -> bool:
        return self.used >= self.size


class Rest(NamedTuple):
    """Since when an address cools down, and whose it was."""

    since: float
    namespace: str


class Ipam:
    def __init__(self, *, rng: random.Random, cooldown: float = COOLDOWN) -> None:
        self._cooldown = cooldown
        self._random = rng
        self._holdings = Holdings()
        self._cooling: dict[Address, Rest] = {}  # in the order of release
        self._pools: OrderedDict[Network, Pool] = OrderedDict()
        self.aside: tuple[Network, ...] = ()

    # --- knowing ---

    def seed(self, allocations: Iterable[Allocation], released: Iterable[Released]) -> None:
        for allocation in allocations:
            container, namespace = allocation.container_id, allocation.namespace
            named = {ipaddress.ip_address(a) for a in allocation.addresses}
            for held in map(ipaddress.ip_address, allocation.held):
                self._holdings.hold(held, Holder(container, namespace), by_name=held in named)
            for shared in map(ipaddress.ip_address, allocation.anycast):
                self._holdings.share(shared, Holder(container, namespace))
        for entry in sorted(released, key=lambda r: r.at):
            address = ipaddress.ip_address(entry.address)
            if self._free(address):
                self._cooling[address] = Rest(entry.at, entry.namespace)

    def set_aside(self, networks: Sequence[Network]) -> None:
        """What no pool gives out from now on.  Disjoint networks."""
        if self.aside != tuple(networks):
            self.aside = tuple(networks)
            self._pools.clear()

    @property
    def claims(self) -> Claims:
        return self._holdings.claims

    def holder(self, address: Address) -> str | None:
        return self._holdings.holder(address)

    def sharers(self, address: Address) -> frozenset[str]:
        return self._holdings.sharers(address)

    def rivals(self, address: Address, *, namespace: str, shares: bool, granted: bool) -> list[str]:
        """The containers that keep a pod of the namespace from having the address."""
        return list(self._holdings.rivals(address, namespace=namespace, shares=shares, granted=granted))

    def cooling(self, now: float) -> list[Released]:
        self._forget_cooled(now)
        return [Released(str(address), rest.since, rest.namespace) for address, rest in self._cooling.items()]

    def use(self, networks: Iterable[Network], now: float) -> list[PoolUse]:
        """How full each pool is.  Walks all holders: for status, not for ADD."""
        self._forget_cooled(now)
        taken, cooling = _numbers(self._holdings.taken()), _numbers(self._cooling)
        pools = [(network, Pool(network, self.aside)) for network in networks]
        return [
            PoolUse(str(network), pool.size, pool.count(taken[network.version]), pool.count(cooling[network.version]))
            for network, pool in pools
        ]

    # --- taking ---

    def claim(self, address: Address, container_id: str, now: float, *, namespace: str = "") -> None:
        """Take exactly this address.  AddressInUse if another container holds or shares it, AnotherNamespaces if it
        still cools down from another namespace's pod."""
        for rival in self.rivals(address, namespace=namespace, shares=False, granted=False):
            if rival != container_id:
                raise AddressInUse(f"address {address} is held or shared by container {rival}")
        self._refuse_cooling(address, namespace, now)
        self._hold(address, Holder(container_id, namespace), by_name=True)

    def share(
        self, address: Address, container_id: str, now: float, *, namespace: str = "", granted: bool = False
    ) -> None:
        """Bind an anycast address.  AddressInUse if a container holds it for itself; AnotherNamespaces if pods of
        another namespace share it, or did so lately.  `granted`: an operator lets several namespaces have it."""
        holder = self.holder(address)
        if holder is not None:
            raise AddressInUse(f"anycast address {address} is held by container {holder} for itself")
        if self.rivals(address, namespace=namespace, shares=True, granted=granted):
            raise AnotherNamespaces(f"anycast address {address} is shared by pods of another namespace")
        if not granted:
            self._refuse_cooling(address, namespace, now)
        self._cooling.pop(address, None)
        self._holdings.share(address, Holder(container_id, namespace))

    def pick(
        self,
        pools: Sequence[Network],
        container_id: str,
        now: float,
        compose: Compose | None = None,
        *,
        namespace: str = "",
        narrowed: bool = False,
    ) -> Pick:
        """An address of one of the pools, which are of one family.  `compose` gives the address with instance nibble 0
        that ip-algo wants in a pool, or None.  `narrowed`: the pod chose the pools, so they are as good as names, and
        what cools down in them from another namespace's pod is not free."""
        self._forget_cooled(now)
        only = namespace if narrowed else None
        pick = self._compose(pools, now, compose, only) or self._draw(pools, now, only)
        if pick is None:
            raise self._exhausted(pools, now)
        self._hold(pick.address, Holder(container_id, namespace), by_name=False)
        return pick

    # --- giving back ---

    @staticmethod
    def resting(allocation: Allocation, now: float) -> list[Released]:
        """What is to be on record as cooling down once the container is gone, all of which was in use.

        A shared address too: the others who have it may go at the same time, and while one has it, it does not cool."""
        return [Released(address, now, allocation.namespace) for address in allocation.carried]

    def give_back(self, allocation: Allocation, resting: Iterable[Released] = ()) -> None:
        """The container has its addresses no more.  What is not `resting` was never in use, and is as good as new."""
        since = {released.address: released.at for released in resting}
        for address in allocation.carried:
            self.release(ipaddress.ip_address(address), allocation.container_id, cool_since=since.get(address))

    def release(self, address: Address, container_id: str, *, cool_since: float | None) -> None:
        """Free what `container_id` holds or shares; anything else stays as it is.

        `cool_since` None: the address was never in use, it is as good as new.
        """
        namespace = self._holdings.forget(address, container_id)
        if namespace is None or not self._free(address):
            return
        if cool_since is not None:
            self._cooling[address] = Rest(cool_since, namespace)
        for pool in self._pools.values():
            if pool.walked and address in pool:
                pool.take_back(address, cool_since)

    # --- inside ---

    def _free(self, address: Address) -> bool:
        return self._holdings.free(address)

    def _hold(self, address: Address, holder: Holder, *, by_name: bool) -> None:
        self._cooling.pop(address, None)
        self._holdings.hold(address, holder, by_name=by_name)

    def _refuse_cooling(self, address: Address, namespace: str, now: float) -> None:
        self._forget_cooled(now)
        rest = self._cooling.get(address)
        if rest is not None and rest.namespace != namespace:
            left = rest.since + self._cooldown - now
            raise AnotherNamespaces(
                f"address {address} cools down from a pod of another namespace for {left:.0f} s more",
                details="the runtime tries again by itself; or ask for another address",
            )

    def _forget_cooled(self, now: float) -> None:
        while self._cooling:
            address, rest = next(iter(self._cooling.items()))
            if rest.since + self._cooldown > now:
                return
            del self._cooling[address]

    def _pool(self, network: Network) -> Pool:
        pool = self._pools.get(network)
        if pool is None:
            pool = self._pools[network] = Pool(network, self.aside)
            for address, rest in self._cooling.items() if pool.walked else ():
                if address in pool:
                    pool.take_back(address, rest.since)
            if len(self._pools) > CACHED_POOLS:
                self._pools.popitem(last=False)
        else:
            self._pools.move_to_end(network)
        return pool

    def _rested(self, pool: Pool, now: float) -> Address | None:
        """The next address of a walked pool that nobody used lately."""
        while pool.cursor <= pool.last:
            address = pool.address(pool.cursor)
            pool.cursor = pool.beyond(pool.cursor + 1)
            if self._free(address) and address not in self._cooling:
                return address
        head = self._head(pool)
        if head is None or pool.released[head] + self._cooldown > now:
            return None
        return head

    def _head(self, pool: Pool, only: str | None = None) -> Address | None:
        """The longest-resting free address; those that were taken meanwhile are dropped on the way."""
        while pool.released:
            address = next(iter(pool.released))
            if self._free(address):
                waiting = (a for a in pool.released if self._free(a) and self._may_hurry(a, only))
                return address if only is None else next(waiting, None)
            del pool.released[address]
        return None

    def _may_hurry(self, address: Address, only: str | None) -> bool:
        rest = self._cooling.get(address)
        return only is None or rest is None or rest.namespace == only

    def _compose(self, pools: Sequence[Network], now: float, compose: Compose | None, only: str | None) -> Pick | None:
        """Any free nibble, rested ones first, then the longest-resting; None when all sixteen are taken."""
        if compose is None:
            return None
        for network in pools:
            base = compose(network) if isinstance(network, ipaddress.IPv6Network) else None
            if base is None:
                continue
            pool = self._pool(network)
            wanted = (ipaddress.IPv6Address(base | n) for n in range(16))
            free = [a for a in wanted if a in pool and self._free(a)]
            rested = [a for a in free if a not in self._cooling]
            if rested:
                return Pick(self._random.choice(rested))
            resting = [a for a in free if self._may_hurry(a, only)]
            if resting:
                return Pick(min(resting, key=lambda a: self._cooling[a].since))
            pick = self._draw([network], now, only)
            if pick is not None:
                reason = f"all 16 ip-algo addresses {ipaddress.IPv6Address(base)}/124 are in use"
                return pick._replace(warning=f"{reason}; a random address was picked instead")
        return None

    def _draw(self, pools: Sequence[Network], now: float, only: str | None) -> Pick | None:
        """The next of small pools and of all of IPv4, any of larger ones; where all that is free cools down, the one
        that has done so for longest."""
        for network in pools:
            pool = self._pool(network)
            if pool.walked:
                if (rested := self._rested(pool, now)) is not None:
                    return Pick(rested)
                continue
            for _ in range(RANDOM_TRIES if pool.size else 0):
                address = pool.nth(self._random.randrange(pool.size))
                if self._free(address) and address not in self._cooling:
                    return Pick(address)
        walked = [pool for network in pools if (pool := self._pool(network)).walked]
        heads = [(pool.released[head], head) for pool in walked if (head := self._head(pool, only)) is not None]
        return Pick(min(heads, key=lambda pair: pair[0])[1]) if heads else None

    def _exhausted(self, pools: Sequence[Network], now: float) -> PoolExhausted:
        family = f"IPv{pools[0].version}" if pools else "IP"
        fill = ", ".join(f"{u.cidr} has {u.used} of {u.size} in use" for u in self.use(pools, now))
        return PoolExhausted(
            f"no free {family} address: {fill}",
            details="free addresses by deleting pods, or add a CIDR to this node's NodeConfig",
        )


def _numbers(addresses: Iterable[Address]) -> dict[int, list[int]]:
    """In order, by family."""
    found: dict[int, list[int]] = {4: [], 6: []}
    for address in addresses:
        found[address.version].append(int(address))
    for numbers in found.values():
        numbers.sort()
    return found
