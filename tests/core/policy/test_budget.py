"""What a policy and a namespace may put into a node's kernel, and that the rest is closed and not open."""

from typing import Any

import pytest
from policy_world import Node, addresses, labelled, local, pod, policy

from flock.core.policy import budget
from flock.core.policy.compiled import CompiledPolicy, Verdicts
from flock.core.policy.parse import read_policy


def peers(count: int, *, start: int = 0) -> list[dict[str, Any]]:
    return [{"podSelector": labelled(app=f"a{start + number}")} for number in range(count)]


def named(count: int) -> list[dict[str, Any]]:
    return [{"port": f"p{number}"} for number in range(count)]


@pytest.mark.parametrize(
    "spec",
    [
        {"ingress": [{"from": peers(350), "ports": named(1000)}]},
        {"egress": [{"to": peers(350), "ports": named(1000)}], "policyTypes": ["Ingress", "Egress"]},
        {"ingress": [{"from": peers(budget.POLICY_SETS // 2 + 1)}]},
        {"ingress": [{"ports": named(budget.POLICY_SETS + 1)}]},
    ],
)
def test_a_policy_of_too_many_sets_is_closed(spec: dict[str, Any]) -> None:
    parsed = read_policy(policy(spec))
    assert f"more than {budget.POLICY_SETS}" in parsed.compiled.closed
    assert parsed.compiled.ingress == ()
    assert parsed.compiled.egress == (() if "egress" in spec else None)


def test_a_policy_that_just_fits_is_as_it_says() -> None:
    compiled = read_policy(policy({"ingress": [{"from": peers(budget.POLICY_SETS // 2)}]})).compiled
    assert not compiled.closed
    assert compiled.ingress is not None
    assert len(compiled.ingress[0].peers.groups) == budget.POLICY_SETS // 2


def crowded(monkeypatch: pytest.MonkeyPatch, **bounds: int) -> Node:
    for name, bound in bounds.items():
        monkeypatch.setattr(budget, name, bound)
    node = Node()
    for namespace in ("x", "y"):
        node.set_namespace(namespace, {})
        node.set_local(local(f"{namespace}/a", "10.0.0.1", labels={"pod": "a"}))
    return node


def in_force(node: Node, name: str, namespace: str = "x") -> CompiledPolicy:
    node.commit()
    return node.compiled.policies[namespace, name]


def test_what_is_beyond_a_namespaces_share_is_closed_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared selectors count once; other namespaces have a share of their own."""
    node = crowded(monkeypatch, NAMESPACE_SETS=4)
    node.set_policy(policy({"ingress": [{"from": peers(2)}]}, name="one"))
    node.set_policy(policy({"ingress": [{"from": peers(1)}]}, name="same"))
    node.set_policy(policy({"ingress": [{"from": peers(1, start=5)}]}, name="zu-viel"))
    node.set_policy(policy({"ingress": [{"from": peers(2, start=9)}]}, namespace="y", name="other"))
    assert [bool(in_force(node, name).closed) for name in ("one", "same", "zu-viel")] == [False, False, True]
    assert not in_force(node, "other", "y").closed
    assert in_force(node, "zu-viel").ingress == ()
    assert node.verdicts("flock-x-a") == Verdicts((("x", "one"), ("x", "same"), ("x", "zu-viel")))
    assert "no room on this node" in node.problems["x", "zu-viel"]
    assert node.is_closed(("x", "zu-viel"))
    assert not node.is_closed(("x", "one"))
    node.drop_policy(("x", "one"))
    assert all(map(node.is_closed, node.problems)), "before the commit as after it"
    assert not in_force(node, "zu-viel").closed
    assert node.problems == {}
    node.set_policy(policy({"ingress": [{"from": peers(3, start=20)}]}, name="same"))
    assert in_force(node, "same").closed, "a policy that grows beyond it is closed, and not what it was before"
    node.set_policy(policy({"ingress": [{"from": peers(3, start=30)}]}, name="zu-viel"))
    assert in_force(node, "zu-viel").closed
    node.drop_policy(("x", "zu-viel"))
    assert set(node.problems) == {("x", "same")}
    node.set_policy(policy({"ingress": []}, name="same"))
    assert not in_force(node, "same").closed
    assert node.problems == {}


def test_rules_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    node = crowded(monkeypatch, NAMESPACE_LINES=10)
    blocks = [{"ipBlock": {"cidr": f"10.{number * 2}.0.0/16"}} for number in range(12)]
    node.set_policy(policy({"ingress": [{"from": blocks[:5]}]}, name="fits"))
    node.set_policy(policy({"ingress": [{"from": blocks}]}, name="long"))
    assert [bool(in_force(node, name).closed) for name in ("fits", "long")] == [False, True]


def test_selectors_that_all_mean_everybody_are_counted_by_whom_they_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    node = crowded(monkeypatch, POLICY_MEMBERS=60, MEMBERS_PER_POD=1)
    for number in range(20):
        node.set_pod(pod(f"y/p{number}", f"10.1.0.{number}", labels={"app": "z"}))
    everybody = [
        {
            "namespaceSelector": {},
            "podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [v]}]},
        }
        for v in "abcdef"
    ]
    node.set_policy(policy({"ingress": [{"from": everybody[:2]}]}, name="few"))
    node.set_policy(policy({"ingress": [{"from": everybody}]}, name="many"))
    for number in range(10):  # the same selectors: nothing more
        node.set_policy(policy({"ingress": [{"from": everybody[:2]}]}, name=f"few{number}"))
        assert not in_force(node, f"few{number}").closed
    assert not in_force(node, "few").closed
    assert "addresses" in in_force(node, "many").closed
    assert len(node.compiled.groups) == 2, "the groups it would have needed are gone again"
    assert all(set(addresses("10.1.0.7")) <= set(members) for members in node.compiled.groups.values())


def test_of_too_many_policies_for_one_pod_the_rest_allow_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flock.core.policy.verdicts.POD_POLICIES", 3)
    node = crowded(monkeypatch)
    for number in range(6):
        node.set_policy(policy({"ingress": [{"ports": [{"port": number + 1}]}]}, name=f"p{number}"))
    assert node.verdicts("flock-x-a") == Verdicts(tuple(("x", f"p{number}") for number in range(3)))
    assert len(node.compiled.policies) == 3, "the others take no room"
    node.drop_policy(("x", "p1"))
    assert node.verdicts("flock-x-a") == Verdicts(tuple(("x", f"p{number}") for number in (0, 2, 3)))
