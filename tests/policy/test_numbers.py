"""Connections are judged again without end, and numbers do not run out; one that was retired is nobody's."""

import pytest
from playground import FAMILIES, Playground, addresses, compiled, group, interface, policy, subject
from streams import Datagrams, Stream

from flock.core.policy.compiled import Change, Peers, PortRange, Rule
from flock.core.policy.numbers import EARLIER, HIGHEST, Numbered, Numbers, PodNumbers
from flock.edge.nft import observe

FRIENDS = group("app=friend")


def strict(port: int) -> object:
    rule = Rule(peers=Peers(groups=(FRIENDS,)), any_port=False, ports=(PortRange("TCP", port, port),))
    return policy("in", ingress=[rule], strict=True)


def test_edits_times_pods_never_use_up_the_numbers() -> None:
    numbers = Numbers()
    pods = [interface(number) for number in range(500)]
    for _ in range(2 * HIGHEST // len(pods)):
        for pod in pods:
            numbers.renew(pod, "ingress")
            numbers.renew(pod, "egress")
            numbers.settle(pod)
    held = [number for pod in pods for number in set(numbers.of(pod).all())]
    assert len(held) == len(set(held)) <= len(pods) * 2 * (EARLIER + 1), "each pod has its own"
    for number in range(500, 5000):
        numbers.of(interface(number))  # and the node goes on taking pods


def test_numbers_that_are_too_large_now_are_lost_and_their_pods_get_new_ones() -> None:
    large, small = (PodNumbers(Numbered(1, (earlier,)), Numbered(2)) for earlier in (HIGHEST + 1, HIGHEST))
    numbers = Numbers({"a": large, "b": small})
    assert numbers.of("b") == small
    assert max(numbers.of("a").all()) <= HIGHEST
    assert not {*numbers.of("a").all()} & {*small.all()}


def test_what_is_not_settled_takes_no_number() -> None:
    numbers = Numbers()
    for _ in range(10):
        numbers.renew("a", "ingress")
    assert numbers.of("a").destination.earlier == (numbers.of("a").destination.current,)
    first = numbers.unsettled["a"]
    numbers.renew("a", "egress")
    assert numbers.unsettled["a"] != first, "who looks twice sees that it is not the same renewal"
    numbers.settle("a")
    assert numbers.unsettled == {}
    assert numbers.of("a").settled


def test_connections_with_retired_numbers_still_count_as_the_pods() -> None:
    numbers = Numbers()
    first = numbers.of("a").source.current
    for _ in range(EARLIER + 2):
        for direction in ("ingress", "egress"):
            numbers.renew("a", direction)  # type: ignore[arg-type]
        numbers.settle("a")
    assert first not in set(numbers.of("a").all())
    assert numbers.opened({first: 7, numbers.of("a").source.current: 1}) == {"a": 8}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", [Stream, Datagrams])
def test_a_connection_that_was_cut_stays_cut_when_its_number_is_retired(
    ground: Playground, family: str, kind: type[Stream] | type[Datagrams]
) -> None:
    """The pod may open what it likes, so only the rules read backwards say that it must not answer this one."""
    ground.load(compiled([subject(1), subject(2), subject(3)], [], {FRIENDS: addresses(2)}))
    denied = kind(ground, client=3, server=1, family=family, port=81)
    first = ground.numbers.of(interface(1)).destination.current
    ground.change(Change(policies=(strict(80),), subjects=(subject(1, ingress="in"),)))  # type: ignore[arg-type]
    assert not denied.flows()
    for edit in range(EARLIER + 1):
        ground.settle()
        ground.change(Change(policies=(strict(90 + edit),)))  # type: ignore[arg-type]
    had = ground.numbers.of(interface(1)).destination
    assert first not in (had.current, *had.earlier)
    assert not denied.flows()
    ground.settle()
    assert not denied.flows()


def test_what_is_allowed_goes_on_through_any_number_of_edits(ground: Playground) -> None:
    ground.load(compiled([subject(1), subject(2)], [], {FRIENDS: addresses(2)}))
    allowed = Stream(ground, client=2, server=1, family="6", port=80)
    idle = Stream(ground, client=2, server=1, family="6", port=80)
    subjects = (subject(1, ingress="in"),)
    for edit in range(EARLIER + 2):
        both = policy("in", ingress=[*strict(80).ingress, *strict(90 + edit).ingress], strict=True)  # type: ignore[attr-defined]
        ground.change(Change(policies=(both,), subjects=subjects))
        assert allowed.flows()
        ground.settle()
        assert allowed.flows()
    assert idle.flows(), "though its number was retired long ago"


def test_nothing_is_bound_to_a_new_number_before_it_is_settled(ground: Playground) -> None:
    """A packet that was let through before the edit may be bound after it."""
    ground.load(compiled([subject(1, ingress="in"), subject(2)], [strict(80)], {FRIENDS: addresses(2)}))  # type: ignore[list-item]
    old = ground.numbers.of(interface(1)).destination.current
    ground.change(Change(policies=(strict(81),)))  # type: ignore[arg-type]
    assert ground.numbers.of(interface(1)).destination.current == old
    assert f"0x{old << 16:08x}" in chain(ground, f"to/{interface(1)}")
    assert ground.do(lambda nft: nft.ask(observe.numbers))[interface(1)] == ground.numbers.of(interface(1))
    ground.settle()
    new = ground.numbers.of(interface(1)).destination.current
    assert new != old
    assert f"0x{new << 16:08x}" in chain(ground, f"to/{interface(1)}")
    assert ground.do(lambda nft: nft.ask(observe.numbers))[interface(1)] == ground.numbers.of(interface(1))


def chain(ground: Playground, name: str) -> str:
    return ground.node.execute("nft", "list", "chain", "inet", "flock-bind", name)
