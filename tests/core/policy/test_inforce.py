"""Policies there is no room for: what it costs to refuse them, again and again, is bounded, and each gets its turn."""

import pytest
from policy_world import Node, local, pod, policy

from flock.core.policy import budget
from flock.core.policy.compiled import PolicyKey
from flock.core.policy.inforce import FAILURES

PODS, MOST = 20, 60
TOO_MANY = 50


def node_with_pods(monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(budget, "POLICY_MEMBERS", MOST)
    monkeypatch.setattr(budget, "MEMBERS_PER_POD", 1)
    node = Node()
    for namespace in ("x", "y"):
        node.set_namespace(namespace, {})
    for number in range(PODS):
        node.set_pod(pod(f"y/p{number}", f"10.1.0.{number}", labels={"app": "z"}))
    return node


def meaning_everybody(name: str, selectors: int) -> dict[str, object]:
    """With as many selectors, none like another policy's."""
    peers = [
        {
            "namespaceSelector": {},
            "podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [f"{name}-{number}"]}]},
        }
        for number in range(selectors)
    ]
    return policy({"ingress": [{"from": peers}]}, name=name)


def add(node: Node, name: str) -> None:
    node.set_local(local(f"x/{name}", "10.0.0.1", labels={"pod": name}))


def cost_of_commit(node: Node) -> int:
    before = node.spent
    node.commit()
    return node.spent - before


def refused(node: Node) -> set[PolicyKey]:
    return {key for key, compiled in node.compiled.policies.items() if compiled.closed}


# What one that fails goes through before it does: members of its groups, and comparisons with their labels.
ONE_FAILURE = 2 * (MOST + 2 * PODS)


def test_those_that_come_into_use_with_a_pod_are_not_all_tried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    node = node_with_pods(monkeypatch)
    for number in range(TOO_MANY):
        node.set_policy(meaning_everybody(f"p{number:02}", 10))
    add(node, "a")
    assert cost_of_commit(node) <= FAILURES * ONE_FAILURE
    assert len(refused(node)) == TOO_MANY, "closed, not open"
    assert len(node.again) == TOO_MANY - FAILURES
    assert "not tried yet" in node.problems["x", "p49"]


def test_each_has_its_turn_and_then_none_costs_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    node = node_with_pods(monkeypatch)
    for number in range(TOO_MANY):
        node.set_policy(meaning_everybody(f"p{number:02}", 10))
    node.set_policy(meaning_everybody("zzz-fits", 1))
    add(node, "a")
    node.commit()
    for _ in range(TOO_MANY):
        for key in sorted(node.again)[:5]:
            node.try_again(key)
        assert cost_of_commit(node) <= FAILURES * ONE_FAILURE + 2 * PODS
    assert not node.again
    assert ("x", "zzz-fits") not in refused(node)
    assert len(refused(node)) == TOO_MANY
    add(node, "b")
    assert cost_of_commit(node) <= TOO_MANY + 1 + 4, "selectors of the policies, and the pod's place in a group"


def test_pods_that_come_and_go_bring_no_new_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    node = node_with_pods(monkeypatch)
    for number in range(TOO_MANY):
        node.set_policy(meaning_everybody(f"p{number:02}", 10))
    add(node, "a")
    node.commit()
    for _ in range(3):
        node.drop_local("flock-x-a")
        cost_of_commit(node)
        assert not node.compiled.policies
        add(node, "a")
        assert cost_of_commit(node) <= FAILURES * ONE_FAILURE
        assert len(refused(node)) == TOO_MANY


def test_room_that_is_given_back_is_offered_to_a_few_at_once_and_to_the_others_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = node_with_pods(monkeypatch)
    add(node, "a")
    for number in range(6):  # each is as much as two thirds of a policy may have
        node.set_policy(meaning_everybody(f"p{number}", 2))
    while not node.commit() or node.again:
        for key in list(node.again):
            node.try_again(key)
    in_force = {("x", f"p{number}") for number in range(6)} - refused(node)
    assert 0 < len(in_force) < 6
    node.drop_policy(min(in_force))
    node.commit()
    assert len(set(node.compiled.policies) - refused(node)) == len(in_force), "one took its place at once"
    for _ in range(6):
        for key in list(node.again):
            node.try_again(key)
        node.commit()
    assert not node.again
    assert len(set(node.compiled.policies) - refused(node)) == len(in_force)


def test_members_that_become_known_after_a_policy_was_taken_up_are_counted_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its peers' namespaces may be listed only once it is in use: who waited for that gets no more room by it."""
    node = node_with_pods(monkeypatch)
    add(node, "a")
    node.set_policy(meaning_everybody("few", 1))
    node.set_policy(meaning_everybody("many", 2))
    node.commit()
    assert not refused(node)
    for number in range(PODS):
        node.set_pod(pod(f"y/late{number}", f"10.2.0.{number}", labels={"app": "z"}))
    node.commit()
    assert not refused(node), "pods come and go all the time"
    node.recount()
    node.commit()
    assert refused(node) == {("x", "many")}
