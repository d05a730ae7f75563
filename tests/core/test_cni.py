"""What a runtime hands over, and what it gets back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.core.cni import VERSIONS, Attachment, NetConf, parse_net_conf, render_error, render_result, version_of
from flock.core.errors import Code, FieldError, FlockError
from flock.core.model import Allocation

NETNS = "/run/netns/x"


def conf(**keys: Any) -> bytes:
    return json.dumps({"cniVersion": "1.0.0", "name": "flock", "type": "flock", **keys}).encode()


def allocation(**fields: Any) -> Allocation:
    given = {
        "container_id": "c1",
        "namespace": "shop",
        "pod_name": "web",
        "owner_uid": "u",
        "ip6": "2001:db8:1::5",
        "ip4": "192.0.2.5",
        "state": "committed",
        "allocated_at": "2024-01-01T00:00:00Z",
        "ifname": "eth0",
        "host_interface": "flock01234567",
        "mac": "0a:01:02:03:04:05",
        "mtu": 1450,
    }
    return Allocation(**{**given, **fields})


def result(version: str = "1.0.0", **fields: Any) -> dict[str, Any]:
    return render_result(allocation(**fields), version=version, netns=NETNS, dns=None)


# --- the network configuration ---


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_we_know_is_read(version: str) -> None:
    assert parse_net_conf(conf(cniVersion=version)).cni_version == version


@pytest.mark.parametrize("version", ["", "0.3.1", "2.0.0", "1.0", "1.0.0 "])
def test_another_version_is_refused_with_the_versions_we_know(version: str) -> None:
    with pytest.raises(FlockError) as caught:
        parse_net_conf(conf(cniVersion=version))
    assert caught.value.code == Code.INCOMPATIBLE_VERSION
    assert all(known in caught.value.details for known in ("0.4.0", "1.0.0", "1.1.0"))


def test_a_configuration_without_a_version_is_refused() -> None:
    with pytest.raises(FlockError) as caught:
        parse_net_conf(b'{"name": "flock"}')
    assert caught.value.code == Code.INCOMPATIBLE_VERSION


@pytest.mark.parametrize("name", ["", "-a", ".", "a/b", "a b", "a\n", "\u00e4"])
def test_a_networks_name_has_the_specifications_form(name: str) -> None:
    with pytest.raises(FieldError, match=r"^name: ") as failed:
        parse_net_conf(conf(name=name))
    assert failed.value.code == 7
    assert parse_net_conf(conf(name="A_b.c-9")).name == "A_b.c-9"


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"cniVersion": "\\ud800"}', b'{"x":' + b"[" * 100_000])
def test_what_is_not_json_is_a_decoding_failure(data: bytes) -> None:
    with pytest.raises(FlockError) as caught:
        parse_net_conf(data)
    assert caught.value.code == Code.DECODING_FAILURE


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"cniVersion": 1}, "cniVersion"),
        ({"name": []}, "name"),
        ({"dns": "x"}, "dns"),
        ({"runtimeConfig": []}, "runtimeConfig"),
        ({"prevResult": {"ips": [{"address": 5}]}}, "prevResult.ips[0].address"),
        ({"prevResult": {"interfaces": {}}}, "prevResult.interfaces"),
        ({"cni.dev/valid-attachments": [{"ifname": "eth0"}]}, "cni.dev/valid-attachments"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(keys: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as caught:
        parse_net_conf(conf(**keys))
    assert caught.value.code == Code.INVALID_CONFIG
    assert field in caught.value.msg


def test_keys_of_others_are_left_alone() -> None:
    parsed = parse_net_conf(conf(ipam={"type": "x"}, capabilities=5, socket="/x", args=None))
    assert parsed == NetConf(cni_version="1.0.0", name="flock")


def test_pod_annotations_come_by_the_capability() -> None:
    keys = {"io.kubernetes.cri.pod-annotations": {"a": "b"}, "portMappings": [{"hostPort": 1}]}
    assert parse_net_conf(conf(runtimeConfig=keys)).pod_annotations == {"a": "b"}


@pytest.mark.parametrize("keys", [{}, {"runtimeConfig": {}}, {"runtimeConfig": None}])
def test_without_the_capability_there_are_no_pod_annotations(keys: dict[str, Any]) -> None:
    assert parse_net_conf(conf(**keys)).pod_annotations is None


def test_no_list_of_valid_attachments_is_told_from_an_empty_one() -> None:
    assert parse_net_conf(conf()).valid_attachments is None
    assert parse_net_conf(conf(**{"cni.dev/valid-attachments": []})).valid_attachments == ()
    listed = [{"containerID": "a", "ifname": "eth0"}]
    assert parse_net_conf(conf(**{"cni.dev/valid-attachments": listed})).valid_attachments == (Attachment("a", "eth0"),)


def test_our_own_result_can_be_read_back_as_prev_result() -> None:
    previous = parse_net_conf(conf(prevResult=result())).prev_result
    assert previous is not None
    assert [x.sandbox for x in previous.interfaces or ()] == ["", NETNS]
    assert [x.address for x in previous.ips or ()] == ["2001:db8:1::5/128", "192.0.2.5/32"]


@given(
    st.binary(max_size=200) | st.from_regex(rb'\{"(cniVersion|prevResult|dns)": ?[\[{"0-9a-z:,}\]]*', fullmatch=True)
)
def test_no_input_does_more_than_fail_cleanly(data: bytes) -> None:
    try:
        parse_net_conf(data)
    except FlockError as error:
        assert error.msg
    assert version_of(data) in VERSIONS


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (b'{"cniVersion": "0.4.0", "name": 5}', "0.4.0"),
        (b'{"cniVersion": "9.9.9"}', VERSIONS[-1]),
        (b'{"cniVersion": []}', VERSIONS[-1]),
        (b"[]", VERSIONS[-1]),
        (b"garbage", VERSIONS[-1]),
        (b'{"x":' + b"[" * 100_000, VERSIONS[-1]),
    ],
)
def test_errors_are_answered_in_the_version_asked_for_if_there_is_one(data: bytes, version: str) -> None:
    assert version_of(data) == version


# --- the result ---


def test_the_result_lists_the_host_side_then_the_pod_side_with_its_namespace() -> None:
    host, pod = result()["interfaces"]
    assert host["name"] == "flock01234567"
    assert "sandbox" not in host
    assert pod == {"name": "eth0", "mac": "0a:01:02:03:04:05", "sandbox": NETNS}


def test_both_families_have_a_full_length_address_a_gateway_and_a_default_route() -> None:
    shown = result()
    assert shown["ips"] == [
        {"address": "2001:db8:1::5/128", "gateway": "fe80::1", "interface": 1},
        {"address": "192.0.2.5/32", "gateway": "169.254.1.1", "interface": 1},
    ]
    assert shown["routes"] == [{"dst": "::/0", "gw": "fe80::1"}, {"dst": "0.0.0.0/0", "gw": "169.254.1.1"}]
    assert shown["cniVersion"] == "1.0.0"
    assert shown["dns"] == {}


@pytest.mark.parametrize(
    ("absent", "address", "route"), [("ip4", "2001:db8:1::5/128", "::/0"), ("ip6", "192.0.2.5/32", "0.0.0.0/0")]
)
def test_a_single_family_has_no_trace_of_the_other(absent: str, address: str, route: str) -> None:
    shown = result(**{absent: ""})
    assert [x["address"] for x in shown["ips"]] == [address]
    assert [x["dst"] for x in shown["routes"]] == [route]


def test_primaries_come_first_and_once() -> None:
    shown = result(ip6="2001:db8:9::9", addresses=("203.0.113.7", "2001:db8:9::9", "2001:db8:9::a"))
    assert [x["address"] for x in shown["ips"]] == [
        "2001:db8:9::9/128",
        "192.0.2.5/32",
        "203.0.113.7/32",
        "2001:db8:9::a/128",
    ]
    assert ["gateway" in x for x in shown["ips"]] == [True, True, False, False]


def test_anycast_addresses_are_not_addresses_of_the_interface() -> None:
    assert len(result(anycast=("2001:db8:53::1",))["ips"]) == 2


def test_version_0_4_0_names_each_address_s_family_and_later_ones_do_not() -> None:
    assert [x["version"] for x in result("0.4.0")["ips"]] == ["6", "4"]
    assert not any("version" in x for version in ("1.0.0", "1.1.0") for x in result(version)["ips"])


def test_the_mtu_is_told_only_where_the_specification_has_it() -> None:
    assert [x.get("mtu") for x in result("1.1.0")["interfaces"]] == [1450, 1450]
    assert not any("mtu" in x for version in ("0.4.0", "1.0.0") for x in result(version)["interfaces"])


def test_hardware_addresses_of_a_pod_the_original_set_up_are_not_invented() -> None:
    assert not any("mac" in x for x in result(mac="", mtu=0)["interfaces"])


def test_dns_is_handed_through() -> None:
    shown = render_result(allocation(), version="1.0.0", netns=NETNS, dns={"nameservers": ["192.0.2.53"]})
    assert shown["dns"] == {"nameservers": ["192.0.2.53"]}


def test_an_error_carries_code_message_details_and_version() -> None:
    error = FieldError("spec.x", "is wrong", details="do this", code=Code.NOT_GRANTED)
    assert render_error(error, version="0.4.0") == {
        "cniVersion": "0.4.0",
        "code": 102,
        "msg": "spec.x: is wrong",
        "details": "do this",
    }
