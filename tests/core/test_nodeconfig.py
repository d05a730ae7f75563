"""What an operator writes becomes typed values, with defaults for what is left out."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_network
from typing import Any

import pytest
from written import full, minimal, with_peer

from flock.core.nodeconfig import parse_node_config
from flock.core.nodeconfig.shape import BFD, GracefulRestart, SecretRef

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
    assert (tor1.max_prefixes, config.anycast.withdraw_on_cordon) == (10_000, True)
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


@pytest.mark.parametrize(
    ("given", "seconds"), [(9, 9), (9.0, 9), ("9", 9), ("9s", 9), ("2m", 120), ("3000ms", 3), ("1h", 3600)]
)
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
