"""What the API's text says a ClusterNetworkPolicy means, line by line, and what is decided where it is silent."""

from typing import Any

import pytest

from flock.core.annotations import STRICT
from flock.core.errors import FieldError
from flock.core.policy.cluster import ParsedClusterPolicy, parse_cluster_policy, read_cluster_policy
from flock.core.policy.compiled import DENY_ALL, NODES, GroupId, PortRange, Rule
from flock.core.policy.labels import selector_text

WEB = {"matchLabels": {"app": "web"}}
PROD = {"matchLabels": {"env": "prod"}}
ANYBODY = {"namespaces": {}}


def cluster_policy(**spec: Any) -> dict[str, Any]:
    said = {"tier": "Admin", "priority": 10, "subject": {"namespaces": {}}, **spec}
    given = {field: value for field, value in said.items() if value is not ...}
    return {"kind": "ClusterNetworkPolicy", "metadata": {"name": "guard"}, "spec": given}


def parsed(**spec: Any) -> ParsedClusterPolicy:
    return parse_cluster_policy(cluster_policy(**spec))


def egress(*to: Any, action: str = "Deny", **rule: Any) -> Rule:
    (found,) = parsed(egress=[{"action": action, "to": list(to), **rule}]).compiled.egress or ()
    return found


def protocols(*entries: Any) -> Rule:
    return egress(ANYBODY, protocols=list(entries))


def test_a_policy_has_its_tier_priority_and_rules_in_order() -> None:
    rules = [{"name": n, "action": a, "from": [ANYBODY]} for n, a in (("one", "Pass"), ("two", "Accept"))]
    compiled = parsed(tier="Baseline", priority=0, ingress=rules).compiled
    assert (compiled.key, compiled.tier, compiled.priority) == (("", "guard"), "Baseline", 0)
    assert [(rule.name, rule.action) for rule in compiled.ingress or ()] == [("one", "Pass"), ("two", "Accept")]
    assert compiled.egress is None, "nothing is said there, so nothing is decided"


@pytest.mark.parametrize(
    ("subject", "namespaces", "pods"),
    [
        ({"namespaces": PROD}, "env=prod", ""),
        ({"namespaces": {}}, "", ""),
        ({"pods": {"podSelector": WEB}}, "", "app=web"),
        ({"pods": {"podSelector": WEB, "namespaceSelector": PROD}}, "env=prod", "app=web"),
    ],
)
def test_a_subject_is_all_pods_of_namespaces_or_some_of_them(subject: Any, namespaces: str, pods: str) -> None:
    found = parsed(subject=subject).subject
    assert found is not None and found.namespaces is not None
    assert (selector_text(found.namespaces), selector_text(found.pods)) == (namespaces, pods)


@pytest.mark.parametrize(
    ("peer", "group"),
    [
        ({"namespaces": PROD}, GroupId("", "env=prod", "")),
        ({"pods": {"podSelector": WEB}}, GroupId("", "", "app=web")),
        ({"pods": {"podSelector": WEB, "namespaceSelector": PROD}}, GroupId("", "env=prod", "app=web")),
        ({"nodes": WEB}, GroupId(NODES, "", "app=web")),
        ({"nodes": {}}, GroupId(NODES, "", "")),
    ],
)
def test_peers_are_pods_wherever_they_are_or_nodes(peer: Any, group: GroupId) -> None:
    policy = parsed(egress=[{"action": "Accept", "to": [peer]}])
    assert (policy.compiled.egress or ())[0].peers.groups == (group,)
    assert set(policy.groups) == {group}


def test_who_denies_suspects_pods_whose_labels_are_not_known() -> None:
    groups = [egress(ANYBODY, action=action).peers.groups for action in ("Accept", "Deny", "Pass")]
    assert [group.suspects for (group,) in groups] == [False, True, False]


def test_networks_lose_their_host_bits_and_are_united() -> None:
    rule = egress({"networks": ["192.0.2.77/25", "192.0.2.128/25"]}, {"networks": ["2001:db8::1/32"]})
    assert [str(block) for block in rule.peers.blocks] == ["192.0.2.0/24", "2001:db8::/32"]


def test_no_protocols_mean_every_protocol() -> None:
    assert egress(ANYBODY).any_port and not protocols({"tcp": {}}).any_port


@pytest.mark.parametrize(
    ("entry", "ports"),
    [
        ({"tcp": {"destinationPort": {"number": 80}}}, PortRange("TCP", 80, 80)),
        ({"udp": {"destinationPort": {"range": {"start": 53, "end": 54}}}}, PortRange("UDP", 53, 54)),
        ({"sctp": {}}, PortRange("SCTP", 0, 65535)),
    ],
)
def test_a_protocol_is_a_number_a_range_or_all_of_it(entry: Any, ports: PortRange) -> None:
    assert protocols(entry).ports == (ports,)


def test_a_port_name_means_each_protocol_it_is_declared_for() -> None:
    rule = protocols({"destinationNamedPort": "dns"})
    assert {(port.name, port.protocol) for port in rule.named} == {("dns", "TCP"), ("dns", "UDP"), ("dns", "SCTP")}


@pytest.mark.parametrize("action", ["Accept", "Deny", "Pass"])
@pytest.mark.parametrize(
    "unknown",
    [
        {"to": [ANYBODY, {"domainNames": ["example.com"]}]},
        {"to": [{}]},
        {"to": [ANYBODY], "protocols": [{"quic": {}}]},
        {"to": [ANYBODY], "ports": [{"portNumber": {"protocol": "TCP", "port": 80}}]},
    ],
)
def test_a_rule_with_what_we_do_not_know_fails_closed_and_the_rest_stays(action: str, unknown: Any) -> None:
    last = {"action": "Accept", "to": [ANYBODY]}
    policy = parsed(egress=[{"action": action, "name": "odd", **unknown}, last])
    odd, kept = policy.compiled.egress or ()
    if action == "Accept":
        assert odd.action == "Accept" and not (odd.peers.anywhere or odd.peers.groups or odd.peers.blocks)
    else:
        assert (odd.action, odd.peers.anywhere, odd.any_port, odd.name) == ("Deny", True, True, "odd")
    assert kept.action == "Accept" and kept.peers.groups
    (limit,) = policy.limits
    assert limit.startswith("spec.egress[0].") and not policy.compiled.closed


def test_networks_and_nodes_are_no_peers_of_ingress() -> None:
    rules = [{"action": "Deny", "from": [peer]} for peer in ({"networks": ["192.0.2.0/24"]}, {"nodes": {}})]
    policy = parsed(ingress=rules)
    assert policy.compiled.ingress == (DENY_ALL, DENY_ALL) and len(policy.limits) == 2


def test_strict_is_an_annotation_as_for_network_policies() -> None:
    obj = cluster_policy()
    obj["metadata"]["annotations"] = {STRICT: "true"}
    assert parse_cluster_policy(obj).compiled.strict and not parsed().compiled.strict


RULE = {"action": "Deny", "to": [ANYBODY]}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"tier": "admin"}, "spec.tier"),
        ({"tier": ...}, "spec.tier"),
        ({"priority": ...}, "spec.priority"),
        ({"priority": 1001}, "spec.priority"),
        ({"priority": -1}, "spec.priority"),
        ({"priority": True}, "spec.priority"),
        ({"priority": "1"}, "spec.priority"),
        ({"subject": ...}, "spec.subject"),
        ({"subject": {}}, "spec.subject"),
        ({"subject": {"namespaces": {}, "pods": {"podSelector": {}}}}, "spec.subject"),
        ({"subject": {"pods": {}}}, "spec.subject.pods.podSelector"),
        ({"subject": {"namespaces": {"matchLabels": {"a": 1}}}}, "spec.subject.namespaces"),
        ({"egress": [RULE] * 26}, "spec.egress"),
        ({"egress": [{**RULE, "action": "Allow"}]}, "spec.egress[0].action"),
        ({"egress": [{**RULE, "name": "n" * 101}]}, "spec.egress[0].name"),
        ({"egress": [{**RULE, "to": []}]}, "spec.egress[0].to"),
        ({"egress": [{"action": "Deny"}]}, "spec.egress[0].to"),
        ({"egress": [{**RULE, "to": [ANYBODY] * 26}]}, "spec.egress[0].to"),
        ({"egress": [{**RULE, "to": [{**ANYBODY, "nodes": {}}]}]}, "spec.egress[0].to[0]"),
        ({"egress": [{**RULE, "to": [{"networks": []}]}]}, "spec.egress[0].to[0].networks"),
        ({"egress": [{**RULE, "to": [{"networks": ["192.0.2.1"]}]}]}, "spec.egress[0].to[0].networks[0]"),
        (
            {"egress": [{**RULE, "to": [{"networks": ["2001:db8:1f:ffff:ffff:ffff:255.255.255.100/0"]}]}]},
            "spec.egress[0].to[0].networks[0]",
        ),
        ({"egress": [{**RULE, "protocols": []}]}, "spec.egress[0].protocols"),
        ({"egress": [{**RULE, "protocols": [{"tcp": {}, "udp": {}}]}]}, "spec.egress[0].protocols[0]"),
        (
            {"egress": [{**RULE, "protocols": [{"tcp": {"destinationPort": {"range": {"start": 5, "end": 5}}}}]}]},
            "spec.egress[0].protocols[0].tcp.destinationPort.range.end",
        ),
        (
            {"egress": [{**RULE, "protocols": [{"tcp": {"destinationPort": {"number": 0}}}]}]},
            "spec.egress[0].protocols[0].tcp.destinationPort.number",
        ),
        (
            {"egress": [{**RULE, "protocols": [{"destinationNamedPort": "80"}]}]},
            "spec.egress[0].protocols[0].destinationNamedPort",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_its_field_and_denies_what_the_subject_means(spec: Any, field: str) -> None:
    with pytest.raises(FieldError, match="ClusterNetworkPolicy guard") as caught:
        parsed(**spec)
    assert f" {field}:" in str(caught.value) or f" {field}." in str(caught.value)
    closed = read_cluster_policy(cluster_policy(**spec))
    assert field in closed.compiled.closed
    denied = [rule for rules in (closed.compiled.ingress, closed.compiled.egress) for rule in rules or ()]
    assert denied and all(rule == DENY_ALL for rule in denied)
    assert (closed.subject is None) == field.startswith("spec.subject")


def test_a_policy_that_cannot_be_read_keeps_its_place_where_that_can() -> None:
    closed = read_cluster_policy(cluster_policy(tier="Baseline", priority=7, egress=[{"action": "?"}])).compiled
    assert (closed.ingress, closed.egress) == ((DENY_ALL,), (DENY_ALL,))
    assert (closed.tier, closed.priority) == ("Baseline", 7)


@pytest.mark.parametrize("spec", [None, "cannot be read: nested too deep", [], {"tier": "Admin"}])
def test_a_policy_whose_subject_cannot_be_read_means_nobody(spec: Any) -> None:
    closed = read_cluster_policy({"metadata": {"name": "guard"}, "spec": spec})
    assert closed.subject is None and closed.compiled.closed
