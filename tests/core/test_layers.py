"""Configuration from layers: whatever somebody wrote, it is merged or refused by name, and nothing else happens."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written import anyhow

from flock.core.configuration import Effective, FromNode, Inputs, effective
from flock.core.errors import FieldError
from flock.core.model import Metadata, Node, NodeSpec


def of(
    *, own: Any = None, templates: Any = (), pod_cidrs: tuple[str, ...] = (), labels: Any = None
) -> Effective | None:
    node = Node(Metadata(name="n1", labels=labels), NodeSpec(pod_cidrs=pod_cidrs))
    return effective("n1", Inputs(given=FromNode.of(node), templates=templates, own=own))


def template(spec: Any, name: str = "common") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "a pod CIDR that is no network": (
        {"own": {"spec": {}}, "pod_cidrs": ("10.0.0.0/33",)},
        "Node spec.podCIDRs",
    ),
    "a pod CIDR with host bits": ({"own": {"spec": {}}, "pod_cidrs": ("10.0.0.7/24",)}, "Node spec.podCIDRs"),
    "a template that is a list": (
        {"templates": [template({"template": ["mtu"]})]},
        "NodeConfigTemplate common: spec.template",
    ),
    "a template that is a text": (
        {"templates": [template({"template": "mtu: 1400"})]},
        "NodeConfigTemplate common: spec.template",
    ),
    "a template's spec that is a list": ({"templates": [template([])]}, "NodeConfigTemplate common: spec"),
    "a selector that is a list": (
        {"templates": [template({"nodeSelector": ["rack"]})]},
        "NodeConfigTemplate common: spec.nodeSelector",
    ),
    "an operator nobody knows": (
        {"templates": [template({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}})]},
        "NodeConfigTemplate common: spec.nodeSelector",
    ),
    "metadata that is nothing": ({"own": {"metadata": None, "spec": []}}, "NodeConfig n1: spec"),
    "annotations that are a list": (
        {"own": {"metadata": {"annotations": ["ip-algo"]}, "spec": {}}},
        "NodeConfig n1: metadata.annotations",
    ),
    "metadata that is a list": ({"own": {"metadata": ["n1"], "spec": {}}}, "NodeConfig n1: metadata"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_cannot_be_read_is_refused_by_name(what: str) -> None:
    inputs, field = MALFORMED[what]
    with pytest.raises(FieldError) as refused:
        of(**inputs)
    assert str(refused.value).startswith(f"{field}: "), refused.value


def test_a_pod_cidr_does_not_matter_where_something_stronger_names_cidrs() -> None:
    found = of(own={"spec": {"cidr4": ["192.0.2.0/24"]}}, pod_cidrs=("nonsense",))
    assert found is not None and found.raw["spec"] == {"cidr4": ["192.0.2.0/24"]}


def test_what_is_left_out_is_no_mistake() -> None:
    found = of(own={"metadata": None, "spec": None}, templates=[template(None), template({"template": None})])
    assert found is not None and found.raw["spec"] == {}


@given(own=st.none() | anyhow, templates=st.lists(anyhow, max_size=2), pod_cidrs=st.lists(st.text(max_size=12)))
def test_nothing_that_can_be_written_raises_anything_else(own: Any, templates: Any, pod_cidrs: list[str]) -> None:
    with contextlib.suppress(FieldError):
        of(own=own, templates=templates, pod_cidrs=tuple(pod_cidrs))
