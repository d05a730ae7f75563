"""What each event changes in the compiled form."""

from typing import Any

import pytest
from policy_world import HTTP, NOTHING, Node, addresses, labelled, local, parts, plain, pod, policy

from flock.core.policy.compiled import ALL_PODS, GroupId, NamedPort, Verdicts, everything

FROM_B: dict[str, Any] = {"podSelector": labelled(pod="a"), "ingress": [{"from": [{"podSelector": labelled(pod="b")}]}]}
B = GroupId("x", "", "pod=b")
KEY = ("x", "p")


@pytest.fixture
def node() -> Node:
    """x/a is here and p lets pods with pod=b of its namespace in."""
    node = Node()
    node.set_namespace("x", {})
    node.set_local(local("x/a", "10.0.0.1", "2001:db8::1", labels={"pod": "a"}))
    node.set_policy(policy(FROM_B))
    node.commit()
    return node


# --- policies and subjects ----------------------------------------------------------------------------------


def test_nothing_known_changes_nothing() -> None:
    assert Node().commit() == NOTHING


def test_a_pod_that_no_policy_selects_is_a_subject_that_is_not_isolated() -> None:
    node = Node()
    node.set_local(local("x/a", "10.0.0.1", labels={}))
    (subject,) = node.commit().subjects
    assert subject.verdicts == Verdicts()
    assert (subject.pod, subject.container_id, subject.addresses) == ("x/a", "sandbox-of-a", addresses("10.0.0.1"))


def test_a_policy_comes_with_the_first_subject_it_selects_and_goes_with_the_last(node: Node) -> None:
    change = everything(node.compiled)
    assert [compiled.key for compiled in change.policies] == [KEY]
    assert [membership.group for membership in change.added] == [B]
    node.drop_local("flock-x-a")
    change = node.commit()
    assert (change.removed_policies, change.removed_groups) == ((KEY,), (B,))
    assert change.removed_subjects == ("flock-x-a",)


def test_policies_that_select_no_pod_here_do_not_show(node: Node) -> None:
    node.set_policy(policy(FROM_B, name="elsewhere", namespace="y"))
    node.set_policy(policy({"podSelector": labelled(pod="z")}, name="others"))
    node.set_pod(pod("x/z", "10.0.9.9", labels={"pod": "z"}))
    assert node.commit() == NOTHING


def test_a_policy_isolates_only_in_the_directions_it_names(node: Node) -> None:
    node.set_policy(policy({"policyTypes": ["Egress"]}, name="out"))
    node.set_policy(policy({"policyTypes": ["Ingress", "Egress"]}, name="both"))
    assert node.verdicts("flock-x-a") == Verdicts((("x", "both"), KEY), (("x", "both"), ("x", "out")))


def test_an_object_that_is_the_same_again_changes_nothing(node: Node) -> None:
    node.set_policy(policy(FROM_B, resourceVersion="2"))
    node.set_namespace("x", {})
    node.set_local(local("x/a", "10.0.0.1", "2001:db8::1", labels={"pod": "a"}))
    assert node.commit() == NOTHING


def test_a_policy_dropped_and_set_again_within_a_batch_changes_nothing(node: Node) -> None:
    node.drop_policy(KEY)
    node.set_policy(policy(FROM_B))
    assert node.commit() == NOTHING


def test_a_policy_whose_rules_change_leaves_subjects_and_shared_groups_alone(node: Node) -> None:
    node.set_policy(policy({**FROM_B, "ingress": [{**FROM_B["ingress"][0], "ports": [{"port": 80}]}]}))
    change = node.commit()
    assert [compiled.key for compiled in change.policies] == [KEY]
    assert parts(change) == {"policies"}


def test_two_policies_with_the_same_selector_share_a_group(node: Node) -> None:
    node.set_policy(policy(FROM_B, name="q"))
    assert parts(node.commit()) == {"policies", "subjects"}
    node.drop_policy(KEY)
    assert parts(node.commit()) == {"removed_policies", "subjects"}


def test_a_bad_policy_keeps_the_last_good_version_in_force_and_is_listed(node: Node) -> None:
    node.set_policy(policy({"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/40"}}]}]}))
    assert node.commit() == NOTHING
    assert node.problems[KEY].startswith("spec.ingress[0].from[0].ipBlock.cidr: ")
    node.set_policy(policy({}))
    assert not node.problems
    assert len(node.commit().policies) == 1


def test_a_bad_policy_that_goes_away_is_no_problem_any_more(node: Node) -> None:
    node.set_policy(policy({"policyTypes": ["Sideways"]}, name="bad"))
    node.drop_policy(("x", "bad"))
    assert not node.problems
    assert node.commit() == NOTHING


# --- pods of this node --------------------------------------------------------------------------------------


def test_a_pod_of_unknown_labels_is_isolated_by_what_its_namespace_has_and_allowed_nothing(node: Node) -> None:
    node.set_local(local("x/u", "10.0.0.9", labels=None))
    assert node.verdicts("flock-x-u") == Verdicts((), None)
    node.set_policy(policy({"podSelector": labelled(no="one"), "policyTypes": ["Egress"]}, name="out"))
    assert node.verdicts("flock-x-u") == Verdicts((), ())
    node.drop_policy(("x", "out"))
    node.drop_policy(KEY)
    assert node.verdicts("flock-x-u") == Verdicts()


def test_a_pod_of_unknown_labels_is_in_no_group_until_they_are_known(node: Node) -> None:
    node.set_policy(policy({"ingress": [{"from": [{"podSelector": {}}]}]}, name="all"))
    node.set_local(local("x/u", "10.0.0.9", labels=None))
    everyone = GroupId("x", "", "")
    assert node.members(everyone) == set(addresses("10.0.0.1", "2001:db8::1"))
    node.set_pod(pod("x/u", labels={"pod": "b"}))
    assert node.members(everyone) == set(addresses("10.0.0.1", "2001:db8::1", "10.0.0.9"))
    assert node.members(B) == set(addresses("10.0.0.9"))
    assert node.verdicts("flock-x-u") == Verdicts((("x", "all"),))


def test_a_pods_object_beats_what_was_known_when_it_was_attached(node: Node) -> None:
    node.set_pod(pod("x/a", labels={"pod": "other"}))
    assert node.verdicts("flock-x-a") == Verdicts()
    node.drop_pod(("x", "a"))
    assert node.verdicts("flock-x-a") == Verdicts((KEY,))


def test_a_namesakes_object_says_nothing_about_the_pod_here(node: Node) -> None:
    node.set_local(local("x/a", "10.0.0.1", labels={"pod": "a"}, uid="old"))
    node.set_pod(pod("x/a", "10.0.7.7", labels={"pod": "b"}, uid="new"))
    assert node.verdicts("flock-x-a") == Verdicts((KEY,))
    assert node.members(B) == set(addresses("10.0.7.7"))


def test_a_local_pods_addresses_come_from_the_store_and_all_of_them_count(node: Node) -> None:
    node.set_pod(pod("x/b", "10.0.0.66", labels={"pod": "b"}))
    assert node.members(B) == set(addresses("10.0.0.66"))
    node.set_local(local("x/b", "10.0.0.2", "2001:db8::2", "2001:db8:53::1", labels=None))
    assert node.members(B) == set(addresses("10.0.0.2", "2001:db8::2", "2001:db8:53::1"))
    node.drop_local("flock-x-b")
    assert node.members(B) == set(addresses("10.0.0.66"))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_is_isolated_while_it_is_attached_and_nobodys_peer(node: Node, phase: str) -> None:
    """What is left of it may still send; where its object says it has ended, its address may be another's by now."""
    node.set_pod(pod("x/a", labels={"pod": "a"}, phase=phase))
    assert node.verdicts("flock-x-a") == Verdicts((KEY,))
    node.set_pod(pod("x/a", labels={"pod": "a"}, phase="Running"))
    assert node.verdicts("flock-x-a") == Verdicts((KEY,))
    node.set_local(local("x/b", "10.0.0.2", labels=None))
    node.set_pod(pod("x/b", "10.0.0.2", labels={"pod": "b"}, phase=phase))
    assert node.verdicts("flock-x-a") == Verdicts((KEY,))
    assert node.members(B) == set()


def test_a_container_that_is_no_pod_is_selected_by_nothing() -> None:
    node = Node()
    node.set_policy(policy({"ingress": [{"from": [{"namespaceSelector": {}}]}]}))
    node.set_local(local("x/a", "10.0.0.1", labels={}))
    node.set_local(local("/", "10.0.0.5", labels={}))
    assert node.verdicts("flock--") == Verdicts()
    assert node.members(ALL_PODS) == set(addresses("10.0.0.1"))


# --- groups -------------------------------------------------------------------------------------------------


def test_pods_join_and_leave_with_their_labels(node: Node) -> None:
    node.set_pod(pod("x/b", "10.0.0.2", labels={"pod": "b"}))
    assert [(m.group, m.addresses) for m in node.commit().added] == [(B, frozenset(addresses("10.0.0.2")))]
    node.set_pod(pod("x/b", "10.0.0.2", labels={"pod": "c"}))
    change = node.commit()
    assert [(m.group, m.addresses) for m in change.dropped] == [(B, frozenset(addresses("10.0.0.2")))]
    assert parts(change) == {"dropped"}


def test_a_shared_address_stays_while_one_of_its_pods_does(node: Node) -> None:
    node.set_pod(pod("x/b1", "10.0.0.2", "2001:db8:53::1", labels={"pod": "b"}))
    node.set_pod(pod("x/b2", "10.0.0.3", "2001:db8:53::1", labels={"pod": "b"}))
    assert len(node.members(B)) == 3
    node.drop_pod(("x", "b1"))
    assert node.members(B) == set(addresses("10.0.0.3", "2001:db8:53::1"))


def test_host_network_pods_match_no_selector(node: Node) -> None:
    node.set_pod(pod("x/b", "192.0.2.1", labels={"pod": "b"}, host_network=True))
    assert node.commit() == NOTHING


def test_pods_of_a_namespace_come_and_go_with_its_labels() -> None:
    node = Node()
    node.set_local(local("x/a", "10.0.0.1", labels={}))
    ops, by_name = GroupId("", "team=ops", ""), GroupId("", "kubernetes.io/metadata.name=y", "")
    selectors: list[Any] = [labelled(team="ops"), labelled(**{"kubernetes.io/metadata.name": "y"})]
    node.set_policy(policy({"ingress": [{"from": [{"namespaceSelector": s} for s in selectors]}]}))
    node.set_pod(pod("y/m", "10.0.1.1"))
    assert (node.members(ops), node.members(by_name)) == (set(), set(addresses("10.0.1.1")))  # it has no object yet
    node.set_namespace("y", {"team": "ops"})
    assert node.members(ops) == set(addresses("10.0.1.1"))
    node.set_namespace("y", {"team": "dev", "kubernetes.io/metadata.name": "pretended"})
    assert (node.members(ops), node.members(by_name)) == (set(), set(addresses("10.0.1.1")))
    node.set_namespace("y", {"team": "ops"})
    node.drop_namespace("y")
    assert (node.members(ops), node.members(by_name)) == (set(), set(addresses("10.0.1.1")))


# --- named ports --------------------------------------------------------------------------------------------


def test_a_named_port_in_ingress_is_the_subjects_own_by_interface() -> None:
    node = Node()
    node.set_policy(policy({"ingress": [{"ports": [{"port": "http"}]}]}))
    for name, number in (("a", 80), ("b", 8080)):
        node.set_local(local(f"x/{name}", "2001:db8:53::1", labels={}, ports=((HTTP, number),)))
    node.set_local(local("x/c", "10.0.0.3", labels={}, ports=((NamedPort("http", "UDP"), 53),)))
    node.commit()
    assert plain(node.compiled)[3] == {(None, HTTP): {("flock-x-a", 80), ("flock-x-b", 8080)}}


def test_a_named_port_in_egress_is_that_of_the_pods_it_may_go_to() -> None:
    node = Node()
    node.set_local(local("x/a", "10.0.0.1", labels={}))
    block, selector = {"ipBlock": {"cidr": "10.0.1.0/24"}}, {"podSelector": labelled(pod="b")}
    rule = {"to": [block, selector], "ports": [{"port": "http"}]}
    node.set_policy(policy({"policyTypes": ["Egress"], "egress": [rule]}))
    node.set_pod(pod("x/b1", "10.0.0.2", labels={"pod": "b"}, ports=((HTTP, 80),)))
    node.set_pod(pod("x/b2", "10.0.0.3", labels={"pod": "b"}, ports=((HTTP, 8080),)))
    node.set_pod(pod("x/c", "10.0.1.4", labels={"pod": "c"}, ports=((HTTP, 80),)))
    node.commit()
    two, three = addresses("10.0.0.2", "10.0.0.3")
    assert plain(node.compiled)[3] == {(B, HTTP): {(two, 80), (three, 8080)}}
    node.set_pod(pod("x/b2", "10.0.0.3", labels={"pod": "b"}, ports=((HTTP, 81),)))
    assert parts(node.commit()) == {"added_named", "dropped_named"}


def test_a_named_port_without_peers_in_egress_is_that_of_any_pod_and_needs_no_group() -> None:
    node = Node()
    node.set_local(local("x/a", "10.0.0.1", labels={}))
    node.set_policy(policy({"policyTypes": ["Egress"], "egress": [{"ports": [{"port": "http"}]}]}))
    node.set_pod(pod("y/b", "10.0.0.2", ports=((HTTP, 80),)))
    change = node.commit()
    assert change.added == ()
    (named,) = change.added_named
    assert (named.group, set(named.endpoints)) == (ALL_PODS, {(addresses("10.0.0.2")[0], 80)})
    node.drop_policy(KEY)
    assert node.commit().removed_named == ((ALL_PODS, HTTP),)
