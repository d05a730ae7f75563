"""Rules as the kernel tells them, read: every form of nft's manual, and what no kernel ever told, without a failure."""

import subprocess
from collections.abc import Iterator, Sequence
from ipaddress import ip_network

import pytest
from foreign_forms import RULES, WITH
from hypothesis import given, settings
from hypothesis import strategies as st
from spaces import Space

from flock.core.facts import Network
from flock.core.foreign import extensions
from flock.core.foreign.matches import Compare, Constant, Elements, Outcome, Puzzle, judged
from flock.core.foreign.packet import Way, packet
from flock.edge.netlink import wire as w
from flock.edge.nft import batch as b
from flock.edge.nft import foreign
from flock.edge.nft.bytecode import elements, rule
from flock.edge.nft.listing import some
from looping import PATIENCE
from namespaces import within
from thoroughness import examples

AGGREGATES: tuple[Network, ...] = (ip_network("192.0.2.0/24"), ip_network("2001:db8:1::/64"))
PACKETS = [packet(way, network) for way in Way for network in AGGREGATES]
SETS = ("s", "i", "d", "c4", "ci", "v", "p", "n")
BASE = "type filter hook {hook} priority 0;"


class Told:
    """What the kernel tells of a table: its rules, and its sets with their elements."""

    def __init__(self, rules: Sequence[bytes], sets: dict[str, tuple[bytes, Sequence[bytes]]]) -> None:
        self.rules, self.sets = rules, sets

    def elements(self, name: str) -> Elements | None:
        return elements(*self.sets[name], whole=True) if name in self.sets else None


@pytest.fixture(scope="module")
def told() -> Iterator[Told]:
    """Of all rules there are; not every kernel, nor every family or hook, has all."""
    space = Space()
    try:
        for family, hook in (("inet", "forward"), ("ip", "prerouting"), ("ip6", "postrouting")):
            lines = [
                f"add table {family} t",
                *(f"add {line.replace(' ', f' {family} t ', 1)}" for line in WITH.split("\n") if line),
            ]
            lines += [f"add chain {family} t f {{ {BASE.format(hook=hook)} }}"]
            lines += [f"add rule {family} t f {line}" for line in RULES]
            command = ["ip", "netns", "exec", space.name, "nft", "-i"]  # a line that is refused does not end it
            script = "\n".join([*lines, "quit", ""])
            subprocess.run(command, input=script, capture_output=True, text=True, timeout=PATIENCE, check=False)
        yield within(f"/run/netns/{space.name}", _told)
    finally:
        space.remove()


def _told() -> Told:
    rules, sets = [], {}
    for family in ("inet", "ip", "ip6"):
        place = b.header(f"{family} t")
        rules += some(b.GETRULE, place)[0]
        for name in SETS:
            described = some(b.GETSET, place, keep=lambda body, n=name: w.as_text(w.attrs(body, 4)[2]) == n)[0]
            if described and name not in sets:
                sets[name] = (described[0], some(b.GETSETELEM, place + w.text(b.ELEMENTS_SET, name))[0])
    foreign.look(AGGREGATES)
    return Told(rules, sets)


def test_every_form_of_a_rule_is_read_and_answered(told: Told) -> None:
    assert len(told.rules) > 1.5 * len(RULES) and set(told.sets) == set(SETS)
    puzzles = []
    for body in told.rules:
        steps = rule(body).steps
        puzzles += [step.name for step in steps if isinstance(step, Puzzle)]
        for asking in PACKETS:
            assert isinstance(judged(steps, asking, told.elements), Outcome)
    assert puzzles == [], "forms that are not understood"


def test_a_register_with_nothing_in_it_is_read_to_an_end() -> None:
    steps = [Constant(8, b""), Compare(8, 0, b"flock")]
    assert isinstance(judged(steps, PACKETS[0], lambda _: None), Outcome)


@given(data=st.data())
@settings(max_examples=examples(1000), deadline=None)
def test_what_no_kernel_ever_told_is_read_without_a_failure(told: Told, data: st.DataObject) -> None:
    body = bytearray(data.draw(st.sampled_from(told.rules)))
    for _ in range(data.draw(st.integers(1, 8))):
        body[data.draw(st.integers(4, len(body) - 1))] = data.draw(st.integers(0, 255))
    for asking in PACKETS[:2]:
        judged(rule(bytes(body)).steps, asking, told.elements)


@given(data=st.data())
@settings(max_examples=examples(1000), deadline=None)
def test_a_set_that_no_kernel_ever_told_is_read_without_a_failure(told: Told, data: st.DataObject) -> None:
    described, listed = told.sets[data.draw(st.sampled_from(SETS))]
    torn = [bytearray(described), *map(bytearray, listed)]
    for _ in range(data.draw(st.integers(1, 8))):
        body = data.draw(st.sampled_from(torn))
        body[data.draw(st.integers(4, len(body) - 1))] = data.draw(st.integers(0, 255))
    first, *rest = map(bytes, torn)
    elements(first, rest, whole=data.draw(st.booleans()))


@given(st.sampled_from(sorted(extensions.READERS)), st.integers(0, 5), st.binary(max_size=200))
@settings(max_examples=examples(1000), deadline=None)
def test_a_match_of_iptables_of_any_content_is_answered(name: str, revision: int, info: bytes) -> None:
    for asking in PACKETS:
        assert extensions.matches(name, revision, info, asking) in (True, False, None, "rate", "others", "puzzle")
