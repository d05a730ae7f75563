"""Answers to "why does this pass, or not", and to "what applies to this pod"."""

from ipaddress import ip_address
from typing import Any

import msgspec
import pytest
from policy_world import HTTP, labelled, local, pod, policy

from flock.core.errors import FieldError
from flock.core.policy.explain import describe, parse_port, why
from flock.core.policy.index import PolicyIndex
from flock.core.policy.judging import Explanation, evaluate

BLOCK = {"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.128/25"]}}


@pytest.fixture
def node() -> PolicyIndex:
    """x/a and x/b are here, y/c is elsewhere; x/a lets b in on 80 and http, and goes out to a block on 443."""
    index = PolicyIndex()
    index.set_local(local("x/a", "10.0.0.1", "2001:db8::1", labels={"pod": "a"}, ports=((HTTP, 8080),)))
    index.set_local(local("x/b", "10.0.0.2", "2001:db8::2", "2001:db8:53::1", labels={"pod": "b"}))
    index.set_pod(pod("y/c", "10.0.1.3", labels={"pod": "c"}))
    index.set_pod(pod("y/pending"))
    index.set_policy(
        policy(
            {
                "podSelector": labelled(pod="a"),
                "ingress": [
                    {"from": [{"podSelector": labelled(pod="b")}], "ports": [{"port": 80}, {"port": "http"}]},
                    {"from": [BLOCK]},
                ],
                "egress": [{"to": [BLOCK], "ports": [{"port": 443}, {"port": "http"}]}],
            },
            name="web",
            annotations={"flock.fritzlab.net/strict": "true"},
        )
    )
    index.set_policy(policy({"podSelector": labelled(pod="a")}, name="deny"))
    index.commit()
    return index


def ask(node: PolicyIndex, source: str, destination: str, what: str, **more: Any) -> Explanation:
    protocol, port = parse_port(what)
    answers = why(node, source=source, destination=destination, protocol=protocol, port=port, **more)
    assert len({answer.verdict for answer in answers}) == 1
    return answers[0]


@pytest.mark.parametrize(
    ("source", "destination", "what", "verdict"),
    [
        ("x/b", "x/a", "80/TCP", "allow"),
        ("x/b", "x/a", "80", "allow"),
        ("x/b", "x/a", "8080/tcp", "allow"),  # by name
        ("x/b", "x/a", "8080/UDP", "deny"),  # the name is TCP's
        ("x/b", "x/a", "81/TCP", "deny"),
        ("x/b", "x/a", "icmp", "deny"),  # the rule has ports
        ("y/c", "x/a", "80/TCP", "deny"),
        ("2001:db8:53::1", "x/a", "80/TCP", "allow"),  # an anycast address of b
        ("192.0.2.5", "x/a", "80/TCP", "allow"),
        ("192.0.2.5", "x/a", "icmp", "allow"),  # the rule has none
        ("192.0.2.200", "x/a", "80/TCP", "deny"),  # excepted
        ("x/a", "192.0.2.5", "443/TCP", "allow"),
        ("x/a", "192.0.2.5", "8080/TCP", "deny"),  # a name means nothing behind a block
        ("x/a", "x/b", "443/TCP", "deny"),
        ("x/a", "x/a", "9/TCP", "allow"),  # itself, through a Service
        ("x/b", "y/c", "9/SCTP", "allow"),
        ("203.0.113.1", "203.0.113.2", "9/TCP", "allow"),
    ],
)
def test_the_verdict_is_the_policies(node: PolicyIndex, source: str, destination: str, what: str, verdict: str) -> None:
    assert ask(node, source, destination, what).verdict == verdict


def test_an_allowed_packet_is_told_by_policy_and_rule(node: PolicyIndex) -> None:
    answer = ask(node, "x/b", "x/a", "80/TCP")
    assert answer.egress.outcome == "not isolated"
    assert answer.ingress.isolated_by == ("x/deny", "x/web")
    assert answer.ingress.allowed_by == "x/web ingress[0] (from pods pod=b of namespace x: 80/TCP, http/TCP)"
    assert str(answer).splitlines() == [
        "allow: x/b (10.0.0.2) → x/a (10.0.0.1) 80/TCP",
        "  egress:  not isolated",
        "  ingress: allowed by x/web ingress[0] (from pods pod=b of namespace x: 80/TCP, http/TCP), "
        "isolated by x/deny, x/web",
    ]


def test_a_denied_packet_is_told_why_by_each_rule(node: PolicyIndex) -> None:
    answer = ask(node, "y/c", "x/a", "81/TCP")
    assert answer.egress.reasons == ("y/c (10.0.1.3) is on another node, which decides",)
    assert answer.ingress.reasons == (
        "x/deny: has no ingress rules",
        "x/web ingress[0]: 10.0.1.3 is not among pods pod=b of namespace x",
        "x/web ingress[1]: 10.0.1.3 is not among 192.0.2.0/25",
    )
    answer = ask(node, "x/b", "x/a", "81/TCP")
    assert "x/web ingress[0]: 81/TCP is not among 80/TCP, http/TCP" in answer.ingress.reasons
    answer = ask(node, "x/b", "x/a", "icmp")
    assert "ICMP passes only rules without ports" in answer.ingress.reasons[1]


def test_pods_with_two_families_get_an_answer_for_each(node: PolicyIndex) -> None:
    answers = why(node, source="x/b", destination="x/a", protocol="TCP", port=80)
    assert [answer.source.address for answer in answers] == ["10.0.0.2", "2001:db8::2"]


def test_a_pod_and_its_own_node_reach_each_other(node: PolicyIndex) -> None:
    here = {ip_address("192.0.2.200")}
    assert ask(node, "192.0.2.200", "x/a", "9/TCP", node_addresses=here).verdict == "allow"
    assert ask(node, "x/a", "192.0.2.200", "9/TCP", node_addresses=here).verdict == "allow"


def test_a_pod_of_unknown_labels_is_denied_with_that_reason(node: PolicyIndex) -> None:
    node.set_local(local("x/new", "10.0.0.9", labels=None))
    node.commit()
    answer = ask(node, "x/b", "x/new", "80/TCP")
    assert answer.verdict == "deny"
    assert answer.ingress.reasons == ("the labels of x/new are not known yet, so every policy of its namespace counts",)
    (described,) = describe(node, "x/new")
    assert (described.labels, described.ingress) == (None, ())
    assert "labels:  not known yet" in str(described)


def test_a_named_port_is_the_pods_that_was_reached_even_behind_a_shared_address(node: PolicyIndex) -> None:
    shared = "2001:db8:53::2"
    node.set_policy(policy({"ingress": [{"ports": [{"port": "http"}]}]}, namespace="z"))
    for name, number in (("one", 80), ("two", 8080)):
        node.set_local(local(f"z/{name}", shared, labels={}, ports=((HTTP, number),)))
    node.commit()
    for name, number in (("one", 80), ("two", 8080)):
        assert ask(node, "2001:db8::9", f"z/{name}", f"{number}/TCP").verdict == "allow"
        assert ask(node, "2001:db8::9", f"z/{name}", f"{8160 - number}/TCP").verdict == "deny"


def test_answers_can_be_written_as_json_and_read_back(node: PolicyIndex) -> None:
    answer = ask(node, "y/c", "x/a", "81/TCP")
    assert msgspec.json.decode(msgspec.json.encode(answer), type=Explanation) == answer
    again = evaluate(node.compiled, source=answer.source, destination=answer.destination, protocol="TCP", port=81)
    assert again == answer


def test_a_pod_is_described_with_its_policies_and_their_rules(node: PolicyIndex) -> None:
    (described,) = describe(node, "x/a")
    assert str(described).splitlines() == [
        "x/a on flock-x-a, 10.0.0.1, 2001:db8::1",
        "  labels:  pod=a",
        "  ingress: isolated, this passes:",
        "    x/deny: nothing",
        "    x/web (strict): from pods pod=b of namespace x: 80/TCP, http/TCP; from 192.0.2.0/25: everything",
        "  egress:  isolated, this passes:",
        "    x/web (strict): to 192.0.2.0/25: 443/TCP, http/TCP",
    ]
    (free,) = describe(node, "x/b")
    assert (free.ingress, free.egress) == (None, None)


@pytest.mark.parametrize(
    ("source", "destination", "field"),
    [
        ("x/nobody", "x/a", "source"),
        ("x/a", "y/pending", "destination"),
        ("x/a", "nonsense", "destination"),
        ("y/c", "2001:db8::1", "destination"),  # c has no IPv6
    ],
)
def test_a_question_about_nobody_is_refused(node: PolicyIndex, source: str, destination: str, field: str) -> None:
    with pytest.raises(FieldError) as error:
        ask(node, source, destination, "80/TCP")
    assert error.value.field == field


@pytest.mark.parametrize(
    "text", ["80/XYZ", "0/TCP", "65536", "http/TCP", "/TCP", "tcp", "UDP", "http", "", "/", "80/", "8" * 5000, "-1/TCP"]
)
def test_a_port_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(FieldError) as error:
        parse_port(text)
    assert error.value.field == "port"


NODE = (ip_address("192.0.2.1"), ip_address("2001:db8:ff::1"))


@pytest.mark.parametrize(
    ("destination", "what", "verdict", "told"),
    [
        ("192.0.2.1", "179/TCP", "deny", "walled off"),
        ("2001:db8:ff::1", "179/TCP", "deny", "walled off"),
        ("fe80::1", "179/TCP", "deny", "walled off"),
        ("fe80::1%eth0", "3784/UDP", "deny", "walled off"),
        ("192.0.2.1", "3785/UDP", "deny", "walled off"),
        ("192.0.2.1", "4784/UDP", "deny", "walled off"),
        ("ff02::5", "ospf", "deny", "walled off"),
        ("224.0.0.5", "OSPF", "deny", "walled off"),
        ("192.0.2.1", "179/UDP", "allow", ""),
        ("192.0.2.1", "3784/TCP", "allow", ""),
        ("192.0.2.9", "179/TCP", "allow", ""),  # of another node, or a router
        ("fe80::1", "53/UDP", "allow", ""),
        ("ff02::1", "icmpv6", "allow", ""),
        ("::ffff:192.0.2.1", "179/TCP", "deny", "walled off"),
        ("fe80::2", "80/TCP", "deny", "on its own link alone"),
        ("ff0e::1", "80/UDP", "deny", "not routed"),
        ("239.1.1.1", "80/UDP", "deny", "not routed"),
        ("127.0.0.1", "80/TCP", "allow", "does not leave"),
        ("::1", "80/TCP", "allow", "does not leave"),
    ],
)
def test_what_a_pod_sends_to_its_node_and_to_nobody_in_particular(
    node: PolicyIndex, destination: str, what: str, verdict: str, told: str
) -> None:
    answer = ask(node, "x/b", destination, what, node_addresses=NODE)
    assert answer.verdict == verdict and told in str(answer)


@pytest.mark.parametrize(
    ("source", "verdict"), [("fe80::1", "allow"), ("fe80::2", "deny"), ("127.0.0.1", "deny"), ("::1", "deny")]
)
def test_what_comes_from_such_an_address(node: PolicyIndex, source: str, verdict: str) -> None:
    assert ask(node, source, "x/a", "80/TCP", node_addresses=NODE).verdict == verdict


def test_walls_come_before_policies_and_are_about_pods_alone(node: PolicyIndex) -> None:
    assert "walled off" in str(ask(node, "x/a", "192.0.2.1", "179/TCP", node_addresses=NODE))
    assert ask(node, "203.0.113.9", "192.0.2.1", "179/TCP", node_addresses=NODE).verdict == "allow"
    assert ask(node, "192.0.2.1", "x/b", "179/TCP", node_addresses=NODE).verdict == "allow"


@pytest.mark.parametrize(
    ("source", "destination", "field", "told"),
    [
        ("ff02::1", "x/a", "source", "nobody's address"),
        ("0.0.0.0", "x/a", "source", "nobody's address"),
        ("x/a", "::", "destination", "nobody's address"),
        ("x/a", "10.0.0.0/8", "destination", "is a prefix"),
        ("a", "x/b", "source", "there is x/a"),
        ("x/a", "c", "destination", "there is y/c"),
        ("x/a", "", "destination", "neither an address nor a pod"),
        ("x/a", "/", "destination", "not known here"),
        ("x/a/b", "x/b", "source", "not known here"),
    ],
)
def test_a_question_that_cannot_be_answered_says_what_it_takes(
    node: PolicyIndex, source: str, destination: str, field: str, told: str
) -> None:
    with pytest.raises(FieldError, match=told) as error:
        ask(node, source, destination, "80/TCP")
    assert error.value.field == field


def test_labels_are_shown_in_one_line_and_a_terminal_obeys_none_of_them(node: PolicyIndex) -> None:
    """A manifest file may say anything; an API server refuses such labels."""
    node.set_local(local("x/new", "10.0.0.9", labels={"a": "\x1b[2J\n  egress:  not isolated\u202e"}))
    node.commit()
    (described,) = describe(node, "x/new")
    (line,) = [x for x in str(described).splitlines() if "labels" in x]
    assert line == "  labels:  a=\\x1b[2J\\n  egress:  not isolated\\u202e"


def test_only_pods_of_this_node_are_described(node: PolicyIndex) -> None:
    with pytest.raises(FieldError):
        describe(node, "y/c")
