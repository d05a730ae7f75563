"""Which packet filters of others drop pods' packets: over rules in the form in which the kernel keeps them."""

import struct
from ipaddress import ip_network

import pytest

from flock.core.facts import Network
from flock.core.foreign.matches import (
    EQUAL,
    UNEQUAL,
    Compare,
    Decide,
    Element,
    Elements,
    Extension,
    Load,
    Lookup,
    Mask,
    Puzzle,
    Rate,
    Rule,
    Step,
    Write,
)
from flock.core.foreign.packet import Link, Meta
from flock.core.foreignrules import Chain, Chapter, Dropped, Obstacle, Table, Unclear, dropped

AGGREGATES: tuple[Network, ...] = (ip_network("2001:db8:1::/64"), ip_network("192.0.2.0/24"))
UPLINKS = {version: [Link("eth0", 2)] for version in (4, 6)}
ACCEPT, DROP = Decide("accept"), Decide("drop")
Steps = list[Step]


def interface(side: str, name: str, how: int = EQUAL) -> Steps:
    value = name[:-1].encode() if name.endswith("*") else name.encode().ljust(16, b"\0")
    return [Load(0, "meta", (Meta.IIFNAME if side == "i" else Meta.OIFNAME,)), Compare(0, how, value)]


def address(field: str, prefix: str, how: int = EQUAL) -> Steps:
    """With what nft puts before it, in a table of both families."""
    network = ip_network(prefix)
    size, source = (4, 12) if network.version == 4 else (16, 8)
    family = b"\x02" if network.version == 4 else b"\x0a"
    return [
        Load(0, "meta", (Meta.NFPROTO,)),
        Compare(0, EQUAL, family),
        Load(0, "payload", (1, source if field == "saddr" else source + size, size)),
        Mask(0, 0, network.netmask.packed, bytes(size)),
        Compare(0, how, network.network_address.packed),
    ]


def states(*bits: int) -> Steps:
    mask = struct.pack("=I", sum(bits))
    return [Load(0, "ct", (0,)), Mask(0, 0, mask, bytes(4)), Compare(0, UNEQUAL, bytes(4))]


PORT: Steps = [Load(0, "payload", (2, 2, 2)), Compare(0, EQUAL, struct.pack(">H", 22))]
ESTABLISHED, NEW = states(2, 4), states(8)
IN, OUT = [*interface("i", "flock*"), ACCEPT], [*interface("o", "flock*"), ACCEPT]


def found(
    *rules: Steps,
    drops: bool = True,
    family: str = "inet",
    uplinks: dict[int, list[Link]] = UPLINKS,
    sets: dict[str, Elements] | None = None,
    whole: bool = True,
    **chains: list[Steps],
) -> tuple[list[Dropped], list[Unclear]]:
    everything = {"through": [*rules], **chains}

    def chapter(name: str) -> Chapter:
        listed = enumerate(everything.get(name, ()), start=1)
        return Chapter(tuple(Rule(n, tuple(steps)) for n, steps in listed), whole or name == "through")

    chain = Chain(family=family, table="t", name="through", drops=drops)
    return dropped([chain], {(family, "t"): Table(chapter, (sets or {}).get)}, AGGREGATES, uplinks)


def verdict(*rules: Steps, **more: object) -> str:
    """What is dropped of what pods send, are sent, and send each other: as the letters s, r and b."""
    told, _ = found(*rules, **more)  # type: ignore[arg-type]
    return "".join("s" * one.sent + "r" * one.received + "b" * one.between for one in told)


@pytest.mark.parametrize(
    ("expected", "rules", "drops"),
    [
        ("", [], False),
        ("srb", [], True),
        ("srb", [[*ESTABLISHED, ACCEPT]], True),
        ("", [[*ESTABLISHED, DROP]], False),
        ("srb", [[*NEW, DROP]], False),
        ("", [[*ESTABLISHED, ACCEPT], IN, OUT], True),
        ("r", [IN], True),
        ("s", [OUT], True),
        ("srb", [[DROP], IN, OUT], False),
        ("", [[*interface("i", "eth1"), DROP]], False),
        ("r", [[*interface("i", "eth0"), DROP]], False),
        ("sb", [[*interface("i", "eth0", UNEQUAL), DROP]], False),
        ("b", [[*interface("i", "flock*"), *interface("o", "flock*"), DROP]], False),
        ("", [[*interface("i", "flock00000001"), DROP]], False),
        ("", [[*PORT, DROP]], False),
        ("srb", [[*PORT, ACCEPT]], True),
        ("", [[Rate(over=False), ACCEPT]], True),
        ("", [[Rate(over=False), DROP]], False),
        ("", [[Rate(over=True), DROP]], False),
        ("", [[ACCEPT]], True),
    ],
)
def test_the_rule_that_speaks_of_pods_decides(expected: str, rules: list[Steps], drops: bool) -> None:
    assert verdict(*rules, drops=drops) == expected


def test_an_address_counts_where_it_covers_the_nodes() -> None:
    four, six = address("saddr", "192.0.2.0/24"), address("saddr", "2001:db8::/32")
    assert verdict([*four, DROP], drops=False) == "sb"
    assert verdict([*four, ACCEPT], [*six, ACCEPT]) == "r"
    assert verdict([*address("saddr", "192.0.2.0/25"), DROP], drops=False) == "", "of some pods, not of pods as such"
    assert verdict([*address("daddr", "10.0.0.0/8"), DROP], drops=False) == ""
    assert verdict([*address("saddr", "2001:db8::/32"), ACCEPT], family="ip") == "srb"


def test_whoever_is_outside_has_none_of_the_pods_addresses() -> None:
    """Dual stack: a rule about one family's addresses, whichever way it is put, says nothing of the other's."""
    spoofed = [[*interface("i", "eth0"), *address("saddr", str(network)), DROP] for network in AGGREGATES]
    assert verdict(*spoofed, drops=False) == ""
    theirs = [[*interface("i", "flock*"), *address("saddr", str(network), UNEQUAL), DROP] for network in AGGREGATES]
    assert verdict(*theirs, drops=False) == ""
    assert verdict([*address("saddr", "192.0.2.0/24", UNEQUAL), DROP], drops=False, family="ip6") == ""
    assert verdict([*address("saddr", "192.0.2.0/24", UNEQUAL), DROP], drops=False, family="ip") == "r"


def test_all_the_world_but_some_is_the_world() -> None:
    assert verdict([*address("daddr", "10.0.0.0/8", UNEQUAL), DROP], drops=False, family="ip") == "srb"
    some = [*interface("i", "flock*"), *address("daddr", "10.0.0.0/8"), ACCEPT]
    assert verdict(some, [*interface("i", "flock*"), DROP], drops=False, family="ip") == "b", "for the rest it is meant"


def test_which_interface_is_the_uplink_matters_where_it_is_known() -> None:
    pairs = [
        [*interface("i", "flock*"), *interface("o", "eth0"), ACCEPT],
        [*interface("i", "eth0"), *interface("o", "flock*"), ACCEPT],
    ]
    assert verdict(*pairs) == "b"
    assert verdict(*pairs, uplinks={4: [Link("eth0", 2), Link("eth1", 3)]}) == "srb", "one of two is left out"
    assert verdict(*pairs, uplinks={}) == "b", "whoever wrote that knew which it is"
    assert verdict([*interface("i", "docker0"), ACCEPT], uplinks={}) == "srb"
    assert verdict([*interface("i", "lo"), ACCEPT], uplinks={}) == "srb", "the loopback is nobody's uplink"
    assert verdict([*interface("i", "lo", UNEQUAL), DROP], drops=False, uplinks={}) == "srb"


def test_jumps_are_followed_and_come_back() -> None:
    jump, goto = Decide("jump", "more"), Decide("goto", "more")
    assert verdict([jump], drops=False, more=[[DROP]]) == "srb"
    assert verdict([jump], more=[IN, OUT]) == ""
    assert verdict([jump], [DROP], drops=False, more=[[Decide("return")], [ACCEPT]]) == "srb"
    assert verdict([goto], [DROP], drops=False, more=[]) == ""
    assert verdict([jump], drops=False, more=[[jump]]) == "", "a circle, which the kernel has none of, ends"


def test_jumps_that_multiply_come_to_an_end_and_nothing_is_claimed() -> None:
    chains = {f"c{n}": [[Decide("jump", f"c{n + 1}")]] * 30 for n in range(8)}
    told, unclear = found([Decide("jump", "c0")], **chains)
    assert not told and "more jumps than are followed" in str(unclear[0])


def test_a_map_decides_for_what_it_has() -> None:
    key = [Load(0, "meta", (Meta.NFPROTO,)), Lookup(0, "families", -1)]
    four, six = Element(b"\x02", b"\x02", DROP), Element(b"\x0a", b"\x0a", ACCEPT)
    assert verdict(key, drops=False, sets={"families": Elements(1, (four, six))}) == "srb"
    assert verdict(key, drops=False, sets={"families": Elements(1, (six,))}) == ""
    rest = Element(b"", b"", DROP)
    assert verdict(key, drops=False, family="ip", sets={"families": Elements(1, (six, rest))}) == "srb"
    assert verdict(key, drops=False, family="ip6", sets={"families": Elements(1, (six, rest))}) == ""


def test_what_is_not_understood_is_said_where_it_matters() -> None:
    puzzle, match = Puzzle("riddle"), Extension("set", 4, b"")
    for steps in ([puzzle, DROP], [match, DROP], [puzzle, Decide("jump", "more")]):
        told, unclear = found(steps, drops=False, more=[[DROP]])
        assert not told and "is not understood (in through)" in str(unclear[0])
    assert found([puzzle, ACCEPT])[1], "whether it accepts is not known, so that the policy is not the last word"
    assert found([puzzle, ACCEPT], drops=False) == ([], [])
    [told], unclear = found([puzzle, DROP])
    assert told.sent and not unclear, "it is dropped, one way or the other"
    assert found([*interface("i", "eth7"), puzzle, DROP], drops=False) == ([], []), "it is not about pods"


def test_a_chain_that_is_not_read_to_its_end_is_taken_to_go_on_as_it_began() -> None:
    jump = [Decide("jump", "services")]
    services = [[*address("daddr", "10.96.0.1/32"), DROP]]
    [told], unclear = found(jump, whole=False, services=services)
    assert told.handle == 0 and not unclear, "what it drops besides changes nothing"
    told_, unclear = found(jump, drops=False, whole=False, services=services)
    assert not told_ and "more rules than are read (in services)" in str(unclear[0])


def test_a_mark_that_one_chain_sets_is_seen_in_the_next() -> None:
    early = Chain(family="inet", table="t", name="early", drops=False, hook="prerouting")
    late = Chain(family="inet", table="t", name="late", drops=True)
    marked = [Load(0, "meta", (Meta.MARK,)), Compare(0, EQUAL, b"\0\0\0\7")]
    rules = {"early": [*interface("i", "flock*"), Write(None, b"\xff" * 4, b"\0\0\0\7")], "late": [*marked, ACCEPT]}
    table = Table(lambda name: Chapter((Rule(1, tuple(rules[name])),)), lambda _: None)
    [told], _ = dropped([late, early], {("inet", "t"): table}, AGGREGATES, UPLINKS)
    assert (told.chain, told.sent, told.received, told.between) == (late, False, True, False)


def test_the_deciding_rule_is_named() -> None:
    chain = Chain(family="inet", table="firewalld", name="filter_FORWARD", drops=False)
    chapters = {
        "filter_FORWARD": Chapter((Rule(3, (Decide("jump", "zones"),)),)),
        "zones": Chapter((Rule(9, (DROP,)),)),
    }
    table = Table(chapters.__getitem__, lambda _: None)
    [told], _ = dropped([chain], {("inet", "firewalld"): table}, AGGREGATES, UPLINKS)
    assert (told.whose, told.where, told.handle) == ("firewalld", "zones", 9)


def test_an_obstacle_concerns_packets_that_it_drops() -> None:
    between = Obstacle(whose="nft", chain="ip mine through", rule="drop", sent=False, received=False)
    assert "drops what pods of this node send each other" in str(between)
    assert between.concerns("192.0.2.1", sent=True, received=True)
    assert not between.concerns("192.0.2.1", sent=True, received=False)
    received = Obstacle(whose="nft", chain="ip mine through", rule="drop", sent=False, between=False)
    assert received.concerns("192.0.2.1", sent=False, received=True)
    assert not received.concerns("192.0.2.1", sent=True, received=True), "pods send each other what they like"
