"""A strict policy's new deny cuts established connections: exactly those now denied, whoever of the two sends."""

from collections.abc import Iterator

import pytest
from playground import FAMILIES, Playground, addresses, compiled, group, policy, subject
from streams import Datagrams, Stream

from flock.core.policy.compiled import Change, Membership, Peers, PortRange, Rule
from flock.core.policy.render import Ruleset

FRIENDS = group("app=friend")
STRICT = policy("in", ingress=[Rule(peers=Peers(groups=(FRIENDS,)), any_port=True)], strict=True)
LENIENT = policy("in", ingress=[Rule(peers=Peers(groups=(FRIENDS,)), any_port=True)])


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


@pytest.mark.parametrize("kind", [Stream, Datagrams])
def test_a_strict_deny_cuts_the_denied_server_only_stream_and_no_other(
    ground: Playground, family: str, kind: type[Stream] | type[Datagrams]
) -> None:
    ground.load(compiled([subject(1), subject(2), subject(3)], [], {FRIENDS: addresses(2)}))
    friend = kind(ground, client=2, server=1, family=family, port=81)
    stranger = kind(ground, client=3, server=1, family=family, port=82)
    outsider = kind(ground, client=0, server=1, family=family, port=83)
    own = kind(ground, client=1, server=3, family=family, port=84)
    theirs = kind(ground, client=3, server=2, family=family, port=85)
    streams = (friend, stranger, outsider, own, theirs)
    assert [s.flows() for s in streams] == [True] * 5
    ground.change(Change(policies=(STRICT,), subjects=(subject(1, ingress="in", egress=""),)))
    # Pod 1 may open nothing any more, but no *strict* policy says so: what it had opened goes on.
    for _ in range(2):
        assert [s.flows() for s in streams] == [True, False, False, True, True]


def test_a_lenient_deny_cuts_nothing(ground: Playground, family: str) -> None:
    ground.load(compiled([subject(1), subject(3)], []))
    stream = Stream(ground, client=3, server=1, family=family)
    ground.change(Change(policies=(LENIENT,), subjects=(subject(1, ingress="in"),)))
    assert stream.flows()


def test_what_a_strict_policy_still_allows_survives_later_lenient_denies(ground: Playground) -> None:
    ground.load(compiled([subject(1), subject(2), subject(3)], [], {FRIENDS: addresses(2)}))
    stream = Stream(ground, client=2, server=1, family="6")
    ground.change(Change(policies=(STRICT,), subjects=(subject(1, ingress="in"),)))
    ground.settle()
    assert stream.flows()
    ground.change(Change(policies=(policy("in", ingress=[]),)))
    assert stream.flows(), "it was judged again once, and is established with the new number"


def test_a_peer_that_leaves_the_group_of_a_strict_policy_is_cut(ground: Playground, family: str) -> None:
    ground.load(compiled([subject(1, ingress="in"), subject(2), subject(3)], [STRICT], {FRIENDS: addresses(2, 3)}))
    leaving = Stream(ground, client=2, server=1, family=family, port=81)
    staying = Stream(ground, client=3, server=1, family=family, port=82)
    ground.change(Change(dropped=(Membership(FRIENDS, frozenset(addresses(2))),)))
    assert [s.flows() for s in (leaving, staying)] == [False, True]


def test_a_strict_egress_policy_cuts_what_the_pod_opened(ground: Playground, family: str) -> None:
    ground.load(compiled([subject(1), subject(2), subject(3)], [], {FRIENDS: addresses(2)}))
    to_port_80 = Rule(peers=Peers(groups=(FRIENDS,)), any_port=False, ports=(PortRange("TCP", 80, 80),))
    allowed = Stream(ground, client=1, server=2, family=family, port=80)
    other_port = Stream(ground, client=1, server=2, family=family, port=81)
    other_pod = Stream(ground, client=1, server=3, family=family, port=82)
    taken = Stream(ground, client=3, server=1, family=family, port=83)
    ground.change(
        Change(
            policies=(policy("out", egress=[to_port_80], strict=True),),
            subjects=(subject(1, egress="out"),),
        )
    )
    assert [s.flows() for s in (allowed, other_port, other_pod, taken)] == [True, False, False, True]


def test_when_the_strict_policy_goes_idle_connections_go_on(ground: Playground) -> None:
    ground.load(compiled([subject(1), subject(2)], []))
    stream = Stream(ground, client=2, server=1, family="6")
    ground.change(Change(policies=(STRICT,), subjects=(subject(1, ingress="in"),)))
    ground.change(Change(removed_policies=(STRICT.key,), subjects=(subject(1),)))
    assert stream.flows(), "nobody forbids it any more"


def test_where_all_policies_are_strict_a_removed_allow_cuts_and_without_the_flag_it_does_not(
    ground: Playground, family: str
) -> None:
    friendly, closed = LENIENT, policy("closed", ingress=[])
    state = compiled([subject(1, ingress="closed,in"), subject(2)], [friendly, closed], {FRIENDS: addresses(2)})
    removal = Change(removed_policies=(friendly.key,), subjects=(subject(1, ingress="closed"),))
    for strict in (False, True):
        ground.ruleset = Ruleset(ground.numbers, strict=strict)
        ground.load(state)
        stream = Stream(ground, client=2, server=1, family=family, port=81 + strict)
        ground.change(removal)
        assert stream.flows() is not strict
