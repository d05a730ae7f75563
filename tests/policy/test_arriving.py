"""What tests of rules stand on: a packet that takes its time is waited for, and one that does not come was dropped."""

from collections.abc import Callable

import pytest
from playground import FAMILIES, Playground, addresses, compiled, group, policy, subject

from flock.core.policy.compiled import Peers, Rule
from flock.edge.nft import observe

FRIENDS = group("app=friend")
IN = policy("in", ingress=[Rule(peers=Peers(groups=(FRIENDS,)), any_port=True)])


def slow(ground: Playground, who: int, family: str) -> None:
    """What the pod sends next leaves it most of a second later: its link is slow, and has something to send."""
    ground.place(who).execute(
        "tc", "qdisc", "replace", "dev", "eth0", "root", *["tbf", "rate", "16kbit", "burst", "1600", "latency", "9s"]
    )
    with ground.place(who).socket(family) as client:
        for _ in range(2):
            client.sendto(bytes(1400), (ground.at(0, family), 9))


def dropped(ground: Playground) -> int:
    return ground.do(lambda nft: nft.ask(observe.dropped)).ingress


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("asked", [Playground.reaches, Playground.connects], ids=["UDP", "TCP"])
def test_what_arrives_late_has_arrived_and_what_is_denied_late_was_dropped(
    ground: Playground, family: str, asked: Callable[..., bool]
) -> None:
    ground.load(compiled([subject(1, ingress="in"), subject(2), subject(3)], [IN], {FRIENDS: addresses(2)}))
    slow(ground, 2, family)
    assert asked(ground, 2, 1, family)
    assert dropped(ground) == 0
    slow(ground, 3, family)
    assert not asked(ground, 3, 1, family)
    assert dropped(ground) > 0
