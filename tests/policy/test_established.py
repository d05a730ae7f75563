"""Established means: with this pod.  A flow that moved to another pod is judged anew, others are left alone."""

import threading

import pytest
from arriving import is_idle, received
from playground import FAMILIES, Playground, addresses, compiled, group, interface, policy, subject

from flock.core.policy.compiled import Change, Membership, Peers, Rule

FRIENDS = group("app=friend")
FROM_ANYWHERE = policy("in", ingress=[Rule(peers=Peers(anywhere=True), any_port=True)])
FROM_FRIENDS = policy("in", ingress=[Rule(peers=Peers(groups=(FRIENDS,)), any_port=True)])
FROM_NOBODY = policy("in", ingress=[])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_new_deny_leaves_an_established_flow_alone_and_stops_new_ones(ground: Playground, family: str) -> None:
    ground.load(compiled([subject(1), subject(2)], []))
    server, client = ground.udp(1, family, 80), ground.udp(2, family)
    _exchange(ground, client, server, 1, family)
    ground.change(Change(policies=(FROM_NOBODY,), subjects=(subject(1, ingress="in", egress=""),)))
    _exchange(ground, client, server, 1, family)
    assert not ground.reaches(2, 1, family, 81)
    assert not ground.reaches(1, 2, family, 81)
    ground.load(compiled([subject(1, ingress="in", egress=""), subject(2)], [FROM_NOBODY]))
    _exchange(ground, client, server, 1, family)  # all rules anew: still the same flow


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("allowed", [False, True])
def test_a_flow_that_moved_to_another_pod_is_judged_anew(ground: Playground, family: str, allowed: bool) -> None:
    """As anycast does, or a reused address: pod 4 holds the address of pod 1."""
    ground.load(compiled([subject(1)], []))
    old, client = ground.udp(1, family, 80), ground.udp(0, family)
    _exchange(ground, client, old, 1, family)
    ground.add_pod(4, owns=1)
    rules = FROM_ANYWHERE if allowed else FROM_NOBODY
    ground.change(Change(policies=(rules,), subjects=(subject(4, owns=1, ingress="in", egress=""),)))
    new = ground.udp(4, family, 80)
    client.sendto(b"x", (ground.at(1, family), 80))
    assert received(new) is allowed
    if allowed:
        new.sendto(b"y", client_address(ground, client, family))
        assert received(client, b"y"), "it is established with the new pod now, though that may open nothing"


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_to_a_pod_that_is_gone_do_not_reach_the_next_holder_of_its_address(
    ground: Playground, family: str
) -> None:
    ground.load(compiled([subject(1)], []))
    client, server = ground.udp(1, family, 4000), ground.udp(0, family, 80)
    client.sendto(b"x", (ground.at(0, family), 80))
    assert received(server)
    ground.add_pod(4, owns=1)
    ground.change(
        Change(
            policies=(FROM_NOBODY,),
            subjects=(subject(4, owns=1, ingress="in"),),
            removed_subjects=(interface(1),),
        )
    )
    new = ground.udp(4, family, 4000)
    server.sendto(b"y", (ground.at(1, family), 4000))
    assert not received(new, b"y")


def test_a_flow_that_moved_cannot_be_answered_by_a_pod_that_may_open_nothing(ground: Playground) -> None:
    ground.load(compiled([subject(1)], []))
    old, client = ground.udp(1, "6", 80), ground.udp(0, "6")
    _exchange(ground, client, old, 1, "6")
    ground.add_pod(4, owns=1)
    ground.change(Change(subjects=(subject(4, owns=1, egress=""),)))
    new = ground.udp(4, "6", 80)
    new.sendto(b"y", client_address(ground, client, "6"))
    assert not received(client, b"y"), "for this pod it would be a new flow"
    client.sendto(b"x", (ground.at(1, "6"), 80))
    assert received(new)
    new.sendto(b"y", client_address(ground, client, "6"))
    assert received(client, b"y"), "now it was asked"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_flow_nobody_answered_yet_is_answered_by_the_pod_it_moved_to(ground: Playground, family: str) -> None:
    """It was let through for pod 1, and is let through for pod 4, which may open nothing."""
    ground.load(compiled([subject(1)], []))
    old, client = ground.udp(1, family, 80), ground.udp(0, family)
    client.sendto(b"x", (ground.at(1, family), 80))
    assert received(old)
    ground.add_pod(4, owns=1)
    ground.change(Change(policies=(FROM_ANYWHERE,), subjects=(subject(4, owns=1, ingress="in", egress=""),)))
    new = ground.udp(4, family, 80)
    client.sendto(b"x", (ground.at(1, family), 80))
    assert received(new)
    new.sendto(b"y", client_address(ground, client, family))
    assert received(client, b"y")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_flow_that_moves_to_and_fro_is_judged_each_time(ground: Playground, family: str) -> None:
    """That it is bound says nothing about the pod it comes to: it was let through for pod 1, and never for pod 4."""
    ground.load(compiled([subject(1)], []))
    old, client = ground.udp(1, family, 80), ground.udp(0, family)
    ground.add_pod(4, owns=1)
    ground.change(Change(policies=(FROM_NOBODY,), subjects=(subject(4, owns=1, ingress="in"),)))
    new = ground.udp(4, family, 80)
    for _ in range(3):
        ground.route(1, 1)
        _exchange(ground, client, old, 1, family)
        ground.route(1, 4)
        client.sendto(b"x", (ground.at(1, family), 80))
        assert not received(new)


def test_members_come_and_go_without_starting_nft(ground: Playground) -> None:
    ground.load(compiled([subject(1, ingress="in"), subject(2)], [FROM_FRIENDS], {FRIENDS: ()}))
    assert not ground.reaches(2, 1, "6")
    joined = ground.change(Change(added=(Membership(FRIENDS, frozenset(addresses(2))),)))
    assert not joined.prepare
    assert not joined.script
    assert ground.reaches(2, 1, "6")
    left = ground.change(Change(dropped=(Membership(FRIENDS, frozenset(addresses(2))),)))
    assert not left.prepare
    assert not left.script
    assert not ground.reaches(2, 1, "6", 81)


def client_address(ground: Playground, client: object, family: str) -> tuple[str, int]:
    return ground.at(0, family), client.getsockname()[1]  # type: ignore[attr-defined]


def _exchange(ground: Playground, client: object, server: object, to: int, family: str) -> None:
    """A packet there and one back."""
    client.sendto(b"x", (ground.at(to, family), 80))  # type: ignore[attr-defined]
    server.settimeout(5)  # type: ignore[attr-defined]
    data, sender = server.recvfrom(100)  # type: ignore[attr-defined]
    assert data == b"x"
    server.sendto(b"y", sender)  # type: ignore[attr-defined]
    assert received(client, b"y")  # type: ignore[arg-type]


def test_while_everything_is_made_anew_nothing_slips_through_and_nothing_is_cut(ground: Playground) -> None:
    """A stranger hammers an isolated pod, a friend keeps talking to it, and the rules are made anew again and again."""
    state = compiled([subject(1, ingress="in"), subject(2), subject(3)], [FROM_FRIENDS], {FRIENDS: addresses(2)})
    ground.load(state)
    forbidden, allowed = ground.udp(1, "6", 81), ground.udp(1, "6", 80)
    stranger, friend = ground.udp(3, "6"), ground.udp(2, "6")
    done = threading.Event()
    sent = [0]

    def hammer() -> None:
        while not done.is_set():
            stranger.sendto(b"x", (ground.at(1, "6"), 81))
            sent[0] += 1

    thread = threading.Thread(target=hammer)
    thread.start()
    try:
        for _ in range(15):
            ground.load(state)
            _exchange(ground, friend, allowed, 1, "6")
            ground.change(Change(policies=(FROM_NOBODY,)))
            _exchange(ground, friend, allowed, 1, "6")
    finally:
        done.set()
        thread.join()
    assert sent[0] > 1000
    assert is_idle(forbidden)
