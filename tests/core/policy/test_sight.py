"""While it is not known whom a ClusterNetworkPolicy denies or passes on, it denies everybody, and goes on asking."""

from ipaddress import ip_address
from typing import Any

import pytest

from flock.core.policy.compiled import ALL_PODS, NODES, CompiledPolicy
from flock.core.policy.index import PolicyIndex
from flock.core.policy.podfacts import LocalPod
from flock.core.policy.reach import Reach

KEY = ("", "guard")
BANK = {"namespaces": {"matchLabels": {"team": "bank"}}}
TCP = [{"tcp": {"destinationPort": {"number": 443}}}]


class World:
    """A pod of namespace `shop` here, the namespace `bank` elsewhere; `seen` is what somebody has listed."""

    def __init__(self) -> None:
        self.seen: set[Reach] = set()
        self.index = PolicyIndex(self.seen.__contains__)
        self.index.set_namespace("bank", {"team": "bank"})
        self.arrive("shop")

    def arrive(self, namespace: str, interface: str = "flock1") -> None:
        addresses = (ip_address("192.0.2.1"),)
        self.index.set_local(
            LocalPod(
                interface=interface, container_id="c", namespace=namespace, name="web", labels={}, addresses=addresses
            )
        )

    def see(self, *reaches: Reach) -> None:
        self.seen |= set(reaches)
        self.index.sight.change()

    def policy(self, *rules: dict[str, Any], **spec: Any) -> None:
        subject = {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}
        spec = {"tier": "Admin", "priority": 1, "subject": subject, "egress": [*rules], **spec}
        assert self.index.set_cluster_policy({"metadata": {"name": "guard"}, "spec": spec})

    def in_force(self) -> CompiledPolicy:
        self.index.commit()
        return self.index.compiled.policies[KEY]

    def says(self) -> list[tuple[str, bool]]:
        """Per egress rule what it does, and whether to everybody."""
        return [(rule.action, rule.peers.anywhere) for rule in self.in_force().egress or ()]


@pytest.fixture
def world() -> World:
    return World()


def rule(action: str, *peers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"action": action, "to": [*peers], **more}


THE_BANK, THE_NODES = Reach(frozenset({"bank"})), Reach(frozenset({NODES}))


def test_deny_and_pass_deny_everybody_and_accept_stays_as_it_is(world: World) -> None:
    world.policy(
        rule("Accept", BANK), rule("Deny", BANK), rule("Pass", BANK), rule("Deny", {"networks": ["10.0.0.0/8"]})
    )
    assert world.says() == [("Accept", False), ("Deny", True), ("Deny", True), ("Deny", False)]
    assert set(world.index.sight.unseen) == {KEY}


def test_they_go_on_asking_and_are_as_they_were_written_once_that_is_seen(world: World) -> None:
    world.policy(rule("Deny", BANK))
    world.in_force()
    assert world.index.reach == {THE_BANK}
    world.see(THE_BANK)
    assert world.says() == [("Deny", False)] and not world.index.sight.unseen
    world.seen.clear()
    world.index.sight.change()
    assert world.says() == [("Deny", True)], "what is lost is closed again"


def test_only_the_protocols_that_a_rule_is_about_are_shut(world: World) -> None:
    world.policy(rule("Deny", BANK, protocols=TCP), rule("Deny", BANK, protocols=[{"destinationNamedPort": "web"}]))
    numbered, named = world.in_force().egress or ()
    assert numbered.ports and not numbered.any_port
    assert named.any_port and ALL_PODS not in world.index.compiled.groups


def test_nodes_are_in_reach_like_a_namespace(world: World) -> None:
    world.policy(rule("Deny", {"nodes": {}}))
    assert world.says() == [("Deny", True)] and world.index.reach == {THE_NODES}
    world.see(THE_NODES)
    assert world.says() == [("Deny", False)]


def test_a_namespace_that_comes_to_be_meant_has_to_be_seen_too(world: World) -> None:
    world.policy(rule("Deny", BANK))
    world.see(THE_BANK)
    assert world.says() == [("Deny", False)]
    world.index.set_namespace("till", {"team": "bank"})
    assert world.says() == [("Deny", True)]
    world.see(Reach(frozenset({"bank", "till"})))
    assert world.says() == [("Deny", False)]


def test_a_policy_is_asked_for_before_it_is_taken_and_only_where_it_has_subjects(world: World) -> None:
    def spec(namespace: str) -> dict[str, Any]:
        subject = {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        egress = [
            rule("Deny", BANK, {"nodes": {}}),
            rule("Accept", {"pods": {"podSelector": {"matchLabels": {"a": "b"}}}}),
        ]
        return {
            "metadata": {"name": "p"},
            "spec": {"tier": "Admin", "priority": 1, "subject": subject, "egress": egress},
        }

    assert world.index.reach_of(spec("shop")) == {THE_BANK, THE_NODES, Reach(None, "a=b")}
    assert world.index.reach_of(spec("other")) == set()


def test_labels_of_pods_matter_where_a_subject_is_chosen_by_them(world: World) -> None:
    assert not world.index.needs_labels("shop")
    world.policy()
    assert not world.index.needs_labels("shop")
    chosen = {"namespaceSelector": {"matchLabels": {"team": "bank"}}, "podSelector": {"matchLabels": {"app": "db"}}}
    world.policy(subject={"pods": chosen})
    assert world.index.needs_labels("bank") and not world.index.needs_labels("shop")
    world.index.set_policy({"metadata": {"name": "p", "namespace": "shop"}, "spec": {"podSelector": {}}})
    assert world.index.needs_labels("shop")
