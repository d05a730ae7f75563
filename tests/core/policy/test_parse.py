"""What the API's text says a NetworkPolicy means, line by line."""

from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_world import labelled, policy

from flock.core.annotations import STRICT
from flock.core.errors import FieldError
from flock.core.policy.blocks import Block, united
from flock.core.policy.compiled import GroupId, NamedPort, Peers, PortRange, Rule
from flock.core.policy.labels import selector_text
from flock.core.policy.parse import parse_policy
from flock.core.policy.reading import MAX_ENTRIES

ALL = Rule(peers=Peers(anywhere=True), any_port=True)


def ingress(*rules: dict[str, Any]) -> tuple[Rule, ...]:
    found = parse_policy(policy({"ingress": list(rules)})).compiled.ingress
    assert found is not None
    return found


def ports(*entries: Any) -> Rule:
    return ingress({"ports": list(entries)})[0]


def peers(*entries: Any) -> Peers:
    return ingress({"from": list(entries)})[0].peers


def blocks(*entries: Any) -> list[str]:
    return [str(network) for network in peers(*({"ipBlock": entry} for entry in entries)).blocks]


@pytest.mark.parametrize(
    ("spec", "has_ingress", "has_egress"),
    [
        ({}, (), None),
        ({"policyTypes": None}, (), None),
        ({"policyTypes": []}, (), None),
        ({"egress": []}, (), None),
        ({"egress": [{}]}, (), (ALL,)),
        ({"ingress": [{}], "egress": [{}]}, (ALL,), (ALL,)),
        ({"policyTypes": ["Egress"]}, None, ()),
        ({"policyTypes": ["Egress"], "ingress": [{}]}, None, ()),
        ({"policyTypes": ["Ingress"], "egress": [{}]}, (), None),
        ({"policyTypes": ["Ingress", "Egress"]}, (), ()),
        ({"policyTypes": ["Egress", "Egress"]}, None, ()),
    ],
)
def test_policy_types_are_inferred_as_the_api_does(spec: Any, has_ingress: Any, has_egress: Any) -> None:
    compiled = parse_policy(policy(spec)).compiled
    assert (compiled.ingress, compiled.egress) == (has_ingress, has_egress)


@pytest.mark.parametrize("rule", [{}, {"from": []}, {"from": None, "ports": None}, {"ports": []}])
def test_a_rule_without_peers_and_ports_allows_everything(rule: Any) -> None:
    assert ingress(rule) == (ALL,)


@pytest.mark.parametrize("rules", [None, []])
def test_no_rules_allow_nothing(rules: Any) -> None:
    assert parse_policy(policy({"ingress": rules})).compiled.ingress == ()


def test_a_policy_without_a_spec_isolates_all_pods_of_its_namespace() -> None:
    parsed = parse_policy({"metadata": {"name": "p"}})
    assert parsed.key == ("default", "p")
    assert selector_text(parsed.selector) == ""
    assert parsed.compiled.ingress == ()


@pytest.mark.parametrize(
    ("peer", "group"),
    [
        ({"podSelector": {}}, GroupId("x", "", "")),
        ({"podSelector": labelled(a="b")}, GroupId("x", "", "a=b")),
        ({"podSelector": {"matchLabels": None}}, GroupId("x", "", "")),
        ({"namespaceSelector": {}}, GroupId("", "", "")),
        ({"namespaceSelector": labelled(team="ops")}, GroupId("", "team=ops", "")),
        ({"namespaceSelector": {}, "podSelector": labelled(a="b", c="d")}, GroupId("", "", "a=b,c=d")),
        ({"namespaceSelector": {}, "podSelector": None, "ipBlock": None}, GroupId("", "", "")),
    ],
)
def test_peers_by_selector_become_groups(peer: Any, group: GroupId) -> None:
    assert peers(peer) == Peers(groups=(group,))


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"a": "1", "b": "2"}},
        {"matchLabels": {"b": "2", "a": "1"}},
        {"matchLabels": {"b": "2"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]},
        {**labelled(b="2", a="1"), "matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "1"]}]},
    ],
)
def test_selectors_that_say_the_same_are_one_group(selector: Any) -> None:
    assert peers({"podSelector": selector}).groups == (GroupId("x", "", "a=1,b=2"),)


def test_every_operator_has_its_text() -> None:
    operators = [("In", ["v", "u"]), ("NotIn", ["w"]), ("Exists", []), ("DoesNotExist", None)]
    expressions = [{"key": f"k{n}", "operator": op, "values": values} for n, (op, values) in enumerate(operators)]
    group = peers({"podSelector": {"matchExpressions": expressions}}).groups[0]
    assert group.pods == "k0 in (u,v),k1 notin (w),k2,!k3"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, PortRange("TCP", 0, 65535)),
        ({"protocol": "UDP"}, PortRange("UDP", 0, 65535)),
        ({"port": 80}, PortRange("TCP", 80, 80)),
        ({"port": 80, "protocol": None, "endPort": None}, PortRange("TCP", 80, 80)),
        ({"port": 80, "protocol": "SCTP"}, PortRange("SCTP", 80, 80)),
        ({"port": 80, "endPort": 80}, PortRange("TCP", 80, 80)),
        ({"port": 1, "endPort": 65535}, PortRange("TCP", 1, 65535)),
        ({"port": "http"}, NamedPort("http", "TCP")),
        ({"port": "dns-2", "protocol": "UDP"}, NamedPort("dns-2", "UDP")),
    ],
)
def test_ports_default_to_tcp_and_to_all_numbers(entry: Any, expected: Any) -> None:
    rule = ports(entry)
    assert (*rule.ports, *rule.named) == (expected,)
    assert not rule.any_port


def test_numbers_become_disjoint_ranges_per_protocol() -> None:
    udp = {"port": 80, "protocol": "UDP"}
    rule = ports({"port": 90}, {"port": 80, "endPort": 85}, udp, {"port": 84, "endPort": 89})
    assert rule.ports == (PortRange("TCP", 80, 90), PortRange("UDP", 80, 80))


def test_exceptions_are_taken_out_of_their_own_block_only() -> None:
    assert blocks({"cidr": "10.0.0.0/30", "except": ["10.0.0.1/32"]}) == ["10.0.0.0/32", "10.0.0.2/31"]
    assert blocks({"cidr": "10.0.0.0/29", "except": ["10.0.0.0/32"]}) == ["10.0.0.1-10.0.0.7"]
    assert blocks({"cidr": "10.0.0.0/30", "except": ["10.0.0.1/32"]}, {"cidr": "10.0.0.0/31"}) == ["10.0.0.0/30"]


def test_blocks_are_masked_united_and_sorted_ipv4_first() -> None:
    given_blocks = [{"cidr": "2001:db8::1/64"}, {"cidr": "10.1.0.5/16"}, {"cidr": "10.0.0.0/16", "except": None}]
    assert blocks(*given_blocks) == ["10.0.0.0/15", "2001:db8::/64"]


def test_a_block_that_is_all_exceptions_allows_nobody() -> None:
    assert peers({"ipBlock": {"cidr": "10.0.0.0/31", "except": ["10.0.0.0/32", "10.0.0.1/32"]}}) == Peers()


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(25, 32)), max_size=8), st.integers(0, 255))
def test_blocks_mean_what_they_say_address_by_address(cut: list[tuple[int, int]], probe: int) -> None:
    whole = ip_network("10.0.0.0/24")
    exceptions = tuple(ip_network((f"10.0.0.{host}", length), strict=False) for host, length in cut)
    found = united([Block(whole, exceptions)])
    address = whole[probe]
    assert sum(address in span for span in found) == (not any(address in gone for gone in exceptions))


def test_strict_is_an_annotation() -> None:
    assert not parse_policy(policy({})).compiled.strict
    assert parse_policy(policy({}, annotations={STRICT: "true"})).compiled.strict
    assert not parse_policy(policy({}, annotations={STRICT: "false", "other": "x"})).compiled.strict


def test_fields_nobody_knows_are_ignored() -> None:
    spec = {"podSelector": {"future": 1}, "ingress": [{"from": [{"podSelector": {}, "future": 2}], "future": 3}]}
    assert parse_policy(policy(spec)).compiled.ingress == ingress({"from": [{"podSelector": {}}]})


def expression(operator: Any, values: Any = None) -> dict[str, Any]:
    return {"podSelector": {"matchExpressions": [{"key": "k", "operator": operator, "values": values}]}}


def block(cidr: Any, *exceptions: Any) -> dict[str, Any]:
    return {"ingress": [{"from": [{"ipBlock": {"cidr": cidr, "except": list(exceptions)}}]}]}


def port(**entry: Any) -> dict[str, Any]:
    return {"egress": [{}, {"ports": [{"port": 1}, entry]}]}


CIDR = "spec.ingress[0].from[0].ipBlock.cidr"
EXCEPT = "spec.ingress[0].from[0].ipBlock.except[0]"
PORT = "spec.egress[1].ports[1]"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (block("10.0.0.0"), CIDR),
        (block("10.0.0.0/33"), CIDR),
        (block("10.0.0.0/255.0.0.0"), CIDR),
        (block("fe80::1%eth0/64"), CIDR),
        (block("nonsense"), CIDR),
        (block(7), CIDR),
        (block(None), CIDR),
        (block("10.0.0.0/8", "11.0.0.0/16"), EXCEPT),
        (block("10.0.0.0/8", "10.0.0.0/8"), EXCEPT),
        (block("10.0.0.0/16", "10.0.0.0/8"), EXCEPT),
        (block("10.0.0.0/8", "2001:db8::/64"), EXCEPT),
        (block("10.0.0.0/8", "x"), EXCEPT),
        (port(port=0), f"{PORT}.port"),
        (port(port=65536), f"{PORT}.port"),
        (port(port=-1), f"{PORT}.port"),
        (port(port=True), f"{PORT}.port"),
        (port(port=1.5), f"{PORT}.port"),
        (port(port="80"), f"{PORT}.port"),
        (port(port="not_a_name"), f"{PORT}.port"),
        (port(port="a-name-that-is-too-long"), f"{PORT}.port"),
        (port(port=80, endPort=79), f"{PORT}.endPort"),
        (port(port=80, endPort=65536), f"{PORT}.endPort"),
        (port(port="http", endPort=90), f"{PORT}.endPort"),
        (port(endPort=90), f"{PORT}.endPort"),
        (port(port=80, endPort="90"), f"{PORT}.endPort"),
        (port(port=80, protocol="ICMP"), f"{PORT}.protocol"),
        (port(port=80, protocol="tcp"), f"{PORT}.protocol"),
        (port(port=80, protocol=["TCP"]), f"{PORT}.protocol"),
        (expression("Like"), "spec.podSelector.matchExpressions[0].operator"),
        (expression("In"), "spec.podSelector.matchExpressions[0].values"),
        (expression("Exists", ["v"]), "spec.podSelector.matchExpressions[0].values"),
        (expression("In", "v"), "spec.podSelector.matchExpressions[0].values"),
        ({"podSelector": labelled(a="no label value")}, "spec.podSelector.matchLabels.a"),
        ({"podSelector": {"matchLabels": {"a": 1}}}, "spec.podSelector.matchLabels[...]"),
        ({"podSelector": []}, "spec.podSelector"),
        ({"policyTypes": ["ingress"]}, "spec.policyTypes[0]"),
        ({"policyTypes": "Ingress"}, "spec.policyTypes"),
        ({"policyTypes": ["Ingress", "Egress", "Ingress"]}, "spec.policyTypes"),
        ({"ingress": {}}, "spec.ingress"),
        ({"ingress": [None]}, "spec.ingress[0]"),
        ({"ingress": [{"from": [{}]}]}, "spec.ingress[0].from[0]"),
        ({"ingress": [{"from": [{"podSelector": {}, "ipBlock": {"cidr": "::/0"}}]}]}, "spec.ingress[0].from[0]"),
        ({"policyTypes": ["Egress"], "ingress": [7]}, "spec.ingress[0]"),
        ({"ingress": [{"ports": [{"port": n} for n in range(1, 10_001)]}]}, "spec.ingress[0].ports"),
        ({"ingress": [{}] * (MAX_ENTRIES + 1)}, "spec.ingress"),
        (block("::/0", *(f"2001:db8:{n:x}::1/128" for n in range(MAX_ENTRIES))), f"{CIDR[:-5]}.except"),
    ],
)
def test_what_is_wrong_is_named_with_policy_and_field(spec: Any, field: str) -> None:
    with pytest.raises(FieldError) as error:
        parse_policy(policy(spec, name="bad", namespace="prod"))
    assert error.value.field == field
    assert error.value.msg.startswith(f"NetworkPolicy prod/bad: {field}: ")
    assert len(error.value.msg) < 300


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({}, "metadata.name"),
        ({"name": 7}, "metadata.name"),
        ({"name": "p", "namespace": 7}, "metadata.namespace"),
        ({"name": "p", "annotations": {STRICT: "perhaps"}}, f"metadata.annotations[{STRICT}]"),
        ({"name": "p", "annotations": {STRICT: True}}, f"metadata.annotations[{STRICT}]"),
        ("p", "metadata"),
    ],
)
def test_wrong_metadata_is_named_too(metadata: Any, field: str) -> None:
    with pytest.raises(FieldError) as error:
        parse_policy({"metadata": metadata, "spec": {}})
    assert error.value.field == field


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["podSelector", "ingress", "egress", "policyTypes", "from", "to", "ports", "port", "ipBlock", "cidr", "except"]


@given(
    st.recursive(
        JUNK,
        lambda inner: st.dictionaries(st.sampled_from(FIELDS), inner | st.lists(inner, max_size=2), max_size=4),
        max_leaves=12,
    )
)
def test_no_object_whatever_it_is_raises_anything_else(spec: Any) -> None:
    try:
        parse_policy({"metadata": {"name": "p"}, "spec": spec})
    except FieldError as error:
        assert error.msg.startswith("NetworkPolicy default/p: spec")


def test_a_block_with_exceptions_takes_no_more_room_than_they_do() -> None:
    """Whoever has hundreds of such policies, on every node, whether or not they select a pod there."""
    exceptions = [f"2001:db8:{number:x}::1/128" for number in range(125)]
    found = peers({"ipBlock": {"cidr": "::/0", "except": exceptions}}).blocks
    assert len(found) == len(exceptions) + 1
