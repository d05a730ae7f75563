"""Netlink batches do what `nft` would do, wholly or not at all."""

import pytest
from changing import CHANGES, FRIENDS, STATE, listing
from playground import Playground, addresses, interface, present

from flock.core.errors import KernelRefused
from flock.core.policy.compiled import Change, Membership
from flock.core.policy.elements import Element, Mark, Operation, statements
from flock.core.policy.rendered import Transaction
from flock.edge.nft import observe


def test_a_batch_leaves_the_same_rules_as_a_script() -> None:
    """The same changes, once by netlink and once by nft."""
    with Playground(0) as one, Playground(0) as other:
        one.load(STATE)
        other.load(STATE)
        for change in CHANGES:
            transaction, same = one.ruleset.transaction(change), other.ruleset.transaction(change)
            assert transaction == same
            if same.prepare:
                other.do(lambda nft, s=same.prepare: nft.run(s))
            by_script = same.script or "\n".join(statements(same.operations))
            one.do(lambda nft, t=transaction: nft.apply(t))
            other.do(lambda nft, s=by_script: nft.run(s))
            assert listing(one) == listing(other)


def test_pods_of_known_classes_come_and_go_without_nft(ground: Playground) -> None:
    ground.load(STATE)
    for change in (CHANGES[0], Change(removed_subjects=(interface(2),))):
        transaction = ground.ruleset.transaction(change)
        assert transaction.operations
        assert not transaction.prepare
        assert not transaction.script


def test_what_is_there_already_and_what_is_gone_already_is_no_failure(ground: Playground) -> None:
    ground.load(STATE)
    transaction = ground.ruleset.transaction(CHANGES[0])
    removal = ground.ruleset.transaction(Change(removed_subjects=(interface(2),)))
    before = listing(ground)
    for _ in range(2):
        ground.do(lambda nft: nft.apply(transaction))
    for _ in range(2):
        ground.do(lambda nft: nft.apply(removal))
    assert [line for line in listing(ground) if "flock00000002" in line and "8080" not in line] == []
    assert len(before) > 10


def test_a_refused_operation_is_named_and_undoes_its_whole_batch(ground: Playground) -> None:
    ground.load(STATE)
    before = listing(ground)
    good = Operation(True, Element("inet flock", "pods", ("flock0000aaaa", Mark(77))))
    bad = Operation(True, Element("inet flock", "nowhere", ("flock0000aaaa", Mark(77))))
    with pytest.raises(KernelRefused, match="add to inet flock nowhere: No such file"):
        ground.do(lambda nft: nft.apply(Transaction(operations=(good, bad, good))))
    assert listing(ground) == before


def test_nft_says_what_is_wrong_with_a_script(ground: Playground) -> None:
    ground.load(STATE)
    before = listing(ground)
    with pytest.raises(KernelRefused, match="No such file or directory"):
        ground.do(lambda nft: nft.run('add element inet flock pods { "x" . 1 }\nadd element inet flock none { 1 }\n'))
    assert listing(ground) == before


def test_without_tables_a_batch_is_refused(ground: Playground) -> None:
    assert not ground.do(lambda nft: nft.ask(present))
    ground.ruleset.full(STATE, {})
    with pytest.raises(KernelRefused):
        ground.change(CHANGES[0])


def test_what_is_in_the_kernel_is_what_is_expected(ground: Playground) -> None:
    ground.load(STATE)
    assert ground.do(lambda nft: nft.ask(present))
    assert ground.do(lambda nft: nft.ask(observe.observe)) == ground.ruleset.expected(STATE)
    ground.node.execute("nft", "flush", "chain", "inet", "flock", "egress")
    assert ground.do(lambda nft: nft.ask(observe.observe)) != ground.ruleset.expected(STATE)


def test_pods_numbers_are_read_back(ground: Playground) -> None:
    ground.load(STATE)
    ground.change(CHANGES[1])  # cuts pod 1 in one direction
    found = ground.do(lambda nft: nft.ask(observe.numbers))
    assert found == {interface(n): ground.numbers.of(interface(n)) for n in (1, 3)}
    ground.change(Change(dropped=(Membership(FRIENDS, frozenset(addresses(1))),)))
    assert ground.do(lambda nft: nft.ask(observe.numbers)) == found


def test_ten_thousand_members_are_one_batch(ground: Playground) -> None:
    from ipaddress import IPv6Address

    ground.load(STATE)
    start = int(IPv6Address("2001:db8:aaaa::"))
    many = frozenset(IPv6Address(start + n) for n in range(10_000))
    joined = ground.change(Change(added=(Membership(FRIENDS, many),)))
    assert not joined.prepare
    assert not joined.script
    found = ground.do(lambda nft: nft.ask(observe.observe))
    assert max(found.elements.values()) == 10_001
    ground.change(Change(dropped=(Membership(FRIENDS, many),)))
    assert max(ground.do(lambda nft: nft.ask(observe.observe)).elements.values()) < 100
