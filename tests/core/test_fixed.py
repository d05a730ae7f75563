"""Addresses and a MAC asked for by the runtime's own means: read, and refused with the name of where they came from."""

from ipaddress import ip_address, ip_network

import pytest

from flock.core.annotations import ADDRESSES, ANYCAST, CIDR4
from flock.core.cni import parse_cni_args, parse_net_conf
from flock.core.errors import AnnotationError, Code, FieldError
from flock.core.fixed import Fixed, parse_fixed
from flock.core.podrequest import PodRequest, parse_annotations


def fixed(*ips: str, mac: str = "", args_ip: str = "", args_mac: str = "") -> Fixed:
    return parse_fixed(ips=ips, mac=mac, args_ip=args_ip, args_mac=args_mac)


def request(asked: Fixed, annotations: dict[str, str] | None = None, *, ipv4: bool = True) -> PodRequest:
    return parse_annotations(
        annotations or {},
        default_ipv6=True,
        default_ipv4=ipv4,
        cidr6=(ip_network("2001:db8:1::/64"),),  # type: ignore[arg-type]
        cidr4=(ip_network("192.0.2.0/24"),),  # type: ignore[arg-type]
        fixed=asked,
    )


def test_what_podman_hands_over_is_read() -> None:
    conf = parse_net_conf(
        b'{"cniVersion": "1.0.0", "name": "flock", "runtimeConfig":'
        b' {"ips": ["192.0.2.7", "2001:db8:1::7"], "mac": "92:D0:C6:0A:29:33"}}'
    )
    asked = conf.fixed(parse_cni_args("IgnoreUnknown=1;K8S_POD_NAME=dns1"))
    assert asked.addresses == (ip_address("192.0.2.7"), ip_address("2001:db8:1::7"))
    assert asked.mac == "92:d0:c6:0a:29:33" and not asked.warnings


def test_cni_args_carry_them_too() -> None:
    conf = parse_net_conf(b'{"cniVersion": "1.0.0", "name": "flock"}')
    asked = conf.fixed(parse_cni_args("IP=192.0.2.7,2001:db8:1::7;MAC=02-00-00-00-00-01"))
    assert asked.addresses == (ip_address("192.0.2.7"), ip_address("2001:db8:1::7"))
    assert asked.mac == "02:00:00:00:00:01"


def test_what_is_ignored_is_said() -> None:
    asked = fixed("192.0.2.7/24", args_ip="192.0.2.8")
    assert asked.addresses == (ip_address("192.0.2.7"),)
    assert [w.partition(":")[0] for w in asked.warnings] == ["runtimeConfig.ips", "CNI_ARGS IP"]
    assert fixed("192.0.2.7/32", "2001:db8:1::7/128").warnings == ()


@pytest.mark.parametrize("text", ["", "x", "192.0.2.256", "fe80::1%eth0", "127.0.0.1", "ff02::1"])
def test_what_no_pod_can_have_is_refused_by_name(text: str) -> None:
    with pytest.raises(FieldError) as refused:
        fixed(text)
    assert refused.value.field == "runtimeConfig.ips" and refused.value.code == Code.INVALID_CONFIG
    if text:
        with pytest.raises(FieldError) as refused:
            fixed(args_ip=text)
        assert refused.value.field == "CNI_ARGS IP" and refused.value.code == Code.INVALID_ENVIRONMENT


@pytest.mark.parametrize(
    "text", ["x", "02:00:00:00:00", "02:00:00:00:00:0g", "01:00:5e:00:00:01", "00:00:00:00:00:00", "02:66:6c:6f:63:6b"]
)
def test_a_mac_no_pod_can_have_is_refused_by_name(text: str) -> None:
    with pytest.raises(FieldError) as refused:
        fixed(mac=text)
    assert refused.value.field == "runtimeConfig.mac"
    with pytest.raises(FieldError) as refused:
        fixed(args_mac=text)
    assert refused.value.field == "CNI_ARGS MAC"


def test_the_first_of_a_family_is_the_primary_before_those_of_the_annotation() -> None:
    wanted = request(fixed("192.0.2.7"), {ADDRESSES: "192.0.2.8, 2001:db8:1::8"})
    assert (str(wanted.primary4), str(wanted.primary6)) == ("192.0.2.7", "2001:db8:1::8")
    assert [*map(str, wanted.addresses)] == ["192.0.2.7", "192.0.2.8", "2001:db8:1::8"]


def test_errors_name_who_asked() -> None:
    with pytest.raises(FieldError) as refused:
        request(fixed("192.0.2.7"), ipv4=False)
    assert refused.value.field == "runtimeConfig.ips" and not isinstance(refused.value, AnnotationError)
    with pytest.raises(FieldError) as refused:
        request(fixed("2001:db8:1::7"), {ANYCAST: "2001:db8:1::7"})
    assert refused.value.field == "runtimeConfig.ips"
    with pytest.raises(AnnotationError) as refused:
        request(fixed("2001:db8:1::7"), {ADDRESSES: "192.0.2.7"}, ipv4=False)
    assert refused.value.field == ADDRESSES


def test_a_pool_beside_a_fixed_address_is_ignored_with_a_word() -> None:
    [warning] = request(fixed("192.0.2.7"), {CIDR4: "192.0.2.64/26"}).warnings
    assert warning.startswith(CIDR4) and "192.0.2.7" in warning
