"""Whoever chooses a policy's name must not be able to choose another's chain or set with it."""

import re

import pytest
from changing import listing
from playground import Playground, addresses, compiled, interface, subject

from flock.core.policy import names
from flock.core.policy.compiled import CompiledPolicy, GroupId, NamedPort, Peers, PolicyKey, Rule, Subject, Verdicts

DENY: PolicyKey = ("shop", "deny-548793")
CHOSEN: PolicyKey = ("evil", "p785203")  # found in two seconds: equal to the other in 40 bits of BLAKE2b


def pod(number: int, policy: PolicyKey) -> Subject:
    return Subject(
        interface=interface(number),
        container_id=f"container{number}",
        pod=f"{policy[0]}/pod",
        addresses=addresses(number),
        verdicts=Verdicts(ingress=(policy,)),
    )


def test_a_pod_stays_denied_whatever_name_another_tenant_gives_a_policy(ground: Playground) -> None:
    anybody = Rule(peers=Peers(anywhere=True), any_port=True)
    policies = [CompiledPolicy(key=DENY, ingress=(), egress=None), CompiledPolicy(CHOSEN, (anybody,), None)]
    ground.load(compiled([pod(1, DENY), pod(2, CHOSEN), subject(3)], policies))
    assert [ground.reaches(3, number, "6") for number in (1, 2)] == [False, True]
    classes = [line for line in listing(ground) if line.strip().startswith("chain ingress-class/")]
    assert len(classes) == 2


LONG = "x" * 250
KEYS: list[PolicyKey] = [
    *((namespace, f"{LONG}{end}") for namespace in ("a", "b") for end in ("", "1", "2")),
    ("a", "b/c"),
    ("a/b", "c"),
    ("a", "b,a/c"),
    ("a", "b c"),
    ("a", "b\0c"),
    ("a\0b", "c"),
    ("a", "ü"),
    ("a", "ö"),
    ("a", "."),
    ("ü", LONG),
    ("ö", LONG),
]


def test_chains_of_different_policies_have_different_names() -> None:
    kinds = ("ingress", "egress", "ingress-replies", "egress-replies")
    chains = {names.policy_chain(kind, key) for kind in kinds for key in KEYS}
    assert len(chains) == len(kinds) * len(KEYS)
    assert all(len(chain) <= names.LONGEST_NAME for chain in chains)
    cut = names.policy_chain("ingress", ("a", LONG))
    imitation = ("a", cut.removeprefix("ingress/a/"))
    assert names.policy_chain("ingress", imitation) != cut, "a name that looks like another's short one is none"


@pytest.mark.parametrize(("one", "other"), [((("a", "b"), ("a", "c")), (("a", "b,a/c"),)), ((), (("a", "undecided"),))])
def test_classes_of_different_policies_have_different_names(
    one: tuple[PolicyKey, ...], other: tuple[PolicyKey, ...]
) -> None:
    assert names.class_chain("ingress", one) != names.class_chain("ingress", other)


def test_of_many_policies_as_many_are_named_as_there_is_room_for_and_the_others_are_counted() -> None:
    policies = tuple(("shop", f"allow-from-team-{number}") for number in range(1000))
    named = ",".join(f"shop/allow-from-team-{number}" for number in range(4))
    assert names.log_prefix("ingress", policies) == f"flock ingress {named} and 996 more"
    assert names.log_prefix("egress", policies[:2]) == "flock egress shop/allow-from-team-0,shop/allow-from-team-1"
    assert names.log_prefix("egress", ()) == "flock egress undecided"
    long = names.log_prefix("egress", (("a", LONG), *policies))
    assert len(long) <= names.LONGEST_PREFIX
    assert long.endswith(" and 1000 more")


def test_sets_of_different_selectors_have_different_names() -> None:
    groups = [GroupId("a", "", "b"), GroupId("", "a", "b"), GroupId("a", "b", ""), GroupId("a\0", "b", "")]
    assert len({names.group_set(group, 6) for group in groups}) == len(groups)
    ports = [(group, NamedPort("http", "TCP")) for group in [*groups, None]]
    ports += [(None, NamedPort("http", "UDP")), (GroupId("own", "", ""), NamedPort("http", "TCP"))]
    assert len({names.port_set(group, port, 6) for group, port in ports}) == len(ports)


def test_a_hash_has_at_least_128_bits() -> None:
    """Nobody finds two equal ones: that takes 2^64 tries, and one that equals a given one 2^128."""
    for name in (
        names.class_chain("ingress", (DENY,)),
        names.group_set(GroupId("a", "", ""), 6),
        names.port_set(None, NamedPort("http", "TCP"), 0),
        names.policy_chain("ingress", ("a", LONG)),
        names.comment(LONG),
        names.log_prefix("ingress", (("a", LONG),)),
    ):
        assert len(re.split("[/~_]", name)[-1]) >= 32, name
