"""Errors are as long as a person reads, whatever they quote."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.core.annotations import ANNOTATIONS, own_annotations
from flock.core.cni import parse_cni_args, parse_net_conf
from flock.core.errors import LONGEST, FieldError, FlockError, in_one_line, shown
from flock.core.nodeconfig import parse_node_config
from flock.core.podrequest import parse_annotations
from flock.core.policy.parse import parse_policy

HUGE = "x\n" * 100_000


@given(st.text(max_size=300), st.integers(60, 200))
def test_a_long_text_loses_its_middle(text: str, most: int) -> None:
    found = shown(text, most)
    assert found == text if len(text) <= most else len(found) == most
    assert found[:10] == text[:10] and found[-10:] == text[-10:]


@given(st.text(max_size=50))
def test_a_line_is_one_line_and_printable(text: str) -> None:
    assert in_one_line(text).isprintable()
    assert in_one_line(text) == text or not text.isprintable()


def test_what_was_asked_and_what_stood_in_the_way_are_both_left() -> None:
    error = FieldError("spec.x", f"{HUGE} has nothing in common with 192.0.2.0/24", details=HUGE)
    assert error.msg.startswith("spec.x: x\\nx") and error.msg.endswith("in common with 192.0.2.0/24")
    assert "200040 characters" in error.msg and "\n" not in error.msg
    assert len(error.msg) < 1_000 and len(error.details) <= LONGEST
    assert str(error) == error.msg


def config(**spec: Any) -> dict[str, Any]:
    kind = {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig"}
    return {**kind, "metadata": {"name": "n1"}, "spec": spec}


def policy(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "shop"}, "spec": spec}


def on_a_node(annotations: dict[str, str]) -> object:
    return parse_annotations(annotations, default_ipv6=True, default_ipv4=True, cidr6=(), cidr4=())


@pytest.mark.parametrize(
    ("parse", "given"),
    [
        *((on_a_node, {key: HUGE}) for key in sorted(ANNOTATIONS) if not key.endswith(("ip-algo", "strict"))),
        (parse_cni_args, HUGE),
        (parse_cni_args, f"K8S_POD_NAME={HUGE}"),
        (parse_net_conf, f'{{"cniVersion": "1.0.0", "name": "{HUGE!a}"}}'.encode()),
        (parse_node_config, config(**{HUGE: 1})),
        (parse_node_config, config(cidr4=[HUGE], cidr6=HUGE, mtu=HUGE)),
        (parse_node_config, config(**{f"x{n}": n for n in range(10_000)})),
        (parse_node_config, config(anycast={"allowed": [{"prefixes": [HUGE], "namespaceSelector": {HUGE: HUGE}}]})),
        (parse_policy, policy(podSelector={"matchLabels": {HUGE: HUGE}})),
        (parse_policy, policy(podSelector={}, policyTypes=[HUGE])),
        (parse_policy, policy(podSelector={}, ingress=[{"from": [{"ipBlock": {"cidr": HUGE}}]}])),
        (parse_policy, policy(podSelector={}, ingress=[{"from": [{HUGE: {}}], "ports": [{"port": HUGE}]}])),
    ],
)
def test_no_parser_quotes_without_bound(parse: Any, given: Any) -> None:
    with pytest.raises(FlockError) as caught:
        parse(given)
    assert len(caught.value.msg) <= LONGEST and "\n" not in caught.value.msg


def test_what_is_kept_of_annotations_is_bounded_and_a_value_that_is_too_long_still_is_so() -> None:
    unknown = {f"flock.fritzlab.net/x-{n}": HUGE for n in range(10)}
    for key in ANNOTATIONS:
        kept = own_annotations({**unknown, key: HUGE})
        assert kept.keys() == {key} and len(kept[key]) < 10_000
    with pytest.raises(FlockError, match="longer than"):
        on_a_node(own_annotations({"flock.fritzlab.net/addresses": "192.0.2.1" + "," * 100_000}))
