"""Many policies of one pod are asked together: their peers are unions, which follow the groups they are made of."""

from ipaddress import ip_network
from random import Random

import pytest
from policy_world import HTTP, Model, labelled, local, plain, pod, policy

from flock.core.policy import crowds
from flock.core.policy.compiled import CompiledPolicy, GroupId, Peers, PolicyKey, PortRange, Rule, Span
from flock.core.policy.crowds import CROWD_MEMBERS, MANY, NAMESPACE_CROWDS, UNITED, together
from flock.core.policy.index import PolicyIndex
from flock.core.policy.numbers import Numbers
from flock.core.policy.render import Ruleset

WEB = PortRange("TCP", 80, 80)


def friends(number: int) -> GroupId:
    return GroupId("x", "", f"app=app{number}")


def made(**rules: Rule) -> dict[PolicyKey, CompiledPolicy]:
    return {
        ("x", name): CompiledPolicy(key=("x", name), ingress=(rule,), egress=(rule,)) for name, rule in rules.items()
    }


def one_group(number: int, *ports: PortRange) -> Rule:
    return Rule(Peers(groups=(friends(number),)), any_port=not ports, ports=ports)


def test_rules_for_the_same_ports_are_one_with_a_union_of_their_peers() -> None:
    policies = made(**{f"p{n}": one_group(n, WEB) for n in range(UNITED)}, any=one_group(99))
    found = together(tuple(policies), policies, "ingress")
    assert found.apart == ()
    assert [(rule.any_port, rule.ports, len(rule.peers.groups)) for rule in found.rules] == [
        (False, (WEB,), 1),
        (True, (), 1),
    ]
    assert found.unions == [GroupId("", "", "", of=tuple(friends(n) for n in range(UNITED)))]


def test_few_groups_make_no_union_and_whoever_means_anybody_needs_none() -> None:
    policies = made(**{f"p{n}": one_group(n, WEB) for n in range(UNITED - 1)})
    assert together(tuple(policies), policies, "ingress").unions == []
    policies |= made(
        **{f"q{n}": one_group(n, WEB) for n in range(50)}, open=Rule(Peers(anywhere=True), any_port=False, ports=(WEB,))
    )
    assert together(tuple(policies), policies, "ingress").rules == (
        Rule(Peers(anywhere=True), any_port=False, ports=(WEB,)),
    )


def test_blocks_for_the_same_ports_are_united() -> None:
    blocks = ("192.0.2.0/25", "192.0.2.128/25", "2001:db8::/33", "2001:db8::/32")
    policies = made(
        **{f"p{n}": Rule(Peers(blocks=(Span.of(ip_network(b)),)), any_port=True) for n, b in enumerate(blocks)}
    )
    (rule,) = together(tuple(policies), policies, "egress").rules
    assert list(map(str, rule.peers.blocks)) == ["192.0.2.0/24", "2001:db8::/32"]


def test_ports_by_name_stay_apart_where_they_mean_a_group_or_are_many() -> None:
    rule = Rule(Peers(groups=(friends(1),)), any_port=False, named=(HTTP,))
    policies = made(named=rule)
    assert together(tuple(policies), policies, "egress") == ((), (("x", "named"),))
    assert together(tuple(policies), policies, "ingress") == ((rule,), ())


# --- what is held ---


def selecting(name: str, *, peer: int, port: int = 80, **selects: str) -> dict[str, object]:
    rule = {"from": [{"podSelector": labelled(app=f"app{peer}")}], "ports": [{"port": port}]}
    return policy({"podSelector": labelled(**selects), "ingress": [rule]}, name=name)


def crowded(pods: int = 1) -> PolicyIndex:
    index = PolicyIndex()
    for number in range(pods):
        index.set_local(local(f"x/pod{number}", f"10.0.0.{number + 1}", labels={"pod": str(number)}))
    for number in range(MANY + 1):
        index.set_policy(selecting(f"p{number}", peer=number))
    return index


def unions(model: Model) -> list[set[str]]:
    return [set(map(str, members)) for group, members in model.groups.items() if group.of]


def test_a_union_comes_and_goes_with_the_pod_that_many_policies_select_and_follows_its_groups() -> None:
    index, model = crowded(), Model()
    index.set_pod(pod("x/a", "10.1.0.1", labels={"app": "app1"}))
    model.apply(index.commit())
    assert unions(model) == [{"10.1.0.1"}]
    index.set_pod(pod("x/b", "10.1.0.2", labels={"app": "app2"}))
    index.set_pod(pod("x/c", "10.1.0.1", labels={"app": "app3"}))  # shares the address
    model.apply(index.commit())
    assert unions(model) == [{"10.1.0.1", "10.1.0.2"}]
    index.drop_pod(("x", "a"))
    model.apply(index.commit())
    assert unions(model) == [{"10.1.0.1", "10.1.0.2"}], "another group has it still"
    index.drop_pod(("x", "c"))
    model.apply(index.commit())
    assert unions(model) == [{"10.1.0.2"}]
    index.drop_policy(("x", "p0"))
    model.apply(index.commit())
    assert unions(model) == [], "as few policies as can be asked one by one"
    assert plain(model) == plain(index.compiled)


def test_a_namespace_has_few_combinations_with_unions_and_those_that_are_too_large_have_none() -> None:
    index, model = crowded(pods=NAMESPACE_CROWDS + 3), Model()
    for number in range(NAMESPACE_CROWDS + 3):
        index.set_policy(selecting(f"own{number}", peer=100 + number, pod=str(number)))
    model.apply(index.commit())
    assert len(unions(model)) == NAMESPACE_CROWDS
    large, model = crowded(), Model()
    for number in range(CROWD_MEMBERS + 1):
        text = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        large.set_pod(pod(f"x/peer{number}", text, labels={"app": f"app{number % MANY}"}))
    model.apply(large.commit())
    assert unions(model) == []


def test_a_class_without_its_union_asks_its_policies_one_by_one() -> None:
    index = crowded()
    index.commit()
    state = index.compiled
    script = Ruleset(Numbers()).full(state, {})
    assert "jump ingress/x/p0" not in script
    for group in [group for group in state.groups if group.of]:
        del state.groups[group]  # type: ignore[attr-defined]
    assert "jump ingress/x/p0" in Ruleset(Numbers()).full(state, {})


@pytest.mark.parametrize("seed", range(20))
def test_unions_are_their_groups_members_whatever_happens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model checks it at every commit."""
    monkeypatch.setattr(crowds, "MANY", 1)
    monkeypatch.setattr(crowds, "UNITED", 2)
    monkeypatch.setattr(crowds, "NAMESPACE_CROWDS", 2)
    random, index, model, seen = Random(seed), PolicyIndex(), Model(), 0
    for _ in range(80):
        for _ in range(random.randint(1, 3)):
            happen(random, index)
        model.apply(index.commit())
        assert plain(model) == plain(index.compiled)
        seen += len(unions(model))
    assert seen


def happen(random: Random, index: PolicyIndex) -> None:
    number = random.randrange(6)
    match random.randrange(6):
        case 0:
            labels = {"pod": str(number), "app": f"app{random.randrange(4)}"}
            index.set_local(local(f"x/pod{number}", f"10.0.0.{number + 1}", labels=labels))
        case 1:
            index.drop_local(f"flock-x-pod{number}")
        case 2 | 3:
            selects = random.choice(({}, {"pod": str(random.randrange(6))}, {"app": "app1"}))
            port = random.choice((80, 80, 81))
            index.set_policy(selecting(f"p{number}", peer=random.randrange(4), port=port, **selects))
        case 4:
            index.drop_policy(("x", f"p{number}"))
        case 5:
            labels = {"app": f"app{random.randrange(4)}"}
            index.set_pod(pod(f"x/peer{number}", f"10.1.0.{random.randrange(3)}", labels=labels))
