"""The definition of ClusterNetworkPolicy says what the agent says, as far as a schema can tell."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from configs import CONTAINERS, SCALARS, at, paths, put, without
from hypothesis import given, settings
from hypothesis import strategies as st
from near import near
from structural import complaints, stored

from flock.core.policy.cluster import read_cluster_policy

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import crds
from crd.clusterpolicy import cluster_policy
from thoroughness import examples, slowly

SCHEMA = cluster_policy()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SELECTOR = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}]}
FULL: dict[str, Any] = {
    "tier": "Admin",
    "priority": 100,
    "subject": {"pods": {"namespaceSelector": SELECTOR, "podSelector": SELECTOR}},
    "ingress": [
        {
            "name": "monitoring",
            "action": "Accept",
            "from": [{"namespaces": SELECTOR}, {"pods": {"podSelector": SELECTOR}}],
            "protocols": [{"tcp": {"destinationPort": {"number": 9090}}}, {"destinationNamedPort": "metrics"}],
        }
    ],
    "egress": [
        {
            "action": "Deny",
            "to": [{"networks": ["192.0.2.0/24", "2001:db8::/32"]}, {"nodes": SELECTOR}],
            "protocols": [{"udp": {"destinationPort": {"range": {"start": 1, "end": 1024}}}}, {"sctp": {}}],
        },
        {"action": "Pass", "to": [{"namespaces": {}}]},
    ],
}
# What it compares or knows better.
AGENT_ALONE = (r" is not above start ", r"matchLabels: .* is no label key", r"matchLabels: .* must both be strings")


def agent_refuses(spec: Any) -> str:
    """For a rule that fails closed as well: the API server should have said so."""
    found = read_cluster_policy({"metadata": {"name": "p"}, "spec": spec})
    return found.compiled.closed or "; ".join(found.limits)


def whole_numbers(value: Any) -> Any:
    """The API server writes 1.0 as 1."""
    if isinstance(value, dict):
        return {key: whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def compare(spec: Any) -> None:
    by_agent = agent_refuses(whole_numbers(stored(spec)))
    by_schema = list(complaints(SCHEMA, {"metadata": {"name": "p"}, "spec": stored(spec)}))
    if not by_agent:
        # The API server drops fields it does not know; the agent does not mind a value that is there twice.
        serious = [said for said in by_schema if not said.endswith((": there is no such field", " has an item twice"))]
        assert not serious, f"the agent takes it: {spec}"
    elif not any(re.search(said, by_agent) for said in AGENT_ALONE):
        assert by_schema, f"the agent refuses it, {by_agent}: {spec}"


def test_the_files_are_up_to_date() -> None:
    assert crds.OPTIONAL.read_text() == crds.optional(cluster_policy()), "run .venv/bin/python scripts/crds.py"
    assert crds.OPTIONAL_IN_CHART.read_text() == crds.in_chart(cluster_policy())
    assert yaml.safe_load(crds.OPTIONAL.read_text()) == cluster_policy()


def test_a_full_policy_passes_both() -> None:
    assert agent_refuses(FULL) == ""
    assert list(complaints(SCHEMA, {"metadata": {"name": "p"}, "spec": FULL})) == []


FIELDS = list(paths(FULL))
SOME = FIELDS[::8]


@pytest.mark.parametrize(
    "path", [*SOME, *slowly(*(p for p in FIELDS if p not in SOME))], ids=lambda path: ".".join(map(str, path))
)
def test_both_agree_whatever_a_field_is_given(path: tuple[Any, ...]) -> None:
    for value in (*SCALARS, *CONTAINERS):
        compare(put(FULL, path, value))
    compare(without(FULL, path))


@given(st.data())
@settings(max_examples=examples(300))
def test_both_agree_on_what_is_nearly_right(data: st.DataObject) -> None:
    spec = FULL
    for _ in range(data.draw(st.sampled_from((1, 1, 1, 2, 3)))):
        path = data.draw(st.sampled_from(list(paths(spec))))
        there = data.draw(st.integers(0, 9))
        spec = put(spec, path, data.draw(near(at(spec, path)))) if there else without(spec, path)
    compare(spec)


@pytest.mark.parametrize("field", ["ingress", "egress"])
def test_both_know_how_many_rules_there_may_be(field: str) -> None:
    for number in (25, 26):
        compare({**FULL, field: FULL[field][:1] * number})
