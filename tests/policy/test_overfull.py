"""A pod that opened more connections than it may opens no further ones, and keeps those it has."""

import pytest
from arriving import received
from frames import UDP, packet, send_frame, udp, unreachable
from playground import FAMILIES, Playground, compiled, interface, subject

from flock.core.policy.compiled import Change
from flock.core.policy.render import Ruleset
from flock.edge.kernel.connections import opened_by_number
from flock.edge.nft import observe

NODE = {"6": "2001:db8:ff::1", "4": "198.51.100.1"}
STATE = compiled([subject(1), subject(2)], [])


def limit(ground: Playground, *pods: int) -> None:
    transaction = ground.ruleset.limit([interface(n) for n in pods])
    assert not transaction.script, "no `nft` is started for it"
    ground.do(lambda nft: nft.apply(transaction))


@pytest.mark.parametrize("family", FAMILIES)
def test_an_overfull_pod_opens_no_further_connections_and_is_reached(ground: Playground, family: str) -> None:
    ground.load(STATE)
    server, client = ground.udp(0, family, 80), ground.udp(1, family)
    client.sendto(b"x", (ground.at(0, family), 80))
    assert received(server)
    limit(ground, 1)
    client.sendto(b"x", (ground.at(0, family), 80))
    assert received(server), "what it has goes on"
    assert not ground.reaches(1, 0, family, 81) and not ground.connects(1, 2, family, 81)
    assert ground.reaches(0, 1, family, 81) and ground.connects(2, 1, family, 81), "what others open is not its doing"
    assert ground.reaches(2, 0, family, 81) and ground.reaches(0, 2, family, 81), "others are not concerned"
    assert ground.do(lambda nft: nft.ask(observe.dropped)).overfull >= 2
    limit(ground)
    assert ground.reaches(1, 0, family, 81)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_node_reaches_an_overfull_pod_which_opens_nothing_to_the_node(ground: Playground, family: str) -> None:
    ground.load(STATE)
    limit(ground, 1)
    node = ground.keep(ground.node.socket(family))
    node.bind(("::" if family == "6" else "0.0.0.0", 80))
    pod = ground.udp(1, family, 80)
    pod.sendto(b"x", (NODE[family], 80))
    assert not received(node)
    node.sendto(b"x", (ground.at(1, family), 80))
    assert received(pod), "probes go on"
    pod.sendto(b"x", (NODE[family], 80))
    assert received(node), "and are answered"


def test_it_survives_that_everything_is_made_anew_and_goes_with_the_pod(ground: Playground) -> None:
    ground.load(STATE)
    limit(ground, 1)
    ground.load(STATE)
    assert ground.do(lambda nft: nft.ask(observe.observe)) == ground.ruleset.expected(STATE)
    assert not ground.reaches(1, 0, "6") and ground.reaches(2, 0, "6")
    ground.change(Change(removed_subjects=(interface(1),)))
    ground.change(Change(subjects=(subject(1),)))
    assert ground.reaches(1, 0, "6")


@pytest.mark.parametrize("family", FAMILIES)
def test_connections_are_counted_for_the_pod_that_opened_them_with_the_node_too(
    ground: Playground, family: str
) -> None:
    ground.load(STATE)
    client = ground.udp(1, family)
    for port in range(1000, 1010):
        client.sendto(b"x", (ground.at(2, family), port))
        client.sendto(b"x", (NODE[family], port))
    with ground.node.inside():
        opened = ground.numbers.opened(opened_by_number())
    assert opened == {interface(1): 20, interface(2): 0}


@pytest.mark.parametrize("family", FAMILIES)
def test_an_error_does_not_make_a_connection_somebody_elses(ground: Playground, family: str) -> None:
    """Pod 1 tells the node that pod 2 is unreachable, which passes where it is believed."""
    ground.ruleset = Ruleset(ground.numbers, antispoofing=False)
    ground.load(STATE)
    ground.udp(2, family, 4100).sendto(b"x", (NODE[family], 80))
    node, pod = NODE[family], ground.at(2, family)
    about = packet(node, pod, UDP, udp(node, pod, 4100, sport=80))[1]
    send_frame(ground, 1, *unreachable(sender=ground.at(1, family), to=node, about=about))
    with ground.node.inside():
        opened = ground.numbers.opened(opened_by_number())
    assert opened == {interface(1): 0, interface(2): 1}
