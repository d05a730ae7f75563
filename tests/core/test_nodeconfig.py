import copy
import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_network
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flock.core.nodeconfig import (
    BFD,
    GracefulRestart,
    NodeConfig,
    NodeConfigError,
    SecretRef,
    parse_node_config,
)

FULL = """
apiVersion: flock.fritzlab.net/v1alpha1
kind: NodeConfig
metadata:
  name: node1
  uid: 6f2c
  annotations: {flock.fritzlab.net/ip-algo: "namespace,app,image"}
spec:
  cidr6: ["2001:db8:1::/64"]
  cidr4: ["192.0.2.0/26"]
  defaults: {ipv6: true, ipv4: false}
  mtu: 1500
  routerID: 198.51.100.11
  bgp:
    asn: 64601
    gracefulRestart: {enabled: true, time: 2m}
    peers:
    - name: tor1
      address: 2001:db8:ffff::1
      asn: 64600
      localAddress: 2001:db8:ffff::11
      families: [ipv6, ipv4]
      multihop: 2
      holdTime: 9s
      keepaliveTime: 3s
      passwordFile: /etc/flock/secrets/tor1
      bfd: {enabled: true, interval: 100ms, multiplier: 3}
      communities: ["64601:100", "64601:1:2"]
      allowLocalAS: 1
      connectRetry: 5s
      import: default
    - {address: fe80::1%eth0, asn: 4200000001}
    - {address: 203.0.113.1, asn: 64600, import: ["10.0.0.0/8"]}
  ospf:
    areas:
    - id: 0.0.0.0
      interfaces:
      - name: eth0
        cost: 10
        authentication: {keyID: 7, passwordSecretRef: {name: ospf, key: eth0}}
        bfd: {}
      - {name: eth1}
    - id: 51
  anycast:
    withdrawOnCordon: true
    communities: ["64601:200"]
    allowed:
    - prefixes: ["2001:db8:53::/64", "198.51.100.53/32"]
      namespaceSelector: {matchLabels: {anycast: "yes"}}
    - {prefixes: ["2001:db8:54::/64"]}
  addresses:
    allowed: []
  limits: {claimsPerNamespace: 512, poolPercentPerNamespace: 50}
"""


def full() -> dict[str, Any]:
    return yaml.safe_load(FULL)


def minimal(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "flock.fritzlab.net/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {"name": "node1"},
        "spec": {"cidr6": ["2001:db8:1::/64"], "cidr4": ["192.0.2.0/26"], **spec},
    }


def with_peer(**fields: Any) -> dict[str, Any]:
    return minimal(bgp={"asn": 64601, "peers": [{"address": "2001:db8:ffff::1", "asn": 64600, **fields}]})


def with_interface(**fields: Any) -> dict[str, Any]:
    return minimal(ospf={"areas": [{"id": 0, "interfaces": [{"name": "eth0", **fields}]}]})


def problems_of(obj: Any) -> list[tuple[str, str]]:
    with pytest.raises(NodeConfigError) as caught:
        parse_node_config(obj)
    return [(problem.field, problem.problem) for problem in caught.value.problems]


def changed(path: str, value: Any) -> dict[str, Any]:
    """The full example with one field replaced; `path` is as in an error message."""
    obj = full()
    *way, last = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", path)]
    place: Any = obj
    for step in way:
        place = place[step]
    place[last] = value
    return obj


# --- what is accepted ---------------------------------------------------------------------------------------


def test_the_design_s_example_becomes_typed_values() -> None:
    config = parse_node_config(full())
    assert config.name == "node1"
    assert config.annotations == {"flock.fritzlab.net/ip-algo": "namespace,app,image"}
    assert config.cidr6 == (IPv6Network("2001:db8:1::/64"),)
    assert config.aggregates == (ip_network("2001:db8:1::/64"), ip_network("192.0.2.0/26"))
    assert config.mtu == 1500
    assert config.router_id == IPv4Address("198.51.100.11")
    assert config.bgp is not None and config.ospf is not None
    assert config.bgp.graceful_restart == GracefulRestart(enabled=True, time=120)
    tor1, linklocal, v4 = config.bgp.peers
    assert tor1.local_address == IPv6Address("2001:db8:ffff::11")
    assert (tor1.multihop, tor1.hold_time, tor1.keepalive_time, tor1.connect_retry) == (2, 9, 3, 5)
    assert tor1.bfd == BFD(enabled=True, interval=100, multiplier=3)
    assert tor1.communities == ((64601, 100), (64601, 1, 2))
    assert tor1.families == ("ipv6", "ipv4")
    assert (linklocal.zone, linklocal.families, linklocal.import_) == ("eth0", ("ipv6",), "default")
    assert (v4.families, v4.import_) == (("ipv4",), (ip_network("10.0.0.0/8"),))
    assert [area.id for area in config.ospf.areas] == [IPv4Address("0.0.0.0"), IPv4Address("0.0.0.51")]
    assert config.ospf.areas[0].interfaces[0].bfd == BFD()
    assert (config.limits.claims_per_namespace, config.limits.pool_percent_per_namespace) == (512, 50)
    assert (tor1.import_limit, config.anycast.withdraw_on_cordon) == (10_000, True)
    assert config.password_sources == {"/etc/flock/secrets/tor1", SecretRef(name="ospf", key="eth0")}


def test_what_is_left_out_gets_its_default() -> None:
    config = parse_node_config(with_peer())
    assert (config.mtu, config.router_id, config.ospf, config.annotations) == (None, None, None, {})
    assert not config.anycast.withdraw_on_cordon and config.addresses.allowed == ()
    assert (config.limits.claims_per_namespace, config.limits.pool_percent_per_namespace) == (256, 25)
    assert config.bgp is not None and config.bgp.graceful_restart == GracefulRestart(enabled=True, time=120)
    peer = config.bgp.peers[0]
    assert peer.name == "2001_db8_ffff__1"
    assert (peer.hold_time, peer.keepalive_time, peer.connect_retry, peer.import_) == (90, 30, 5, "default")
    assert not peer.bfd.enabled and peer.password is None
    assert config.password_sources == frozenset()


def test_null_is_the_same_as_absent() -> None:
    assert parse_node_config(minimal(bgp=None, mtu=None, anycast=None)) == parse_node_config(minimal())


def test_a_node_config_without_any_cidr_is_valid_since_the_node_may_bring_its_own() -> None:
    obj = minimal()
    obj["spec"] = {}
    assert parse_node_config(obj).aggregates == ()


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, (True, True)),
        ({"defaults": {"ipv4": False}}, (True, False)),
        ({"defaults": {"ipv6": False}}, (False, True)),
        ({"cidr4": []}, (True, False)),
        ({"cidr6": [], "defaults": {"ipv6": True}}, (False, True)),
    ],
)
def test_a_family_is_wanted_unless_switched_off_or_without_cidr(spec: Any, wanted: tuple[bool, bool]) -> None:
    config = parse_node_config(minimal(**spec))
    assert (config.wants_ipv6, config.wants_ipv4) == wanted


@pytest.mark.parametrize(("given", "seconds"), [(9, 9), ("9", 9), ("9s", 9), ("2m", 120), ("3000ms", 3), ("1h", 3600)])
def test_durations_are_read_in_the_usual_spellings(given: Any, seconds: int) -> None:
    bgp = parse_node_config(with_peer(holdTime=given)).bgp
    assert bgp is not None and (bgp.peers[0].hold_time, bgp.peers[0].keepalive_time) == (seconds, seconds // 3)


def test_ospf_serves_the_families_that_have_a_cidr() -> None:
    both, one, chosen = (
        parse_node_config(minimal(ospf={"areas": [{"id": 0}], **more}, **spec)).ospf
        for spec, more in (({}, {}), ({"cidr4": []}, {}), ({}, {"families": ["ipv4"]}))
    )
    assert both and both.families == ("ipv6", "ipv4")
    assert one and one.families == ("ipv6",)
    assert chosen and chosen.families == ("ipv4",)


# --- what is refused ----------------------------------------------------------------------------------------

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
    ("spec.mtu", 65536, "from 1280 to 65535"),
    ("spec.mtu", True, "whole number"),
    ("spec.mtu", "1500", "whole number"),
    ("spec.routerID", "2001:db8::1", "is no IPv4 address"),
    ("spec.routerID", "0.0.0.0", "cannot identify"),
    ("spec.bgp", [], "must be a mapping"),
    ("spec.bgp.asn", 0, "from 1 to 4294967295"),
    ("spec.bgp.asn", 2**32, "from 1 to 4294967295"),
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
    (f"{PEER}.families[0]", "inet6", "must be ipv6 or ipv4"),
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
    ("spec.bgp.peers[2].address", "192.0.2.1", "inside this node's own aggregates"),
    (f"{PEER}.importLimit", 0, "whole number from 1 to 10000000"),
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
