"""Containers that are no pods: whose they are, and what they may ask for by their runtime's own means."""

import json
from typing import Any

import pytest
from asking import GRANTING, pod_manifest
from looking import OWN, addresses_of, assert_sound, failure, flockctl

from flock.core.naming import link_local
from harness import Node, eventually

PODMAN = "IgnoreUnknown=1;K8S_POD_NAME=dns1"  # all that podman 4 says; ctr says nothing
DENY_ALL = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "deny-all", "namespace": "default"},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
}
INVALID_ENVIRONMENT, INVALID_CONFIG, NOT_GRANTED, ADDRESS_IN_USE = 4, 7, 102, 103


@pytest.fixture
def granting(fresh: Node) -> Node:
    fresh.write("nodeconfig", GRANTING)
    fresh.start()
    return fresh


def fixed(node: Node, name: str, **asked: Any) -> Any:
    return node.pod(name, args=PODMAN, runtimeConfig=asked)


# --- whose they are -------------------------------------------------------------------------------------------------


def test_a_manifest_reaches_podmans_container(granting: Node) -> None:
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    annotations = {OWN + "addresses": "2001:db8:53::1", OWN + "anycast": "2001:db8:53::53"}
    granting.write("dns", pod_manifest("dns1", annotations=annotations) | ready)
    assert "2001:db8:53::1" in addresses_of(granting.pod("c1", args=PODMAN))
    entry = granting.allocations()["c1"]
    assert (entry["namespace"], entry["pod_name"]) == ("default", "dns1")
    eventually(lambda: [r for r in granting.routes() if r["dst"] == "2001:db8:53::53"], what="its anycast address")


@pytest.mark.parametrize("args", [PODMAN, ""])
def test_a_policy_reaches_it_and_a_runtime_that_says_nothing(node: Node, args: str) -> None:
    node.write("policies", DENY_ALL)
    addresses = addresses_of(node.pod("c1", args=args))
    client = addresses_of(node.pod("client", namespace="elsewhere", args=args))
    assert addresses and client
    assert not any(node.ping(address, inside="client") for address in addresses)
    assert all(node.ping(address, inside="c1") for address in client)


def test_who_has_no_name_at_all_goes_by_the_containers_id(node: Node) -> None:
    """As `ctr run --cni` calls: default-web is container web in containerd's namespace default."""
    node.write("web", pod_manifest("default-web", annotations={OWN + "ipv4": "false"}))
    assert len(addresses_of(node.pod("default-web", args=""))) == 1
    [row] = json.loads(flockctl(node, "pods", "-o", "json").stdout)
    assert (row["namespace"], row["pod"]) == ("default", "default-web")


def test_networks_are_for_a_namespace_each(node: Node) -> None:
    node.write("dmz", pod_manifest("dns1", annotations={OWN + "ipv4": "false"}, namespace="dmz"))
    node.namespace("c1")
    node.cni("ADD", "c1", args=PODMAN, name="dmz", namespace="dmz")
    node.pod("c2", args=PODMAN)
    entries = node.allocations()
    assert [(entries[c]["namespace"], entries[c].get("ip4", "") == "") for c in ("c1", "c2")] == [
        ("dmz", True),
        ("default", False),
    ]


def test_a_namespace_that_the_runtime_names_counts_before_the_networks(node: Node) -> None:
    node.pod("c1", args="K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0", namespace="dmz")
    assert node.allocations()["c1"]["namespace"] == "shop"


def test_an_empty_namespace_is_nobodys_and_no_policy_selects_it(node: Node) -> None:
    node.write("policies", DENY_ALL)
    node.pod("client")
    for container, args in (("c1", PODMAN), ("c2", "")):
        addresses = addresses_of(node.pod(container, args=args, namespace=""))
        assert all(node.ping(address, inside="client") for address in addresses)
        assert node.allocations()[container]["namespace"] == ""
    assert node.allocations()["c2"]["pod_name"] == ""


@pytest.mark.parametrize("namespace", ["a/b", " ", 7, None])
def test_what_is_no_namespace_is_refused_by_the_keys_name(node: Node, namespace: object) -> None:
    node.namespace("c1")
    error = failure(node, "ADD", "c1", args=PODMAN, namespace=namespace)
    assert error.code == INVALID_CONFIG and error.msg.startswith("namespace: ")


# --- what they ask for ----------------------------------------------------------------------------------------------


def test_fixed_addresses_and_a_mac_are_given(node: Node) -> None:
    result = fixed(node, "c1", ips=["192.0.2.77", "2001:db8:1::77"], mac="92:D0:C6:0A:29:33")
    assert {*addresses_of(result)} == {"192.0.2.77", "2001:db8:1::77"}
    assert result["interfaces"][1]["mac"] == "92:d0:c6:0a:29:33"
    [link] = node.ip_json("link", "show", "eth0", inside="c1")
    assert link["address"] == "92:d0:c6:0a:29:33"
    assert node.ping("192.0.2.77") and node.ping("2001:db8:1::77")
    node.cni("CHECK", "c1", prevResult=result)
    assert_sound(node)


def test_a_fixed_mac_survives_a_link_that_is_made_again(node: Node) -> None:
    result = fixed(node, "c1", mac="92:d0:c6:0a:29:33")
    node.ip("link", "del", result["interfaces"][0]["name"])
    assert node.cni("ADD", "c1", args=PODMAN)["interfaces"][1]["mac"] == "92:d0:c6:0a:29:33"
    [link] = node.ip_json("link", "show", "eth0", inside="c1")
    assert link["address"] == "92:d0:c6:0a:29:33"


def test_two_with_one_mac_do_not_take_each_others_way_back(node: Node) -> None:
    """Their link-local addresses are one; each has its own link."""
    mac = "92:d0:c6:0a:29:33"
    sides = {name: fixed(node, name, mac=mac)["interfaces"][0]["name"] for name in ("c1", "c2")}
    for name, host in sides.items():
        own = str(link_local(mac))
        asked = ["ping", "-6", "-n", "-c1", "-w5", "-I", f"{own}%eth0", "fe80::1%eth0"]
        eventually(lambda c=asked, n=name: not node.execute(*c, inside=n, check=False).returncode)
        assert [route["dst"] for route in node.ip_json("-6", "route", "show", own, "dev", host)] == [own]
    assert_sound(node)


def test_cni_args_are_as_good(node: Node) -> None:
    result = node.pod("c1", args=f"{PODMAN};IP=192.0.2.77;MAC=92:d0:c6:0a:29:33")
    assert "192.0.2.77" in addresses_of(result) and len(addresses_of(result)) == 2
    assert result["interfaces"][1]["mac"] == "92:d0:c6:0a:29:33"


def test_a_granted_address_beyond_the_nodes_own_is_given_and_announced(granting: Node) -> None:
    assert "198.51.100.7" in addresses_of(fixed(granting, "c1", ips=["198.51.100.7"]))
    eventually(lambda: [r for r in granting.routes() if r["dst"] == "198.51.100.7" and str(r["protocol"]) == "134"])


@pytest.mark.parametrize(
    ("asked", "code", "field"),
    [
        ({"ips": ["203.0.113.9"]}, NOT_GRANTED, "runtimeConfig.ips: 203.0.113.9 is outside"),
        ({"ips": ["192.0.2.0"]}, NOT_GRANTED, "runtimeConfig.ips: 192.0.2.0 is the network"),
        ({"ips": ["nonsense"]}, INVALID_CONFIG, "runtimeConfig.ips: 'nonsense' is not"),
        ({"ips": "192.0.2.7"}, INVALID_CONFIG, "runtimeConfig.ips: "),
        ({"mac": "nonsense"}, INVALID_CONFIG, "runtimeConfig.mac: 'nonsense' is not"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_fields_name(
    node: Node, asked: dict[str, Any], code: int, field: str
) -> None:
    node.namespace("c1")
    error = failure(node, "ADD", "c1", args=PODMAN, runtimeConfig=asked)
    assert error.code == code and error.msg.startswith(field)
    assert node.allocations() == {}


@pytest.mark.parametrize(
    ("address", "cure"),
    [("203.0.113.9", "ask whoever writes this node's NodeConfig"), ("192.0.2.0", "choose another address")],
)
def test_whoever_could_grant_an_address_is_to_be_asked_and_for_what_nobody_can_grant_nobody(
    node: Node, address: str, cure: str
) -> None:
    node.namespace("c1")
    error = failure(node, "ADD", "c1", args=PODMAN, runtimeConfig={"ips": [address]})
    assert error.error["details"] == cure


def test_an_address_somebody_has_is_refused(node: Node) -> None:
    fixed(node, "c1", ips=["192.0.2.77"])
    node.namespace("c2")
    args = "K8S_POD_NAME=dns2"
    error = failure(node, "ADD", "c2", args=args, runtimeConfig={"ips": ["192.0.2.77"]})
    assert error.code == ADDRESS_IN_USE


def test_what_is_ignored_is_logged(node: Node) -> None:
    assert "192.0.2.77" in addresses_of(fixed(node, "c1", ips=["192.0.2.77/24"]))
    assert "pod=default/dns1 runtimeConfig.ips: the length of 192.0.2.77/24 is ignored" in node.log_text()
