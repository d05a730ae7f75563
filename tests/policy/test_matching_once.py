"""A policy comes to as many lines and elements as it has entries, and never to their product."""

from ipaddress import IPv4Network, IPv6Network, ip_address

import pytest
from playground import FAMILIES, Playground, addresses, compiled, group, interface, policy, subject

from flock.core.policy.blocks import Block, united
from flock.core.policy.compiled import Change, NamedPort, Peers, PortRange, Rule, Span
from flock.core.policy.rules import Asked, chains_of
from flock.edge.nft import observe

PEERS, PORTS = 40, 30
GROUPS = tuple(group(f"app={number}") for number in range(PEERS))
NAMES = tuple(NamedPort(f"port-{number}", "TCP" if number % 2 else "UDP") for number in range(PORTS))
MANY = policy(
    "many",
    ingress=[
        Rule(peers=Peers(groups=GROUPS), any_port=False, ports=(PortRange("TCP", 80, 81),), named=NAMES),
        Rule(
            peers=Peers(blocks=(Span.of(IPv4Network("198.51.100.9/32")),)),
            any_port=False,
            ports=(PortRange("UDP", 90, 90),),
        ),
    ],
)


def test_lines_are_the_sum_of_peers_and_ports() -> None:
    for kind in ("ingress", "ingress-replies"):
        chains = chains_of(Asked(kind, (MANY.key,)), {MANY.key: MANY})  # type: ignore[arg-type]
        assert sum(map(len, chains.values())) == 2 * PEERS + (PORTS + 1) + 1
        assert len(chains) == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_what_passes_is_what_the_product_says(ground: Playground, family: str) -> None:
    """A port for its peers, a name for the pod's own number, and what is after that rule in the policy."""
    state = compiled(
        [subject(1, ingress="many"), subject(2), subject(3)],
        [MANY],
        {g: addresses(2) if g is GROUPS[-1] else () for g in GROUPS},
        {(None, name): [(interface(1), 8080)] if name is NAMES[-2] else [] for name in NAMES},
    )
    ground.load(state)
    assert ground.do(lambda nft: nft.ask(observe.observe)) == ground.ruleset.expected(state)
    tries = [(2, 8080), (2, 8081), (3, 8080), (0, 8080), (0, 90), (2, 90)]
    assert [ground.reaches(who, 1, family, port) for who, port in tries] == [
        True,
        False,
        False,
        False,
        family == "4",
        False,
    ]
    assert ground.connects(2, 1, family, 81)


def test_the_chain_for_ports_comes_and_goes_with_the_rule_that_needs_it(ground: Playground) -> None:
    few = policy("many", ingress=[Rule(peers=Peers(groups=GROUPS[:1]), any_port=True)])
    members = {g: addresses(2) for g in GROUPS}
    named = {(None, name): [] for name in NAMES}
    ground.load(compiled([subject(1, ingress="many"), subject(2)], [few], members, named))
    for rules in (MANY, few, MANY):
        ground.change(Change(policies=(rules,)))
        state = compiled([subject(1, ingress="many"), subject(2)], [rules], members, named)
        assert ground.do(lambda nft: nft.ask(observe.observe)) == ground.ruleset.expected(state)
        assert ("chain ingress/default/many/0 {" in ground.listing()) is (rules is MANY)
        assert ground.reaches(2, 1, "6", 8080) is (rules is few)
    ground.change(Change(removed_policies=(MANY.key,), subjects=(subject(1),)))
    assert "default/many" not in ground.listing()


def test_a_block_with_exceptions_is_as_many_ranges_as_it_has_exceptions(ground: Playground) -> None:
    """One address out of ::/0 leaves 128 networks, which are two ranges."""
    exceptions = [IPv6Network(f"2001:db8:{number:x}::1/128") for number in range(1, 60)]
    left = united([Block(IPv6Network("::/0"), tuple(exceptions))])
    assert len(left) == len(exceptions) + 1
    out = policy("out", ingress=[Rule(peers=Peers(blocks=left), any_port=True)])
    ground.load(compiled([subject(1, ingress="out"), subject(2)], [out]))
    assert ground.reaches(2, 1, "6"), ip_address(ground.at(2, "6"))
    assert not ground.reaches(2, 1, "4")
