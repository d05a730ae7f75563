"""Addresses a pod asks for by name: granted, moved to the next sandbox, refused while another lives."""

import pytest
from asking import GRANTING
from looking import (
    OWN,
    addresses_of,
    assert_sound,
    failure,
    outcome,
    pod_side,
    undisturbed,
)

from harness import CniFailure, Node

FIXED = "2001:db8:53::7"
ADDRESS_IN_USE = 103


@pytest.fixture
def granting(fresh: Node) -> Node:
    fresh.write("nodeconfig", GRANTING)
    fresh.start()
    return fresh


ASKED = {OWN + "addresses": FIXED}
SAME_POD = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0"


def test_an_address_moves_to_the_next_sandbox_of_the_same_pod(granting: Node) -> None:
    """And the late DELs of the old one, in any form, leave the new one's route alone."""
    granting.pod("old", annotations=ASKED, args=SAME_POD)
    new = granting.pod("new", annotations=ASKED, args=SAME_POD)
    assert FIXED in addresses_of(new) and granting.ping(FIXED)
    assert set(granting.allocations()) == {"new"}
    with undisturbed(granting, *addresses_of(new)):
        granting.cni("DEL", "old", args=SAME_POD)
        granting.cni("DEL", "old", netns="", args=SAME_POD)
    assert pod_side(granting.path("old")) == {"lo": set()}
    assert_sound(granting)


def test_an_address_moves_from_a_pod_whose_namespace_is_gone(granting: Node) -> None:
    granting.pod("old", annotations=ASKED)
    granting.remove_namespace("old")
    new = granting.pod("new", annotations=ASKED)
    assert granting.ping(FIXED) and FIXED in addresses_of(new)
    granting.cni("DEL", "old", netns="")
    assert granting.ping(FIXED)
    assert_sound(granting)


def test_an_address_of_another_living_pod_is_refused_by_a_code_of_its_own(granting: Node) -> None:
    old = granting.pod("old", annotations=ASKED)
    granting.namespace("new")
    with undisturbed(granting, *addresses_of(old)):
        failed = failure(granting, "ADD", "new", annotations=ASKED)
    assert failed.code == ADDRESS_IN_USE and FIXED in failed.msg and "default/old" in failed.msg
    assert_sound(granting)
    granting.cni("DEL", "old")
    granting.cni("ADD", "new", annotations=ASKED)
    assert granting.ping(FIXED)


def test_two_containers_without_a_name_are_not_the_same_pod(granting: Node) -> None:
    granting.pod("old", annotations=ASKED, args="")
    granting.namespace("new")
    assert failure(granting, "ADD", "new", annotations=ASKED, args="").code == ADDRESS_IN_USE


def test_ten_pods_that_ask_for_one_address_at_once_get_it_once(granting: Node) -> None:
    names = [f"p{n}" for n in range(10)]
    for name in names:
        granting.namespace(name)
    outcomes = [outcome(p) for p in [granting.cni_start("ADD", name, annotations=ASKED) for name in names]]
    refused = [x for x in outcomes if isinstance(x, CniFailure)]
    assert len(refused) == 9 and {x.code for x in refused} == {ADDRESS_IN_USE}
    assert_sound(granting)


def test_an_anycast_address_is_shared_but_never_with_one_who_holds_it_alone(granting: Node) -> None:
    shared = {OWN + "anycast": FIXED}
    granting.pod("a", annotations=shared)
    granting.pod("b", annotations=shared)
    granting.namespace("c")
    assert failure(granting, "ADD", "c", annotations=ASKED).code == ADDRESS_IN_USE
    granting.cni("DEL", "a")
    granting.cni("DEL", "b")
    granting.cni("ADD", "c", annotations=ASKED)
    assert failure(granting, "ADD", "a", annotations=shared).code == ADDRESS_IN_USE
    assert_sound(granting)
