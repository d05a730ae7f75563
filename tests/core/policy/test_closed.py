"""A policy that is refused and has no good version isolates what it would have, and allows nothing: never open."""

from typing import Any

import pytest
from policy_world import labelled, local, policy

from flock.core.policy.compiled import Verdicts
from flock.core.policy.explain import describe, why
from flock.core.policy.index import PolicyIndex
from flock.core.policy.reading import MAX_ENTRIES

KEY = ("x", "p")
A = labelled(pod="a")
BOTH = {"policyTypes": ["Ingress", "Egress"]}
GOOD = {"podSelector": A, "ingress": [{"from": [{"podSelector": {}}]}]}


def node_with(*policies: dict[str, Any]) -> PolicyIndex:
    """x/a, x/b and y/a are here."""
    index = PolicyIndex()
    for number, key in enumerate(("x/a", "x/b", "y/a"), 1):
        index.set_local(local(key, f"10.0.0.{number}", labels={"pod": key[-1]}))
    for obj in policies:
        index.set_policy(obj)
    index.commit()
    return index


def isolated(index: PolicyIndex) -> dict[str, str]:
    """Pods and the directions in which they are isolated; whatever isolates them here allows nothing."""
    for compiled in index.compiled.policies.values():
        assert compiled.closed and not compiled.ingress and not compiled.egress
    return {
        subject.pod: "+".join(d for d in ("ingress", "egress") if subject.verdicts.policies(d) is not None)  # type: ignore[arg-type]
        for subject in index.compiled.subjects.values()
        if subject.verdicts != Verdicts()
    }


def from_block(cidr: str, **more: Any) -> dict[str, Any]:
    return {"podSelector": A, "ingress": [{"from": [{"ipBlock": {"cidr": cidr, **more}}]}]}


def on_port(**port: Any) -> dict[str, Any]:
    return {"podSelector": A, "ingress": [{"ports": [port]}]}


# What an API server accepts, of some version or with some annotation, and what only a file brings.
REFUSED = {
    "leading zero": from_block("010.9.0.0/16"),
    "prefix too long": from_block("10.0.0.0/33"),
    "exception outside": from_block("10.0.0.0/8", **{"except": ["11.0.0.0/8"]}),
    "range backwards": on_port(port=90, endPort=80),
    "bad port name": on_port(port="Not_A_Name"),
    "unknown protocol": on_port(port=80, protocol="QUIC"),
    "unknown operator in a peer": {
        "podSelector": A,
        "ingress": [{"from": [{"podSelector": {"matchExpressions": [{"key": "app", "operator": "Gt"}]}}]}],
    },
    "too many entries": {"podSelector": A, "ingress": [{"ports": [{"port": 1}] * (MAX_ENTRIES + 1)}]},
    "a peer of an unknown kind": {"podSelector": A, "ingress": [{"from": [{"serviceSelector": {}}]}]},
    "no list of rules": {"podSelector": A, "ingress": "all"},
}


@pytest.mark.parametrize("spec", REFUSED.values(), ids=REFUSED.keys())
def test_what_a_refused_policy_selects_is_isolated_where_it_says(spec: dict[str, Any]) -> None:
    index = node_with(policy(spec))
    assert isolated(index) == {"x/a": "ingress"}
    assert index.problems[KEY] == index.policies[KEY].compiled.closed
    assert isolated(node_with(policy({**spec, **BOTH}))) == {"x/a": "ingress+egress"}
    assert isolated(node_with(policy({**spec, "policyTypes": ["Egress"]}))) == {"x/a": "egress"}
    assert isolated(node_with(policy({**spec, "egress": [{}]}))) == {"x/a": "ingress+egress"}


@pytest.mark.parametrize("value", ["yes", "", True, {"a": "b"}])
def test_a_strictness_nobody_understands_isolates_and_counts_as_strict(value: Any) -> None:
    index = node_with(policy(GOOD, annotations={"flock.fritzlab.net/strict": value}))
    assert isolated(index) == {"x/a": "ingress"}
    assert index.policies[KEY].compiled.strict


def test_a_refused_policy_is_as_strict_as_it_says() -> None:
    for value, strict in (("true", True), ("false", False)):
        obj = policy(REFUSED["prefix too long"], annotations={"flock.fritzlab.net/strict": value})
        assert node_with(obj).policies[KEY].compiled.strict is strict
    assert not node_with(policy(REFUSED["prefix too long"])).policies[KEY].compiled.strict


@pytest.mark.parametrize(
    "selector",
    [
        "all",
        ["app"],
        {"matchLabels": {"app": 1}},
        {"matchLabels": {"not a key!": "x"}},
        {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["w*"]}]},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": [f"v{n}" for n in range(5000)]}]},
    ],
)
def test_an_unreadable_selector_means_the_whole_namespace(selector: Any) -> None:
    assert isolated(node_with(policy({"podSelector": selector}))) == {"x/a": "ingress", "x/b": "ingress"}


@pytest.mark.parametrize(
    "types", ["Ingress", ["Sideways"], ["Ingress", "Egres"], ["Ingress", "Ingress", "Egress"], [1]]
)
def test_unreadable_directions_mean_both(types: Any) -> None:
    assert isolated(node_with(policy({"podSelector": A, "policyTypes": types}))) == {"x/a": "ingress+egress"}


@pytest.mark.parametrize("spec", ["everything", ["x"], 7])
def test_an_unreadable_spec_means_the_whole_namespace_both_ways(spec: Any) -> None:
    assert isolated(node_with({**policy({}), "spec": spec})) == {"x/a": "ingress+egress", "x/b": "ingress+egress"}


def test_an_object_its_reader_refused_counts_as_refused() -> None:
    """Whoever reads objects may put in place of one that cannot be taken what is known of it, and why."""
    index = node_with({"metadata": {"namespace": "x", "name": "p"}, "refused": "nested too deep"})
    assert index.problems[KEY] == "nested too deep"
    assert isolated(index) == {"x/a": "ingress+egress", "x/b": "ingress+egress"}


# --- comings and goings -------------------------------------------------------------------------------------


def test_a_version_that_is_good_takes_the_place_of_the_isolation() -> None:
    index = node_with(policy(REFUSED["prefix too long"]))
    assert index.set_policy(policy(GOOD)) and not index.problems
    assert [compiled.closed for compiled in index.commit().policies] == [""]
    assert not index.problems


def test_another_refused_version_isolates_what_that_one_selects() -> None:
    index = node_with(policy(REFUSED["prefix too long"]))
    index.set_policy(policy({**REFUSED["bad port name"], "podSelector": labelled(pod="b")}))
    index.commit()
    assert isolated(index) == {"x/b": "ingress"}
    assert "Not_A_Name" in index.problems[KEY]


def test_a_good_version_stays_in_force_when_bad_ones_follow() -> None:
    index = node_with(policy(GOOD))
    for spec in REFUSED.values():
        assert not index.set_policy(policy(spec))
        assert not index.commit().policies
        assert not index.policies[KEY].compiled.closed and KEY in index.problems


def test_the_isolation_goes_with_its_policy() -> None:
    index = node_with(policy(REFUSED["prefix too long"]))
    index.drop_policy(KEY)
    index.commit()
    assert isolated(index) == {} and not index.problems and not index.policies


def test_what_other_policies_allow_stays_allowed() -> None:
    index = node_with(policy(GOOD, name="good"), policy(REFUSED["prefix too long"]))
    answer, *_ = why(index, source="x/b", destination="x/a", protocol="TCP", port=80)
    assert answer.verdict == "allow" and answer.ingress.isolated_by == ("x/good", "x/p")


# --- telling ------------------------------------------------------------------------------------------------


def test_why_and_show_tell_that_the_policy_is_refused_and_why() -> None:
    index = node_with(policy(from_block("010.9.0.0/16")))
    reason = index.policies[KEY].compiled.closed
    answer, *_ = why(index, source="x/b", destination="x/a", protocol="TCP", port=80)
    assert answer.verdict == "deny"
    assert answer.ingress.reasons == (f"x/p: is refused, so it isolates and allows nothing: {reason}",)
    assert "spec.ingress[0].from[0].ipBlock.cidr: '010.9.0.0/16' is no network" in str(answer)
    (shown,) = describe(index, "x/a")
    assert shown.ingress is not None and shown.ingress[0].refused == reason
    assert "x/p: nothing, for it is refused: spec.ingress[0]" in str(shown)


def test_show_tells_that_a_last_good_version_is_not_the_latest() -> None:
    index = node_with(policy(GOOD), policy(from_block("010.9.0.0/16")))
    (shown,) = describe(index, "x/a")
    assert shown.ingress is not None and shown.ingress[0].refused and not shown.ingress[0].closed
    assert "from all pods of namespace x: everything, as it last was good; now it is refused: spec.ing" in str(shown)
