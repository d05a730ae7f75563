"""What a node believes about its configuration, from objects alone: the last good one stays, whatever comes."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from written import anyhow

from flock.core.configuration import Configuration, FromNode, Inputs, decide

NOTHING = Configuration()
GOOD = {"metadata": {"name": "n1"}, "spec": {"cidr4": ["192.0.2.0/24"], "mtu": 1400}}


def template(name: str, spec: Any, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeSelector": {"matchLabels": labels}, "template": spec}}


def believed(before: Configuration = NOTHING, **inputs: Any) -> Configuration:
    return decide("n1", Inputs(**inputs), before=before)


def test_without_any_object_there_is_no_configuration_and_no_complaint() -> None:
    assert believed() == NOTHING


def test_a_node_s_own_word_is_stronger_than_its_rack_s_and_that_than_everybody_s() -> None:
    found = believed(
        given=FromNode({"rack": "a"}, ("198.51.100.0/24",)),
        templates=(
            template("rack", {"mtu": 9000, "defaults": {"ipv6": False}}, rack="a"),
            template("everybody", {"mtu": 1500, "cidr6": ["2001:db8::/64"], "anycast": {"withdrawOnCordon": False}}),
            template("elsewhere", {"mtu": 1280}, rack="b"),
        ),
        own={"spec": {"cidr6": ["2001:db8:1::/64"]}},
    )
    assert found.config is not None and found.layers is not None and not found.problem
    assert (found.config.mtu, [str(n) for n in found.config.aggregates]) == (9000, ["2001:db8:1::/64"])
    assert found.layers.origins == {
        "spec.mtu": "NodeConfigTemplate rack",
        "spec.defaults.ipv6": "NodeConfigTemplate rack",
        "spec.anycast.withdrawOnCordon": "NodeConfigTemplate everybody",
        "spec.cidr6": "NodeConfig n1",
    }


def test_a_node_s_pod_cidrs_count_where_nobody_names_any() -> None:
    found = believed(given=FromNode({}, ("198.51.100.0/24", "2001:db8:2::/64")), own={"spec": {"mtu": 1400}})
    assert found.config is not None and found.layers is not None
    assert [str(n) for n in found.config.aggregates] == ["2001:db8:2::/64", "198.51.100.0/24"]
    assert found.layers.origins["spec.cidr4"] == "Node spec.podCIDRs"


def test_a_refused_version_leaves_the_last_good_one_in_force_and_says_what_is_wrong_with_it() -> None:
    good = believed(own=GOOD)
    refused = believed(good, own={"spec": {"cidr4": ["192.0.2.0/24"], "mtu": "large"}})
    assert (refused.config, refused.layers) == (good.config, good.layers)
    assert "spec.mtu" in refused.problem and refused.problem.endswith("; the last good one stays in force")
    assert believed(refused, own=GOOD) == good


def test_a_refused_first_version_configures_nothing_and_says_why() -> None:
    refused = believed(own={"spec": {"mtu": "large"}})
    assert refused.config is None and "spec.mtu" in refused.problem and "last good" not in refused.problem


def test_a_bad_template_is_named_and_changes_nothing() -> None:
    good = believed(own=GOOD)
    refused = believed(good, own=GOOD, templates=(template("rack", ["mtu"]),))
    assert refused.config is good.config and refused.problem.startswith("NodeConfigTemplate rack: spec.template: ")


def test_a_deleted_configuration_stays_in_force_and_its_loss_is_told() -> None:
    good = believed(own=GOOD)
    gone = believed(good)
    assert (gone.config, gone.layers) == (good.config, good.layers)
    assert gone.problem == "NodeConfig n1 was deleted; its last version stays in force"


def test_what_was_refused_and_then_deleted_is_no_longer_complained_about() -> None:
    assert believed(believed(own={"spec": {"mtu": "large"}})) == NOTHING


def test_an_equal_configuration_is_the_same_object_even_where_other_layers_say_it() -> None:
    good = believed(own=GOOD)
    moved = believed(good, templates=(template("everybody", GOOD["spec"]),), own={"spec": {}})
    assert moved.config is good.config
    assert moved.layers is not None and set(moved.layers.origins.values()) == {"NodeConfigTemplate everybody"}


def test_what_nobody_thought_of_is_a_refusal_too() -> None:
    nested: Any = 1400
    for _ in range(5000):
        nested = {"mtu": nested}
    good = believed(own=GOOD)
    refused = believed(good, own={"spec": {"bgp": nested}})
    assert refused.config is good.config and "RecursionError" in refused.problem


spec = st.fixed_dictionaries(
    {},
    optional={
        "mtu": st.sampled_from([1280, 1400, 9000, 12, "large", None]),
        "cidr4": st.sampled_from([["192.0.2.0/24"], ["192.0.2.0/25", "192.0.2.128/25"], ["192.0.2.1/24"], [], "none"]),
        "defaults": st.sampled_from([{"ipv4": True}, {"ipv6": False}, {"ipv4": 4}, {}, None]),
        "anycast": st.sampled_from([{"withdrawOnCordon": True}, {"withdrawOnCordon": False}, {"allowed": 1}]),
    },
)
objects = st.fixed_dictionaries(
    {},
    optional={
        "given": st.builds(
            FromNode,
            st.sampled_from([{}, {"rack": "a"}, {"rack": "b"}]),
            st.sampled_from([(), ("198.51.100.0/24",), ("nonsense",)]),
        ),
        "templates": st.lists(
            anyhow
            | st.builds(template, st.sampled_from("abc"), spec)
            | st.builds(template, st.sampled_from("abc"), spec, rack=st.sampled_from("ab")),
            max_size=3,
        ).map(tuple),
        "own": st.none() | anyhow | st.builds(dict, spec=spec),
    },
)


@given(st.lists(objects, min_size=1, max_size=5))
def test_whatever_is_written_in_whatever_order_what_is_in_force_is_the_last_good_one(writes: list[Any]) -> None:
    """And what is in force never depends on what was refused before it."""
    now = NOTHING
    for inputs in writes:
        before, now = now, believed(now, **inputs)
        alone = believed(**inputs)
        if alone.config is not None:
            assert now == alone
        else:
            assert (now.config, now.layers) == (before.config, before.layers)
            assert now.config is None or now.problem
        assert believed(now, **inputs) == now, "the same again says the same"


@given(objects, st.permutations(range(3)))
def test_the_order_in_which_templates_are_listed_decides_nothing(inputs: dict[str, Any], order: list[int]) -> None:
    """Names are unique where they come from."""
    templates = {str(t.get("metadata")): t for t in inputs.get("templates", ())}
    listed = list(templates.values())
    shuffled = [listed[i] for i in order if i < len(listed)]
    one = believed(**{**inputs, "templates": tuple(listed)})
    other = believed(**{**inputs, "templates": tuple(shuffled)})
    assert msgspec.structs.replace(one, problem="") == msgspec.structs.replace(other, problem="")
    assert bool(one.problem) == bool(other.problem)
