"""The addresses of one pool: which of them a pod may get without naming one, and in which order.

Network, gateway and broadcast address are nobody's, and what is set aside (an operator's grant names it) is given to
those who ask for it by name alone.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network

from flock.core.facts import Address, Network

SMALL_V6_BITS = 16  # up to 65536 addresses are walked, beyond that random picks practically never collide
NEVER = float("-inf")


class Pool:
    """The usable addresses of one network; of a small one also the order in which they are to be given out."""

    def __init__(self, network: Network, aside: Iterable[Network] = ()) -> None:
        self.first, self.last = usable(network)
        self.address: type[Address] = type(network.network_address)
        self.walked = isinstance(network, IPv4Network) or 128 - network.prefixlen <= SMALL_V6_BITS
        spans = ((int(n[0]), int(n[-1])) for n in aside if n.version == network.version)
        clipped = ((max(first, self.first), min(last, self.last)) for first, last in spans)
        self._aside = sorted((first, last) for first, last in clipped if first <= last)  # disjoint, as networks are
        self.size = max(0, self.last - self.first + 1) - sum(last - first + 1 for first, last in self._aside)
        self.cursor = self.beyond(self.first)
        self.released: OrderedDict[Address, float] = OrderedDict()  # of a walked one: longest resting first

    def __contains__(self, address: Address) -> bool:
        value = int(address)
        return isinstance(address, self.address) and self.first <= value <= self.last and value == self.beyond(value)

    def count(self, numbers: Sequence[int]) -> int:
        """How many of these, of addresses of its family, in order, are its own."""

        def within(first: int, last: int) -> int:
            return max(0, bisect_right(numbers, last) - bisect_left(numbers, first))  # too small a network has none

        return within(self.first, self.last) - sum(within(first, last) for first, last in self._aside)

    def beyond(self, value: int) -> int:
        """The first number from `value` on that is not set aside."""
        for first, last in self._aside:
            if first <= value <= last:
                value = last + 1
        return value

    def nth(self, number: int) -> Address:
        """The address with so many usable ones before it."""
        value = self.first + number
        for first, last in self._aside:
            if first <= value:
                value += last - first + 1
        return self.address(value)

    def take_back(self, address: Address, since: float | None) -> None:
        self.released[address] = NEVER if since is None else since
        self.released.move_to_end(address, last=since is not None)


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
