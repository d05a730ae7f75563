"""Address management of one node: who holds what, and which address comes next.

In memory and without I/O; the store is what survives, and `seed` rebuilds this from it.  Time is passed in.

Small pools (all of IPv4, IPv6 from /112 on) are walked once by a cursor; released addresses queue up behind it,
oldest first, so a released address rests as long as the pool allows and never less than `cooldown` while any
other is free.  Nothing is ever searched: picking costs the same in an empty /16 and on a full node.
Large IPv6 pools are drawn from at random, or composed by ip-algo with a free instance nibble.
"""

import ipaddress
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from flock.core.errors import AddressInUse, PoolExhausted
from flock.core.model import Allocation, Released

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Compose = Callable[[ipaddress.IPv6Network], int | None]

# Outlasts the kernel's defaults for UDP streams (120 s) and TCP TIME_WAIT (120 s) in connection tracking: a peer
# that still remembers the old holder has forgotten it before the address is given to another pod.
COOLDOWN = 120.0
SMALL_V6_BITS = 16  # up to 65536 addresses are walked, beyond that random picks practically never collide
RANDOM_TRIES = 64
NEVER = float("-inf")
CACHED_RANGES = 256  # distinct pools remembered; pods may name sub-pools by annotation


class Pick6(NamedTuple):
    address: ipaddress.IPv6Address
    cools: bool  # comes up again soon after release, so it has to cool down
    warning: str = ""


class PoolUse(NamedTuple):
    cidr: str
    size: int
    used: int
    cooling: int

    @property
    def full(self) -> bool:
        return self.used >= self.size


class _Range:
    """The usable addresses of one pool; of a small one also the order in which they are to be given out."""

    def __init__(self, network: Network) -> None:
        self.first, self.last = usable(network)
        self.size = max(0, self.last - self.first + 1)
        self.cursor = self.first
        self.released: OrderedDict[Address, float] = OrderedDict()  # longest resting first, each address once
        self.address: type[Address] = type(network.network_address)

    def __contains__(self, address: Address) -> bool:
        return isinstance(address, self.address) and self.first <= int(address) <= self.last

    def take_back(self, address: Address, since: float | None) -> None:
        self.released[address] = NEVER if since is None else since
        self.released.move_to_end(address, last=since is not None)


class Ipam:
    def __init__(self, *, cooldown: float = COOLDOWN, rng: random.Random | None = None) -> None:
        self._cooldown = cooldown
        self._random = rng or random.SystemRandom()
        self._holder: dict[Address, str] = {}
        self._sharers: dict[Address, set[str]] = {}  # anycast: many pods may bind one address
        self._cooling: dict[Address, float] = {}  # in the order of release
        self._ranges: OrderedDict[Network, _Range] = OrderedDict()

    # --- knowing ---

    def seed(self, allocations: Iterable[Allocation], released: Iterable[Released]) -> None:
        for allocation in allocations:
            for held in allocation.held:
                self._holder.setdefault(ipaddress.ip_address(held), allocation.container_id)
            for shared in allocation.anycast:
                self._sharers.setdefault(ipaddress.ip_address(shared), set()).add(allocation.container_id)
        for entry in sorted(released, key=lambda r: r.at):
            address = ipaddress.ip_address(entry.address)
            if self._free(address):
                self._cooling[address] = entry.at

    def holder(self, address: Address) -> str | None:
        return self._holder.get(address)

    def sharers(self, address: Address) -> frozenset[str]:
        return frozenset(self._sharers.get(address, ()))

    def cooling(self, now: float) -> list[Released]:
        self._forget_cooled(now)
        return [Released(str(address), at) for address, at in self._cooling.items()]

    def use(self, networks: Iterable[Network], now: float) -> list[PoolUse]:
        """How full each pool is.  Walks all holders: for status, not for ADD."""
        self._forget_cooled(now)
        taken = self._holder.keys() | self._sharers.keys()
        pools = [(str(network), _Range(network)) for network in networks]
        return [
            PoolUse(cidr, pool.size, sum(a in pool for a in taken), sum(a in pool for a in self._cooling))
            for cidr, pool in pools
        ]

    # --- taking ---

    def claim(self, address: Address, container_id: str) -> None:
        """Take exactly this address.  AddressInUse if another container holds or shares it."""
        holder = self._holder.get(address)
        if holder is not None and holder != container_id:
            raise AddressInUse(f"address {address} is held by container {holder}")
        sharers = self._sharers.get(address, set()) - {container_id}
        if sharers:
            raise AddressInUse(f"address {address} is an anycast address of container {min(sharers)}")
        self._hold(address, container_id)

    def share(self, address: Address, container_id: str) -> None:
        """Bind an anycast address.  AddressInUse if a container holds it for itself."""
        holder = self._holder.get(address)
        if holder is not None:
            raise AddressInUse(f"anycast address {address} is held by container {holder} for itself")
        self._cooling.pop(address, None)
        self._sharers.setdefault(address, set()).add(container_id)

    def pick4(self, pools: Sequence[ipaddress.IPv4Network], container_id: str, now: float) -> ipaddress.IPv4Address:
        self._forget_cooled(now)
        rested = next((a for pool in pools if (a := self._rested(pool, now)) is not None), None)
        address = rested or self._longest_resting(pools)
        if address is None:
            raise self._exhausted("IPv4", pools, now)
        self._hold(address, container_id)
        return ipaddress.IPv4Address(address)

    def pick6(
        self, pools: Sequence[ipaddress.IPv6Network], container_id: str, now: float, compose: Compose | None = None
    ) -> Pick6:
        """`compose` gives the address with instance nibble 0 that ip-algo wants in a pool, or None."""
        self._forget_cooled(now)
        pick = self._compose(pools, now, compose) or self._draw(pools, now)
        if pick is None:
            raise self._exhausted("IPv6", pools, now)
        self._hold(pick.address, container_id)
        return pick

    # --- giving back ---

    def release(self, address: Address, container_id: str, *, cool_since: float | None) -> None:
        """Free what `container_id` holds or shares; anything else stays as it is.

        `cool_since` None: the address was never in use, it is as good as new.
        """
        if self._holder.get(address) == container_id:
            del self._holder[address]
        elif container_id not in self._sharers.get(address, ()):
            return
        sharers = self._sharers.get(address, set())
        sharers.discard(container_id)
        if sharers:
            return
        self._sharers.pop(address, None)
        if cool_since is not None:
            self._cooling[address] = cool_since
        for walked in filter(lambda r: address in r, self._ranges.values()):
            walked.take_back(address, cool_since)

    # --- inside ---

    def _free(self, address: Address) -> bool:
        return address not in self._holder and address not in self._sharers

    def _hold(self, address: Address, container_id: str) -> None:
        self._cooling.pop(address, None)
        self._holder[address] = container_id

    def _forget_cooled(self, now: float) -> None:
        while self._cooling:
            address, at = next(iter(self._cooling.items()))
            if at + self._cooldown > now:
                return
            del self._cooling[address]

    def _range(self, network: Network) -> _Range:
        walked = self._ranges.get(network)
        if walked is None:
            walked = self._ranges[network] = _Range(network)
            walked.released.update((a, at) for a, at in self._cooling.items() if a in walked)
            if len(self._ranges) > CACHED_RANGES:
                self._ranges.popitem(last=False)
        else:
            self._ranges.move_to_end(network)
        return walked

    def _rested(self, pool: Network, now: float) -> Address | None:
        """The next address of a small pool that nobody used lately."""
        walked = self._range(pool)
        while walked.cursor <= walked.last:
            address = walked.address(walked.cursor)
            walked.cursor += 1
            if self._free(address) and address not in self._cooling:
                return address
        head = self._head(walked)
        if head is None or walked.released[head] + self._cooldown > now:
            return None
        return head

    def _longest_resting(self, pools: Iterable[Network]) -> Address | None:
        """When every free address is still cooling: the one that has done so for longest."""
        ranges = [self._range(pool) for pool in pools]
        heads = [(walked.released[head], head) for walked in ranges if (head := self._head(walked)) is not None]
        return min(heads, key=lambda pair: pair[0])[1] if heads else None

    def _head(self, walked: _Range) -> Address | None:
        """The longest-resting free address; those that were taken meanwhile are dropped on the way."""
        while walked.released:
            address = next(iter(walked.released))
            if self._free(address):
                return address
            del walked.released[address]
        return None

    def _compose(self, pools: Sequence[ipaddress.IPv6Network], now: float, compose: Compose | None) -> Pick6 | None:
        """Any free nibble, rested ones first, then the longest-resting; None when all sixteen are taken."""
        if compose is None:
            return None
        for pool in pools:
            base = compose(pool)
            if base is None:
                continue
            first, last = usable(pool)
            wanted = (ipaddress.IPv6Address(base | n) for n in range(16) if first <= base | n <= last)
            free = [a for a in wanted if self._free(a)]
            rested = [a for a in free if a not in self._cooling]
            if rested:
                return Pick6(self._random.choice(rested), cools=True)
            if free:
                return Pick6(min(free, key=lambda a: self._cooling[a]), cools=True)
            pick = self._draw([pool], now)
            if pick is not None:
                reason = f"all 16 ip-algo addresses {ipaddress.IPv6Address(base)}/124 are in use"
                return pick._replace(warning=f"{reason}; a random address was picked instead")
        return None

    def _draw(self, pools: Sequence[ipaddress.IPv6Network], now: float) -> Pick6 | None:
        for pool in pools:
            if is_small(pool):
                rested = self._rested(pool, now)
                if rested is not None:
                    return Pick6(ipaddress.IPv6Address(rested), cools=True)
                continue
            for _ in range(RANDOM_TRIES):
                # 0 is the subnet-router anycast address, 1 what people give to gateways
                address = pool.network_address + self._random.randrange(2, pool.num_addresses)
                if self._free(address) and address not in self._cooling:
                    return Pick6(address, cools=False)
        resting = self._longest_resting([pool for pool in pools if is_small(pool)])
        return None if resting is None else Pick6(ipaddress.IPv6Address(resting), cools=True)

    def _exhausted(self, family: str, pools: Sequence[Network], now: float) -> PoolExhausted:
        fill = ", ".join(f"{u.cidr} has {u.used} of {u.size} in use" for u in self.use(pools, now))
        return PoolExhausted(
            f"no free {family} address: {fill}",
            details="free addresses by deleting pods, or add a CIDR to this node's NodeConfig",
        )


def is_small(pool: ipaddress.IPv6Network) -> bool:
    return 128 - pool.prefixlen <= SMALL_V6_BITS


def usable(network: Network) -> tuple[int, int]:
    """First and last address a pod may get by itself: without network, gateway (.1) and broadcast address."""
    base = int(network.network_address)
    if network.version == 4:
        return base + 2, int(network.broadcast_address) - 1
    if network.prefixlen == 128:
        return base, base
    if network.prefixlen == 127:
        return base, base + 1
    return base + 2, int(network.broadcast_address)
