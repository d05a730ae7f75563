"""Who may have which address: aggregates, grants, and what nobody gets."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from flock.core.nodeconfig import NodeConfig, Right, grants, parse_node_config, right, set_aside

YES = {"anycast": "yes"}
FOR_YES = {"namespaceSelector": {"matchLabels": YES}}


def config(*, anycast: list[Any] | None = None, addresses: list[Any] | None = None, **spec: Any) -> NodeConfig:
    peers = [{"address": "2001:db8:ffff::1", "asn": 64600}, {"address": "203.0.113.1", "asn": 64600}]
    return parse_node_config(
        {
            "apiVersion": "flock.fritzlab.net/v1alpha1",
            "kind": "NodeConfig",
            "metadata": {"name": "node1"},
            "spec": {
                "cidr6": ["2001:db8:1::/64"],
                "cidr4": ["192.0.2.0/26"],
                "bgp": {"asn": 64601, "peers": peers},
                "anycast": {"allowed": anycast or []},
                "addresses": {"allowed": addresses or []},
                **spec,
            },
        }
    )


def asked(config: NodeConfig, address: str, labels: dict[str, str], **how: Any) -> Right:
    how = {"kind": "anycast", "forbidden": (), **how}
    return right(config, address=ip_address(address), namespace_labels=labels, **how)


BEYOND = [
    {"prefixes": ["2001:db8:53::/64", "198.51.100.53/32"], **FOR_YES},
    {"prefixes": ["2001:db8:54::/64"]},
]


@pytest.mark.parametrize(
    ("address", "labels", "may"),
    [
        ("2001:db8:1::7", {}, True),  # the node's own aggregate
        ("192.0.2.7", {}, True),
        ("2001:db8:53::1", YES, True),
        ("198.51.100.53", YES, True),
        ("2001:db8:53::1", {}, False),  # the selector does not fit
        ("2001:db8:53::1", {"anycast": "no"}, False),
        ("2001:db8:54::1", {}, True),  # no selector: every namespace
        ("2001:db8:99::1", YES, False),
    ],
)
def test_an_address_is_had_of_an_aggregate_or_by_grant(address: str, labels: dict[str, str], may: bool) -> None:
    found = asked(config(anycast=BEYOND), address, labels)
    assert (not found.refusal) is may
    assert found.ungranted is not may and (may or "spec.anycast.allowed" in found.refusal)


def test_a_grant_is_told_from_what_is_free_for_the_first_comer() -> None:
    given = config(anycast=BEYOND)
    own, beyond = asked(given, "192.0.2.7", YES), asked(given, "198.51.100.53", YES)
    assert not own.granted and own.pool == ip_network("192.0.2.0/26")
    assert beyond.granted and beyond.pool is None
    assert not grants(given, kind="anycast", address=ip_address("192.0.2.7"), namespace_labels=YES)
    assert grants(given, kind="anycast", address=ip_address("198.51.100.53"), namespace_labels=YES)
    assert not grants(given, kind="addresses", address=ip_address("198.51.100.53"), namespace_labels=YES)


def test_addresses_have_their_own_list() -> None:
    found = asked(config(anycast=BEYOND), "2001:db8:54::1", YES, kind="addresses")
    assert "spec.addresses.allowed" in found.refusal


@pytest.mark.parametrize("kind", ["anycast", "addresses"])
@pytest.mark.parametrize("of", ["anycast", "addresses"])
def test_what_a_grant_names_inside_an_aggregate_is_for_those_it_selects_alone(kind: str, of: str) -> None:
    """Whatever they want it for: an address shop may announce is not another's to hold."""
    inside = [{"prefixes": ["192.0.2.48/29", "2001:db8:1::53/128"], **FOR_YES}]
    given = config(**{of: inside})  # type: ignore[arg-type]
    for address in ("192.0.2.53", "2001:db8:1::53"):
        assert asked(given, address, {}, kind=kind).ungranted
        selected = asked(given, address, YES, kind=kind)
        assert not selected.refusal and selected.granted is (kind == of) and selected.pool is None
    assert not asked(given, "192.0.2.47", {}, kind=kind).refusal


def test_one_entry_that_selects_the_namespace_is_enough() -> None:
    given = config(anycast=[{"prefixes": ["192.0.2.53/32"], **FOR_YES}], addresses=[{"prefixes": ["0.0.0.0/0"]}])
    assert not asked(given, "192.0.2.53", {}, kind="addresses").refusal
    assert not asked(given, "192.0.2.53", {}, kind="anycast").granted


@pytest.mark.parametrize("prefix", ["192.0.2.0/26", "192.0.0.0/16", "0.0.0.0/0"])
def test_a_grant_around_an_aggregate_is_for_those_it_selects_and_leaves_the_pool_its_addresses(prefix: str) -> None:
    given = config(addresses=[{"prefixes": [prefix], **FOR_YES}])
    assert asked(given, "192.0.2.7", {}).ungranted
    assert asked(given, "192.0.2.7", YES, kind="addresses") == Right(granted=True, pool=ip_network("192.0.2.0/26"))
    assert set_aside(given) == set_aside(config())


def test_pools_leave_out_what_grants_name_and_the_aggregates_own_addresses() -> None:
    inside = [{"prefixes": ["192.0.2.8/32", "192.0.2.9/32", "2001:db8:1:0:53::/80", "198.51.100.0/24"]}]
    names = ("2001:db8:1::/127", "2001:db8:1:0:53::/80", "192.0.2.0/31", "192.0.2.8/31", "192.0.2.63/32")
    assert set_aside(config(anycast=inside)) == tuple(map(ip_network, names))


@pytest.mark.parametrize("address", ["192.0.2.0", "192.0.2.1", "192.0.2.63", "2001:db8:1::", "2001:db8:1::1"])
def test_network_gateway_and_broadcast_addresses_of_an_aggregate_are_nobodys(address: str) -> None:
    for kind in ("anycast", "addresses"):
        assert "network, gateway or broadcast" in asked(config(), address, YES, kind=kind).refusal


def test_the_gateway_address_may_be_granted_the_others_not() -> None:
    given = config(anycast=[{"prefixes": ["192.0.2.0/31", "192.0.2.63/32", "2001:db8:1::/127"]}])
    refused = {
        a
        for a in ("192.0.2.0", "192.0.2.1", "192.0.2.63", "2001:db8:1::", "2001:db8:1::1")
        if asked(given, a, {}).refusal
    }
    assert refused == {"192.0.2.0", "192.0.2.63", "2001:db8:1::"}


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("fe80::5", "link-local"),
        ("fe80::5%eth0", "link-local"),
        ("169.254.1.1", "link-local"),
        ("ff02::1", "multicast"),
        ("224.0.0.5", "multicast"),
        ("::1", "loopback"),
        ("127.0.0.53", "loopback"),
        ("::", "unspecified"),
        ("0.0.0.0", "this network"),
        ("255.255.255.255", "broadcast"),
        ("::ffff:192.0.2.5", "IPv4-mapped"),
        ("2001:db8:ffff::1", "a router"),  # a peer
        ("203.0.113.1", "a router"),
        ("10.0.0.5", "10.0.0.0/24"),  # forbidden by the caller
    ],
)
def test_some_addresses_nobody_gets_whatever_is_allowed(address: str, reason: str) -> None:
    everything = config(anycast=[{"prefixes": ["0.0.0.0/0", "::/0"]}])
    found = asked(everything, address, {}, forbidden=[ip_network("10.0.0.0/24")])
    assert reason in found.refusal and not found.ungranted


@pytest.mark.parametrize(
    ("forbidden", "refused"),
    [
        ("192.0.0.0/16", False),  # an aggregate carved out of a wide LAN is still the pods'
        ("192.0.2.0/26", True),
        ("192.0.2.7/32", True),  # the node's own address inside its aggregate
    ],
)
def test_the_narrower_of_aggregate_and_lan_decides(forbidden: str, refused: bool) -> None:
    assert bool(asked(config(), "192.0.2.7", {}, forbidden=[ip_network(forbidden)]).refusal) is refused


def test_what_is_granted_to_services_inside_a_cidr_is_no_pods_to_name_unless_it_is_granted_to_pods_too() -> None:
    services = {"allowed": [{"prefixes": ["192.0.2.8/29"]}]}
    alone, both = config(services=services), config(services=services, anycast=[{"prefixes": ["192.0.2.8/29"]}])
    assert asked(alone, "192.0.2.9", {}).refusal == "192.0.2.9 is for Services, by an entry of spec.services.allowed"
    assert not asked(alone, "192.0.2.17", {}).refusal and not asked(both, "192.0.2.9", {}).refusal
    assert ip_network("192.0.2.8/29") in set_aside(alone)
    around = config(services={"allowed": [{"prefixes": ["192.0.2.0/24"]}]})
    assert not asked(around, "192.0.2.9", {}).refusal and ip_network("192.0.2.0/24") not in set_aside(around)
