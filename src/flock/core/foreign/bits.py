"""Values of which only some bits are known.  Pure.

A pod's address is the first bits of its node's prefix and then anything; its interface's name is `flock` and then
anything; a port is anything.  Asked whether such a value equals another, or lies between two, there are three answers:
yes, no, and None: it depends.  What is known not to be (an address outside is none of the node's) answers some more.
"""

from collections.abc import Iterable

import msgspec

Answer = bool | None
Interval = tuple[bytes, bytes]  # both ends belong to it


class Bits(msgspec.Struct, frozen=True):
    """`value` has zeros where nothing is known.  Of `never`, each a pair of value and known bits, it is none."""

    size: int  # in bytes
    value: int
    known: int
    pods: int = 0  # bits that tell of the pod at one end
    others: int = 0  # of whoever is at the other
    never: tuple[tuple[int, int], ...] = ()

    @property
    def all(self) -> int:
        return (1 << 8 * self.size) - 1

    @property
    def is_certain(self) -> bool:
        return self.known == self.all

    def part(self, offset: int, size: int) -> "Bits":
        """Bytes of it."""
        if (offset, size) == (0, self.size):
            return self
        shift, mask = 8 * (self.size - offset - size), (1 << 8 * size) - 1
        kept = tuple((v >> shift, k >> shift) for v, k in self.never if k == k >> shift << shift and k >> shift <= mask)
        value, known, pods, others = (n >> shift & mask for n in (self.value, self.known, self.pods, self.others))
        return Bits(size, value, known, pods, others, kept)

    def masked(self, mask: bytes, xor: bytes) -> "Bits":
        m, x = int.from_bytes(mask), int.from_bytes(xor)
        known = self.known | (self.all & ~m)
        kept = tuple((v ^ (x & k), k) for v, k in self.never if not k & ~m)
        return Bits(self.size, (self.value & m ^ x) & known, known, self.pods & m, self.others & m, kept)

    def swapped(self, width: int) -> "Bits":
        """In the other order of bytes, in pieces of so many."""
        value, known = (_swapped(n, self.size, width) for n in (self.value, self.known))
        return Bits(self.size, value, known)

    def equals(self, wanted: bytes) -> Answer:
        value = int.from_bytes(wanted)
        if (self.value ^ value) & self.known or any(value & k == v for v, k in self.never):
            return False
        return True if self.is_certain else None

    def within(self, low: bytes, high: bytes) -> Answer:
        first, last = int.from_bytes(low), int.from_bytes(high)
        least, most = self.value, self.value | self.all & ~self.known
        if most < first or least > last or first > last:
            return False
        if first <= least and most <= last:
            return True
        around = any(_is_prefix(k, self.all) and v <= first and last <= v | self.all & ~k for v, k in self.never)
        return False if around else None


def exactly(value: bytes) -> Bits:
    return Bits(len(value), int.from_bytes(value), (1 << 8 * len(value)) - 1)


def anything(size: int, never: tuple[tuple[int, int], ...] = ()) -> Bits:
    return Bits(size, 0, 0, never=never)


def beginning(value: bytes, size: int) -> Bits:
    shift = 8 * (size - len(value))
    return Bits(size, int.from_bytes(value) << shift, (1 << 8 * len(value)) - 1 << shift)


def joined(parts: Iterable[Bits]) -> Bits:
    """One after the other, the first in front."""
    parts = [*parts]
    size = sum(part.size for part in parts)
    value = known = pods = others = 0
    never: list[tuple[int, int]] = []
    left = size
    for part in parts:
        left -= part.size
        shift = 8 * left
        value, known = value | part.value << shift, known | part.known << shift
        pods, others = pods | part.pods << shift, others | part.others << shift
        never += ((v << shift, k << shift) for v, k in part.never)
    return Bits(size, value, known, pods, others, tuple(never))


def opposite(answer: Answer) -> Answer:
    return None if answer is None else not answer


def any_of(answers: Iterable[Answer]) -> Answer:
    found = {*answers}
    return True if True in found else None if None in found else False


def all_of(answers: Iterable[Answer]) -> Answer:
    found = {*answers}
    return False if False in found else None if None in found else True


def _swapped(number: int, size: int, width: int) -> int:
    data = number.to_bytes(size)
    return int.from_bytes(b"".join(data[at : at + width][::-1] for at in range(0, size, width)))


def _is_prefix(known: int, everything: int) -> bool:
    rest = everything & ~known
    return not rest & rest + 1
