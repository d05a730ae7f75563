"""What is refused of a NodeConfig, by the name of its field, and nothing else happens whatever it holds."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written import changed, full, minimal, problems_of, with_interface, with_peer

from flock.core.nodeconfig import NodeConfig, NodeConfigError, parse_node_config

PEER = "spec.bgp.peers[0]"
INTERFACE = "spec.ospf.areas[0].interfaces[0]"

REFUSED: list[tuple[str, Any, str]] = [
    ("apiVersion", "flock.fritzlab.net/v1", "must be one of flock.fritzlab.net/v1alpha1"),
    ("kind", "Node", "must be one of NodeConfig"),
    ("metadata", None, "is required"),
    ("metadata.name", "Node 1", "is no Kubernetes object name"),
    ("metadata.name", None, "is required"),
    ("metadata.annotations", {"a": 1}, "must both be strings"),
    ("spec", "none", "must be a mapping"),
    ("spec.cidr6", "2001:db8::/64", "must be a list"),
    ("spec.cidr6[0]", "2001:db8:1::1/64", "write 2001:db8:1::/64"),
    ("spec.cidr6[0]", "192.0.2.0/26", "is not IPv6"),
    ("spec.cidr6[0]", "fe80::/64", "overlaps link-local"),
    ("spec.cidr6[0]", "ff02::/64", "overlaps multicast"),
    ("spec.cidr6[0]", "::ffff:192.0.2.0/120", "overlaps IPv4-mapped"),
    ("spec.cidr6[0]", "::/0", "overlaps"),
    ("spec.cidr6[0]", "2001:db8::/127", "too small"),
    ("spec.cidr6[0]", "2001:db8::", "is no prefix"),
    ("spec.cidr6[0]", "2001:db8::%eth0/64", "is no prefix"),
    ("spec.cidr6[0]", 5, "must be a string"),
    ("spec.cidr4[0]", "2001:db8::/64", "is not IPv4"),
    ("spec.cidr4[0]", "192.0.2.1/26", "write 192.0.2.0/26"),
    ("spec.cidr4[0]", "192.0.2.0/31", "too small"),
    ("spec.cidr4[0]", "192.0.2.0/255.255.255.0", "is no prefix"),
    ("spec.cidr4[0]", "127.1.0.0/16", "overlaps loopback"),
    ("spec.cidr4[0]", "169.254.7.0/24", "overlaps link-local"),
    ("spec.cidr4[0]", "0.0.0.0/8", "overlaps"),
    ("spec.cidr4[0]", "192.0.0.0/2", "overlaps multicast"),
    ("spec.defaults.ipv6", "yes", "must be true or false"),
    ("spec.mtu", 1279, "from 1280 to 65535"),
    ("spec.mtu", 65536, "from 576 to 65535"),
    ("spec.mtu", True, "whole number"),
    ("spec.mtu", "1500", "whole number"),
    ("spec.routerID", "2001:db8::1", "is no IPv4 address"),
    ("spec.routerID", "0.0.0.0", "cannot identify"),
    ("spec.bgp", [], "must be a mapping"),
    ("spec.bgp.asn", 0, "from 1 to 4294967294"),
    ("spec.bgp.asn", 2**32, "from 1 to 4294967294"),
    ("spec.bgp.asn", 23456, "is reserved"),
    ("spec.bgp.asn", "64601", "whole number"),
    ("spec.bgp.asn", None, "is required"),
    ("spec.bgp.gracefulRestart.time", "4096s", "from 1s to 4095s"),
    ("spec.bgp.gracefulRestart.time", "1500ms", "whole seconds"),
    ("spec.bgp.gracefulRestart.enabled", 1, "true or false"),
    ("spec.bgp.peers", {}, "must be a list"),
    ("spec.bgp.peers[0]", "tor1", "must be a mapping"),
    (f"{PEER}.name", 'tor"1', "is no peer name"),
    (f"{PEER}.name", "tor}", "is no peer name"),
    (f"{PEER}.name", "", "is no peer name"),
    (f"{PEER}.address", None, "is required"),
    (f"{PEER}.address", "2001:db8:ffff::1; }", "is no IP address"),
    (f"{PEER}.address", "tor1.example", "is no IP address"),
    (f"{PEER}.address", "2001:db8:ffff::1%eth0", "only link-local addresses"),
    (f"{PEER}.address", "::ffff:192.0.2.1", "is IPv4-mapped"),
    (f"{PEER}.address", "ff02::1", "is multicast"),
    (f"{PEER}.address", "::1", "is the loopback address"),
    ("spec.bgp.peers[1].address", "fe80::1", "name its interface"),
    ("spec.bgp.peers[1].address", 'fe80::1%eth0"}', "is no interface name"),
    ("spec.bgp.peers[1].multihop", 2, "cannot be behind another router"),
    (f"{PEER}.asn", None, "is required"),
    (f"{PEER}.localAddress", "198.51.100.1", "is not of the family"),
    (f"{PEER}.localAddress", "fe80::2", "must both be link-local"),
    (f"{PEER}.localAddress", "2001:db8:ffff::1", "is the peer's address"),
    ("spec.bgp.peers[1].localAddress", "fe80::2%eth1", "is on another interface"),
    (f"{PEER}.families", [], "must not be empty"),
    (f"{PEER}.families[0]", "inet6", "must be one of ipv6, ipv4"),
    (f"{PEER}.families[1]", "ipv6", "is there twice"),
    ("spec.bgp.peers[2].families", ["ipv6"], "cannot carry ipv6"),
    (f"{PEER}.multihop", 0, "from 1 to 255"),
    (f"{PEER}.multihop", 256, "from 1 to 255"),
    (f"{PEER}.ttlSecurity", True, "excludes multihop"),
    (f"{PEER}.holdTime", "2s", "from 3s to 65535s"),
    (f"{PEER}.holdTime", "nine", "must be a duration"),
    (f"{PEER}.holdTime", 9.5, "must be a duration"),
    (f"{PEER}.holdTime", True, "must be a duration"),
    (f"{PEER}.keepaliveTime", "9s", "must be less than holdTime"),
    (f"{PEER}.passwordFile", "secrets/tor1", "is no absolute path"),
    (f"{PEER}.passwordFile", "/etc/../shadow", "must not contain .."),
    (f"{PEER}.passwordFile", "/etc/a\nb", "is no absolute path"),
    (f"{PEER}.passwordSecretRef", {"name": "bgp", "key": "tor1"}, "excludes passwordFile"),
    ("spec.bgp.peers[1].passwordSecretRef", {"name": "bgp"}, "is required"),
    ("spec.bgp.peers[1].passwordSecretRef", {"name": "bgp", "key": "a/b"}, "is no key"),
    (f"{PEER}.bfd", True, "must be a mapping"),
    (f"{PEER}.bfd.interval", "9ms", "from 10ms"),
    (f"{PEER}.bfd.interval", "61s", "to 60000ms"),
    (f"{PEER}.bfd.multiplier", 0, "from 1 to 255"),
    (f"{PEER}.communities[0]", "64601", 'must be "a:b"'),
    (f"{PEER}.communities[0]", "65536:1", 'must be "a:b"'),
    (f"{PEER}.communities[0]", "1:2:4294967296", 'must be "a:b"'),
    (f"{PEER}.communities[0]", 3876070, "quote it"),  # what YAML makes of an unquoted 64601:10
    (f"{PEER}.communities[1]", "64601:100", "is there twice"),
    (f"{PEER}.allowLocalAS", 11, "from 0 to 10"),
    (f"{PEER}.connectRetry", 0, "from 1s"),
    (f"{PEER}.import", "everything", "must be all, none, default or a list"),
    (f"{PEER}.import", [], "must be all, none, default or a list"),
    (f"{PEER}.import", ["10.0.0.1/8"], "write 10.0.0.0/8"),
    (f"{PEER}.import", ["10.0.0.0/8", "10.0.0.0/8"], "twice"),
    ("spec.bgp.peers[1].name", "tor1", "the name tor1 is there twice"),
    ("spec.bgp.peers[1].address", "2001:db8:ffff::1", "the address 2001:db8:ffff::1 is there twice"),
    ("spec.bgp.peers[2].address", "192.0.2.1", "lies inside spec.cidr4[0], 192.0.2.0/26"),
    (f"{PEER}.maxPrefixes", 0, "whole number from 1 to 10000000"),
    ("spec.limits.claimsPerNamespace", -1, "whole number from 0 to 65536"),
    ("spec.limits.claimsPerNamespace", "many", "whole number"),
    ("spec.limits.poolPercentPerNamespace", 101, "whole number from 1 to 100"),
    ("spec.limits.poolPercentPerNamespace", 0, "whole number from 1 to 100"),
    ("spec.limits.claims", 1, "there is no such field"),
    ("spec.ospf.areas", None, "is required"),
    ("spec.ospf.areas[0].id", None, "is required"),
    ("spec.ospf.areas[0].id", "backbone", "is no IP address"),
    ("spec.ospf.areas[0].id", 2**32, "whole number"),
    ("spec.ospf.areas[1].id", "0", "the area 0.0.0.0 is there twice"),
    ("spec.ospf.areas[0].interfaces[1].name", "eth0", "the interface eth0 is there twice"),
    (f"{INTERFACE}.name", "eth*", "is no interface name"),
    (f"{INTERFACE}.name", "a-name-too-long-", "is no interface name"),
    (f"{INTERFACE}.cost", 0, "from 1 to 65535"),
    (f"{INTERFACE}.type", "nbma", "must be one of broadcast, ptp"),
    (f"{INTERFACE}.deadInterval", 10, "must be more than helloInterval"),
    (f"{INTERFACE}.authentication", {"keyID": 1}, "is required, or passwordSecretRef"),
    (f"{INTERFACE}.authentication.keyID", 256, "from 1 to 255"),
    (f"{INTERFACE}.authentication.algorithm", "md4", "must be one of md5"),
    (f"{INTERFACE}.authentication.algorithm", "md5", "knows no md5"),
    ("spec.anycast.withdrawOnCordon", "true", "must be true or false"),
    ("spec.anycast.communities[0]", "x:y", 'must be "a:b"'),
    ("spec.anycast.allowed", {}, "must be a list"),
    ("spec.anycast.allowed[0].prefixes", None, "is required"),
    ("spec.anycast.allowed[0].prefixes[0]", "2001:db8:53::1/64", "write 2001:db8:53::/64"),
    ("spec.anycast.allowed[0].prefixes[0]", "224.0.0.0/8", "is multicast"),
    ("spec.anycast.allowed[0].prefixes[0]", "240.0.0.0/4", "is reserved for future use"),
    ("spec.anycast.allowed[0].prefixes[0]", "::ffff:192.0.2.0/120", "is IPv4-mapped"),
    ("spec.addresses.allowed", [{}], "is required"),
    ("spec.anycast.allowed[0].namespaceSelector", "all", "must be a mapping"),
    ("spec.anycast.allowed[0].namespaceSelector.matchLabels", {"a": True}, "must both be strings"),
    ("spec.anycast.allowed[0].namespaceSelector.matchLabels", {"a b": "c"}, "is no label key"),
    (
        "spec.anycast.allowed[0].namespaceSelector.matchExpressions",
        [{"key": "a", "operator": "in", "values": ["b"]}],
        "must be one of In, NotIn",
    ),
    (
        "spec.anycast.allowed[0].namespaceSelector.matchExpressions",
        [{"key": "a", "operator": "In"}],
        "needs at least one",
    ),
]


@pytest.mark.parametrize(("path", "value", "problem"), REFUSED, ids=[f"{p}={v!r}" for p, v, _ in REFUSED])
def test_a_wrong_value_is_refused_by_the_name_of_its_field(path: str, value: Any, problem: str) -> None:
    found = problems_of(changed(path, value))
    assert len(found) == 1, found
    field, text = found[0]
    assert problem in text
    # The field, something inside the value put there, or the mapping or list whose parts do not fit together.
    assert field.startswith(path) or path.startswith(field) or field.rpartition(".")[0] == path.rpartition(".")[0]


@pytest.mark.parametrize(
    ("path", "suggestion"),
    [
        ("spec.cdir6", "did you mean cidr6?"),
        ("spec.routerId", "did you mean routerID?"),
        ("spec.bgp.peers[0].holdtime", "did you mean holdTime?"),
        ("spec.bgp.peers[0].bfd.intervall", "did you mean interval?"),
        ("spec.anycast.allowed[0].namespaceSelector.matchlabels", "did you mean matchLabels?"),
        ("specs", "did you mean spec?"),
        ("spec.zzz", "there is no such field"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest_known_one(path: str, suggestion: str) -> None:
    [(field, problem)] = problems_of(changed(path, 1))
    assert field == path and problem.endswith(suggestion)


def test_all_problems_are_reported_at_once() -> None:
    obj = with_peer(asn=0, holdTime="1s", bogus=1)
    obj["spec"]["mtu"] = 1
    with pytest.raises(NodeConfigError) as caught:
        parse_node_config(obj)
    fields = {problem.field for problem in caught.value.problems}
    assert fields == {"spec.mtu", f"{PEER}.asn", f"{PEER}.holdTime", f"{PEER}.bogus"}
    assert all(field in caught.value.msg for field in fields)


def test_aggregates_must_not_repeat_or_overlap() -> None:
    assert problems_of(minimal(cidr6=["2001:db8::/48", "2001:db8:0:1::/64"])) == [
        ("spec.cidr6", "2001:db8::/48 and 2001:db8:0:1::/64 overlap")
    ]
    assert problems_of(minimal(cidr4=["192.0.2.0/26", "192.0.2.0/26"])) == [
        ("spec.cidr4[1]", "192.0.2.0/26 is there twice")
    ]


def test_two_spellings_of_one_prefix_are_one_prefix() -> None:
    assert problems_of(minimal(cidr6=["2001:db8::/64", "2001:0DB8:0:0::/64"]))[0][0] == "spec.cidr6[1]"


def test_a_node_without_ipv6_may_have_a_small_mtu() -> None:
    assert parse_node_config(minimal(cidr6=[], mtu=576)).mtu == 576


def test_md5_is_fine_where_ospf_carries_ipv4_only() -> None:
    authentication = {"algorithm": "md5", "passwordFile": "/etc/flock/secrets/ospf"}
    obj = with_interface(authentication=authentication)
    obj["spec"]["ospf"]["families"] = ["ipv4"]
    assert parse_node_config(obj).ospf is not None


# --- robustness ---------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


def paths_in(value: Any, at: str = "") -> list[str]:
    inner: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        inner = [(f"{at}.{key}" if at else key, item) for key, item in value.items() if "/" not in key]
    elif isinstance(value, list):
        inner = [(f"{at}[{number}]", item) for number, item in enumerate(value)]
    return [path for key, item in inner for path in (key, *paths_in(item, key))]


def parsed_or_refused(obj: Any) -> NodeConfig | None:
    before = copy.deepcopy(obj)
    try:
        return parse_node_config(obj)
    except NodeConfigError as error:
        assert error.problems and "\n" not in error.msg
        return None
    finally:
        assert repr(obj) == repr(before)


@given(json_values)
def test_arbitrary_json_is_parsed_or_refused(obj: Any) -> None:
    assert parsed_or_refused(obj) is None


@given(st.sampled_from(paths_in(full())), json_values)
def test_arbitrary_json_in_any_place_is_parsed_or_refused(path: str, value: Any) -> None:
    parsed_or_refused(changed(path, value))


@given(st.dictionaries(st.sampled_from(list(full()["spec"])) | st.text(max_size=8), json_values))
def test_arbitrary_specs_are_parsed_or_refused(spec: Any) -> None:
    parsed_or_refused({**minimal(), "spec": spec})
