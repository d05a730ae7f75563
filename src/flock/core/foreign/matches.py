"""One rule of somebody else, and a packet: does it hold?  Yes, no, or it depends.  Pure, over the kernel's own form.

A rule is a program of few steps over registers: load, mask, compare, look up, decide.  However its author wrote it
(sets, negations, maps of verdicts, iptables' words), the kernel keeps this form alone.  Registers hold what is known of
their bits (`bits.py`), so that a comparison has three answers.  A step nobody here understands makes the rule depend on
it, by name; it never stops the reading.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from flock.core.foreign import extensions
from flock.core.foreign import packet as p
from flock.core.foreign.bits import Answer, Bits, all_of, anything, exactly, joined, opposite
from flock.core.foreign.extensions import OTHERS, PUZZLE, RATE
from flock.core.foreign.packet import Packet

VERDICT = -1  # the register in which a decision is put
EQUAL, UNEQUAL, LESS, AT_MOST, MORE, AT_LEAST = range(6)
ENDING = frozenset({"accept", "drop", "queue"})

SOME = "some"  # why it depends, if it is for none of the reasons that extensions have


class Load(msgspec.Struct, frozen=True):
    to: int
    of: str  # payload, meta, ct, fib; else what nobody can know
    numbers: tuple[int, ...] = ()
    size: int = 4


class Constant(msgspec.Struct, frozen=True):
    to: int
    value: bytes


class Decide(msgspec.Struct, frozen=True):
    verdict: str  # accept, drop, queue, return, jump, goto
    target: str = ""


class Compare(msgspec.Struct, frozen=True):
    of: int
    how: int
    value: bytes


class Between(msgspec.Struct, frozen=True):
    of: int
    low: bytes
    high: bytes
    inverse: bool = False


class Mask(msgspec.Struct, frozen=True):
    of: int
    to: int
    mask: bytes
    xor: bytes


class Swap(msgspec.Struct, frozen=True):
    of: int
    to: int
    size: int
    width: int


class Lookup(msgspec.Struct, frozen=True):
    of: int
    set: str
    to: int | None = None
    inverse: bool = False


class Extension(msgspec.Struct, frozen=True):
    """A match of iptables, as its module has it."""

    name: str
    revision: int
    info: bytes


class Write(msgspec.Struct, frozen=True):
    """The packet's mark, out of a register or as (mark & ~mask) ^ value."""

    of: int | None = None
    mask: bytes = b"\xff" * 4
    value: bytes = bytes(4)


class Untrack(msgspec.Struct, frozen=True):
    pass


class Rate(msgspec.Struct, frozen=True):
    """Holds for a while, or after a while."""

    over: bool


class Never(msgspec.Struct, frozen=True):
    """Asks for what no such packet has."""


class Puzzle(msgspec.Struct, frozen=True):
    name: str


Step = (
    Load
    | Constant
    | Decide
    | Compare
    | Between
    | Mask
    | Swap
    | Lookup
    | Extension
    | Write
    | Untrack
    | Rate
    | Never
    | Puzzle
)


class Rule(msgspec.Struct, frozen=True):
    handle: int
    steps: tuple[Step, ...]


class Element(msgspec.Struct, frozen=True):
    """From `low` to `high`, both of it; without either it is all that no other is."""

    low: bytes
    high: bytes
    gives: Decide | bytes | None = None


class Elements(msgspec.Struct, frozen=True):
    size: int
    elements: tuple[Element, ...]
    fields: tuple[int, ...] = ()  # of a concatenation: sizes, each a multiple of four
    whole: bool = True  # there are no more


Sets = Callable[[str], Elements | None]


class Outcome(msgspec.Struct, frozen=True):
    holds: Answer
    decided: Decide | None
    packet: Packet
    doubts: frozenset[str] = frozenset()
    names_pods: bool = False
    puzzle: str = ""


def judged(steps: Sequence[Step], packet: Packet, sets: Sets) -> Outcome:
    run = _Run(packet, sets)
    for step in steps:
        answer = run.take(step)
        if answer is False:
            return Outcome(False, None, packet)
        if run.decided is not None:
            break
    holds = None if run.doubts else True
    return Outcome(holds, run.decided, run.packet, frozenset(run.doubts), run.names_pods, run.puzzle)


class _Run:
    def __init__(self, packet: Packet, sets: Sets) -> None:
        self.packet, self.sets = packet, sets
        self.registers: dict[int, Bits] = {}
        self.decided: Decide | None = None
        self.doubts: set[str] = set()
        self.names_pods = False
        self.puzzle = ""

    def take(self, step: Step) -> Answer:
        match step:
            case Load():
                return self._load(step)
            case Constant(to, value):
                self.registers[to] = exactly(value)
            case Decide():
                self.decided = step
            case Compare(of, how, value):
                bits = self._read(of, len(value))
                return self._weigh(bits, _compared(bits, how, value), plainly=how == EQUAL)
            case Between(of, low, high, inverse):
                bits = self._read(of, len(low))
                answer = bits.within(low, high)
                return self._weigh(bits, opposite(answer) if inverse else answer, plainly=not inverse)
            case Mask(of, to, mask, xor):
                self.registers[to] = self._read(of, len(mask)).masked(mask, xor)
            case Swap(of, to, size, width):
                self.registers[to] = self._read(of, size).swapped(width)
            case Lookup():
                return self._look_up(step)
            case _:
                return self._other(step)
        return True

    def _other(self, step: Any) -> Answer:
        match step:
            case Extension(name, revision, info):
                found = extensions.matches(name, revision, info, self.packet)
                if isinstance(found, str):
                    return self._doubt(found, f"the match {name} is not understood")
                return self._doubt(SOME) if found is None else found
            case Write(of, mask, value):
                marked = self.packet.mark.masked(_inverted(mask), value) if of is None else self._read(of, 4)
                certain = marked if not self.doubts else anything(4)
                self.packet = msgspec.structs.replace(self.packet, mark=certain)
            case Untrack():
                if not self.doubts:
                    self.packet = msgspec.structs.replace(self.packet, tracked=False)
            case Rate(over):
                return False if over else self._doubt(RATE)
            case Never():
                return False
            case Puzzle(name):
                return self._doubt(PUZZLE, f"{name} is not understood")
        return True

    def _doubt(self, why: str, name: str = "") -> Answer:
        self.doubts.add(why)
        if why == PUZZLE:
            self.puzzle = self.puzzle or name
        return None

    def _weigh(self, bits: Bits, answer: Answer, *, plainly: bool) -> Answer:
        if answer is None:
            unknown = bits.all & ~bits.known
            self.names_pods |= bool(plainly and bits.pods and bits.others)
            return self._doubt(OTHERS if bits.others and not unknown & ~(bits.pods | bits.others) else SOME)
        self.names_pods |= bool(answer and plainly and bits.pods)
        return answer

    def _load(self, step: Load) -> Answer:
        match step.of:
            case "payload":
                found: Bits | None = p.payload(self.packet, *step.numbers)
            case "meta":
                found = p.meta(self.packet, *step.numbers)
            case "ct":
                found = p.connection(self.packet, *step.numbers)
            case "fib":
                found = p.route(self.packet, *step.numbers)
            case _:
                found = anything(step.size)
        if found is None:
            return False
        self.registers[step.to] = found
        return True

    def _read(self, register: int, size: int) -> Bits:
        """Registers are of four bytes; who loads less leaves zeros, who loads more goes on in the next."""
        parts: list[Bits] = []
        got = 0
        while got < size or not parts:
            found = self.registers.get(register + got // 4)
            if found is None or not found.size:
                parts.append(anything(size - got))
                break
            parts.append(found)
            if found.size % 4:
                parts.append(exactly(bytes(-found.size % 4)))
            got += found.size + -found.size % 4
        whole = parts[0] if len(parts) == 1 else joined(parts)
        return whole.part(0, size)

    def _look_up(self, step: Lookup) -> Answer:
        known = self.sets(step.set)
        if known is None:
            if step.to is not None and step.to != VERDICT:
                self.registers[step.to] = anything(16)
            return self._doubt(PUZZLE, f"the set {step.set} cannot be read")
        key = self._read(step.of, known.size)
        found, answer = _found(known, key)
        if answer is not True and not known.whole:
            self._weigh(key, None, plainly=False)
            return self._doubt(PUZZLE, f"the set {step.set} has more elements than are read") if key.pods else None
        if step.to is None:
            return self._weigh(key, opposite(answer) if step.inverse else answer, plainly=not step.inverse)
        if answer is True and found is not None and isinstance(found.gives, Decide):
            self.decided = found.gives if found.gives.verdict else None
        elif step.to != VERDICT:
            given = found.gives if answer is True and found is not None else None
            self.registers[step.to] = exactly(given) if isinstance(given, bytes) and given else anything(16)
        return self._weigh(key, answer, plainly=True)


def _found(known: Elements, key: Bits) -> tuple[Element | None, Answer]:
    depends = False
    for element in known.elements:
        if not element.low:
            continue
        answer = _is(element, key, known.fields)
        if answer:
            return element, True
        depends |= answer is None
    if depends:
        return None, None
    rest = next((element for element in known.elements if not element.low), None)
    return rest, rest is not None


def _is(element: Element, key: Bits, fields: tuple[int, ...]) -> Answer:
    if element.low == element.high:
        return key.equals(element.low)
    if len(fields) < 2:
        return key.within(element.low, element.high)
    ends = [sum(fields[: n + 1]) for n in range(len(fields))]
    places = [slice(end - size, end) for end, size in zip(ends, fields, strict=True)]
    return all_of(key.part(at.start, at.stop - at.start).within(element.low[at], element.high[at]) for at in places)


def _compared(bits: Bits, how: int, value: bytes) -> Answer:
    if how in (EQUAL, UNEQUAL):
        answer = bits.equals(value)
        return answer if how == EQUAL else opposite(answer)
    lowest, highest = bytes(len(value)), b"\xff" * len(value)
    if how in (LESS, AT_LEAST):
        answer = bits.within(value, highest)
        return answer if how == AT_LEAST else opposite(answer)
    answer = bits.within(lowest, value)
    return answer if how == AT_MOST else opposite(answer)


def _inverted(mask: bytes) -> bytes:
    return bytes(0xFF & ~byte for byte in mask)
