"""A packet reads the rules of one generation and the sets of the next: what a set leads to may still be empty to it.

The kernel fixes the rules a packet sees when a base chain begins, and looks elements up as they are at that moment.  So
whoever meets a new element may find its chain without rules.  An emptied chain is the same to every packet.
"""

from collections.abc import Iterable

import pytest
from playground import FAMILIES, Playground, addresses, compiled, group, interface, policy, subject
from streams import Stream

from flock.core.policy.compiled import Change, Membership, Peers, PortRange, Rule

FRIENDS = group("app=friend")
IN = policy("in", ingress=[Rule(peers=Peers(groups=(FRIENDS,)), any_port=True)], strict=True)
OUT = policy("out", egress=[Rule(peers=Peers(groups=(FRIENDS,)), any_port=True)], strict=True)


def empty(ground: Playground, kinds: Iterable[str]) -> None:
    """The classes' chains are there and have no rules."""
    chains = [line.split()[1] for line in ground.listing().splitlines() if line.strip().startswith("chain")]
    emptied = [chain for chain in chains if chain.startswith(tuple(f"{kind}-class/" for kind in kinds))]
    assert emptied
    for chain in emptied:
        ground.node.execute("nft", f"flush chain inet flock {chain}")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_class_that_is_still_empty_lets_nothing_in_or_out(ground: Playground, family: str) -> None:
    state = [subject(1, ingress="in", egress="out"), subject(2), subject(3)]
    ground.load(compiled(state, [IN, OUT], {FRIENDS: addresses(2)}))
    assert [ground.reaches(2, 1, family), ground.reaches(1, 2, family)] == [True, True]
    empty(ground, ["ingress", "egress"])
    assert [ground.reaches(3, 1, family, 81), ground.reaches(1, 3, family, 81)] == [False, False]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_class_that_is_still_empty_lets_no_answer_of_an_earlier_connection_through(
    ground: Playground, family: str
) -> None:
    ground.load(compiled([subject(1), subject(2), subject(3)], [], {FRIENDS: addresses(2)}))
    taken = Stream(ground, client=3, server=1, family=family, port=81)
    opened = Stream(ground, client=1, server=3, family=family, port=82)
    ground.change(Change(policies=(IN, OUT), subjects=(subject(1, ingress="in", egress="out"),)))
    empty(ground, ["ingress-replies", "egress-replies"])
    assert [taken.flows(), opened.flows()] == [False, False]


def test_chains_are_there_before_an_element_leads_to_them(ground: Playground) -> None:
    """So that a packet which meets a new element is judged by it: what is allowed before and after is never dropped."""
    ground.load(compiled([subject(1, ingress="in"), subject(2)], [IN], {FRIENDS: addresses(2)}))
    more = policy("more", ingress=[])
    transaction = ground.ruleset.transaction(Change(policies=(more,), subjects=(subject(1, ingress="in,more"),)))
    assert "ingress/default/more" in transaction.prepare
    assert "element" not in transaction.prepare
    assert transaction.script == ""
    assert {o.what.set for o in transaction.operations if hasattr(o.what, "set")} == {"ingress"}
    ground.do(lambda nft: nft.apply(transaction))
    assert ground.reaches(2, 1, "6")
    gone = ground.change(Change(removed_policies=(more.key,), subjects=(subject(1, ingress="in"),)))
    assert gone.script == ""
    assert "default/more" not in ground.listing()
    assert ground.reaches(2, 1, "6", 81)


def test_a_policy_that_changes_does_so_before_a_pod_joins_it_and_not_before_one_leaves_it(ground: Playground) -> None:
    """A pod is judged by what a policy said or by what it says, while it is selected: never by anything else."""
    first, second = policy("in", ingress=[]), policy("in", ingress=[Rule(peers=Peers(anywhere=True), any_port=True)])
    other = policy("other", ingress=[])
    pods = [subject(1, ingress="in,other"), subject(2, ingress="other"), subject(3, ingress="other")]
    ground.load(compiled(pods, [first, other]))
    joins = ground.ruleset.transaction(Change(policies=(second,), subjects=(subject(2, ingress="in,other"),)))
    assert "flush chain inet flock ingress/default/in" in joins.prepare
    assert joins.script == ""
    ground.do(lambda nft: nft.apply(joins))
    assert [ground.reaches(0, n, "6") for n in (1, 2, 3)] == [True, True, False]
    moves = (subject(1, ingress="other"), subject(3, ingress="in,other"))
    leaves = ground.ruleset.transaction(Change(policies=(first,), subjects=moves))
    assert "flush chain inet flock ingress/default/in" not in leaves.prepare
    assert "flush chain inet flock ingress/default/in" in leaves.script
    ground.do(lambda nft: nft.apply(leaves))
    assert [ground.reaches(0, n, "6", 81) for n in (1, 2, 3)] == [False, False, False]


def test_making_everything_anew_keeps_the_chains_and_sets_that_stay(ground: Playground) -> None:
    """Had they been deleted and made again, a packet of the rules from before would find its map empty."""
    rule = Rule(peers=Peers(groups=(FRIENDS,)), any_port=False, ports=(PortRange("UDP", 80, 80),))
    state = compiled([subject(1, ingress="in"), subject(2)], [policy("in", ingress=[rule])], {FRIENDS: addresses(2)})
    ground.load(state)
    before = handles(ground)
    ground.load(state)
    assert handles(ground) == before
    ground.change(Change(added=(Membership(FRIENDS, frozenset(addresses(3))),)))
    ground.load(state)
    assert ground.reaches(2, 1, "6")
    assert not ground.reaches(3, 1, "6"), "a member from before is no member any more"
    ground.load(compiled([subject(1), subject(2)], []))
    assert "ingress/default/in" not in ground.listing()
    assert interface(1) in ground.listing()


def handles(ground: Playground) -> dict[str, str]:
    """Chains and sets by the kernel's own numbers for them."""
    listing = ground.node.execute("nft", "-a", "list", "table", "inet", "flock")
    made = [
        line for line in listing.splitlines() if line.strip().startswith(("chain ", "set ", "map ")) and "{" in line
    ]
    return {line.split()[1]: line.rsplit(" ", 1)[1] for line in made}
