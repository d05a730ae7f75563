"""What ADD makes of the kernel, read back with `ip`: addresses, routes, neighbours, the link."""

import socket
import struct
from ipaddress import IPv6Address

import pytest
from looking import (
    ANNOUNCED_PROTOCOL,
    HOST_MAC,
    METRIC,
    OWN,
    POD_PROTOCOL,
    addresses_of,
    assert_sound,
    host_link,
    pod_routes,
    pod_side,
    settle,
    sysctl,
)

from flock.core.naming import link_local
from harness import Node, eventually, with_spec
from namespaces import within

# --- addresses, routes, neighbours -------------------------------------------------------------------------------


def test_pod_addresses_are_usable_at_once(node: Node) -> None:
    result = node.pod("a")
    [eth0] = [x for x in node.ip_json("addr", inside="a") if x["ifname"] == "eth0"]
    found = {(a["local"], a["prefixlen"]): a for a in eth0["addr_info"] if a["scope"] == "global"}
    assert set(found) == {(a, 128 if ":" in a else 32) for a in addresses_of(result)}
    for info in found.values():
        assert not info.get("tentative") and not info.get("dadfailed")
        assert info["valid_life_time"] == info["preferred_life_time"] == 2**32 - 1
    six = next(a for a in found.values() if a["family"] == "inet6")
    assert six.get("nodad")


def test_the_gateway_address_of_the_host_side_is_usable_at_once(node: Node) -> None:
    name = node.pod("a")["interfaces"][0]["name"]
    [link] = node.ip_json("addr", "show", name)
    assert [(a["local"], a["prefixlen"], a.get("tentative", False)) for a in link["addr_info"]] == [
        ("fe80::1", 128, False)
    ]


def test_nobody_has_a_route_to_his_own_address(node: Node) -> None:
    """What is local is in another table.  The kernel walks through all IPv6 routes whenever a link goes up or down."""
    host, pod = node.pod("a")["interfaces"]
    there = node.ip_json("-6", "route", "show", "dev", "eth0", inside="a")
    assert [route["dst"] for route in there if route["dst"] != "fe80::/64"] == ["default"]  # that: his link-local one
    here = {route["dst"] for route in node.ip_json("-6", "route", "show", "dev", host["name"])}
    assert len(here) == 2 and str(link_local(pod["mac"])) in here and "fe80::1" not in here


def test_the_node_answers_who_pings_the_gateway_from_a_link_local_address(node: Node) -> None:
    """Also after the link was down for a moment, or somebody took the way back while no agent was there."""
    host, pod = node.pod("a")["interfaces"]
    own = str(link_local(pod["mac"]))

    def answered() -> bool:
        asked = ["ping", "-6", "-n", "-c1", "-W1", "-I", f"{own}%eth0", "fe80::1%eth0"]
        return node.execute(*asked, inside="a", check=False).returncode == 0

    eventually(answered, what="the address is usable and answered")
    node.ip("link", "set", host["name"], "down")
    eventually(answered, what="the link is up and the way back there")
    node.stop()
    node.ip("-6", "route", "del", own, "dev", host["name"])
    assert not answered()
    node.start()
    eventually(answered, what="the way back is there again")


def test_a_link_of_an_earlier_version_stays_as_it_is(node: Node) -> None:
    """Its gateway address had a prefix, by which the node finds the pod's link-local address."""
    name = node.pod("a")["interfaces"][0]["name"]
    node.stop()
    node.ip("addr", "flush", "dev", name, "scope", "link")
    node.ip("addr", "add", "fe80::1/64", "dev", name, "nodad")
    node.ip("-6", "route", "flush", "dev", name, "proto", "kernel")
    node.ip("-6", "route", "add", "fe80::/64", "dev", name, "proto", "kernel", "metric", "256")
    before = node.ip_json("-6", "route", "show", "dev", name)
    node.start()
    settle(node)
    assert node.ip_json("-6", "route", "show", "dev", name) == before


def test_the_first_packet_needs_no_resolution(node: Node) -> None:
    """Both ends have permanent neighbours, and no other ever appears there."""
    result = node.pod("a")
    host, pod = result["interfaces"]
    for address in addresses_of(result):
        assert node.ping(address)
    entries = {(n["dst"], n["lladdr"], *n["state"]) for n in node.ip_json("neigh", "show", "dev", host["name"])}
    assert entries == {(a, pod["mac"], "PERMANENT") for a in addresses_of(result)}
    inside = {(n["dst"], n["lladdr"], *n["state"]) for n in node.ip_json("neigh", "show", "dev", "eth0", inside="a")}
    assert inside == {("fe80::1", HOST_MAC, "PERMANENT"), ("169.254.1.1", HOST_MAC, "PERMANENT")}


def test_no_arp_or_neighbour_solicitation_is_sent(node: Node) -> None:
    result = node.pod("a")
    interface = result["interfaces"][0]["name"]

    def capture() -> socket.socket:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        raw.bind((interface, 0x0003))
        raw.setblocking(False)
        return raw

    with within(f"/run/netns/{node.netns}", capture) as raw:
        for address in addresses_of(result):
            assert node.ping(address)
        frames = []
        while True:
            try:
                frames.append(raw.recv(2048))
            except BlockingIOError:
                break
    kinds = [struct.unpack_from("!H", f, 12)[0] for f in frames]
    assert 0x86DD in kinds and 0x0800 in kinds
    assert 0x0806 not in kinds
    assert not [f for f in frames if f[12:14] == b"\x86\xdd" and f[20] == 58 and f[54] in (135, 136)]


def test_host_routes_carry_our_protocol_number_and_a_metric_below_birds(node: Node) -> None:
    result = node.pod("a")
    routes = {(r["dst"], r["dev"], str(r["protocol"]), r["metric"]) for r in pod_routes(node)}
    name = result["interfaces"][0]["name"]
    assert routes == {(a, name, POD_PROTOCOL, METRIC) for a in addresses_of(result)}


def test_an_address_outside_the_aggregates_is_routed_under_the_number_that_bird_announces(fresh: Node) -> None:
    fresh.write("nodeconfig", with_spec(addresses={"allowed": [{"prefixes": ["2001:db8:53::/64", "198.51.100.0/24"]}]}))
    fresh.start()
    asked = {OWN + "addresses": "2001:db8:53::7, 198.51.100.7"}
    result = fresh.pod("a", annotations=asked)
    assert addresses_of(result) == ["2001:db8:53::7", "198.51.100.7"]
    assert {(r["dst"], str(r["protocol"])) for r in pod_routes(fresh)} == {
        ("2001:db8:53::7", ANNOUNCED_PROTOCOL),
        ("198.51.100.7", ANNOUNCED_PROTOCOL),
    }
    assert all(map(fresh.ping, addresses_of(result)))


def test_the_pod_has_default_routes_through_the_two_gateways(node: Node) -> None:
    node.pod("a")
    [six] = node.ip_json("-6", "route", "show", "default", inside="a")
    [four] = node.ip_json("-4", "route", "show", "default", inside="a")
    assert (six["gateway"], six["dev"]) == ("fe80::1", "eth0")
    assert (four["gateway"], four["dev"], four["flags"]) == ("169.254.1.1", "eth0", ["onlink"])


def test_pods_reach_each_other_and_the_node_reaches_them(node: Node) -> None:
    first, second = node.pod("a"), node.pod("b")
    for address in addresses_of(second):
        assert node.ping(address) and node.ping(address, inside="a")
    for address in addresses_of(first):
        assert node.ping(address, inside="b")


def test_extra_addresses_stand_on_eth0_and_anycast_on_lo(fresh: Node) -> None:
    grants = {"allowed": [{"prefixes": ["2001:db8:53::/64", "198.51.100.0/24"]}]}
    fresh.write("nodeconfig", with_spec(addresses=grants, anycast=grants))
    fresh.start()
    asked = {OWN + "addresses": "2001:db8:53::7,2001:db8:53::8", OWN + "anycast": "2001:db8:53::53,198.51.100.53"}
    result = fresh.pod("a", annotations=asked)
    # no private address beside the one that replaces IPAM
    assert addresses_of(result) == ["2001:db8:53::7", fresh.allocations()["a"]["ip4"], "2001:db8:53::8"]
    inside = pod_side(fresh.path("a"))
    assert inside["eth0"] == {"2001:db8:53::7", "2001:db8:53::8"} and inside["lo"] == {"2001:db8:53::53"}
    assert inside["IPv4"] == {fresh.allocations()["a"]["ip4"], "198.51.100.53"}
    # neither anycast nor extra addresses are routed before the pod is eligible
    assert {r["dst"] for r in pod_routes(fresh)} == {"2001:db8:53::7", fresh.allocations()["a"]["ip4"]}
    fresh.cni("DEL", "a")
    assert pod_side(fresh.path("a")) == {"lo": set()}


# --- the link ----------------------------------------------------------------------------------------------------


def test_both_ends_have_explicit_macs_which_udev_leaves_alone(node: Node) -> None:
    """addr_assign_type 3 is "set by someone": 1, "random", is what udev rewrites."""
    result = node.pod("a")
    host, pod = result["interfaces"]
    for where, interface in ((None, host), ("a", pod)):
        [link] = node.ip_json("link", "show", interface["name"], inside=where)
        assert link["address"] == interface["mac"]
        kind = node.execute(
            "unshare", "-m", "sh", "-c",
            f"mount -t sysfs none /sys && cat /sys/class/net/{interface['name']}/addr_assign_type", inside=where
        )  # fmt: skip
        assert kind.stdout.strip() == "3"
    assert host["mac"] == HOST_MAC and int(pod["mac"][:2], 16) & 3 == 2


def test_two_pods_have_different_macs_and_one_pod_has_the_same_again(node: Node) -> None:
    first, second = node.pod("a"), node.pod("b")
    assert first["interfaces"][1]["mac"] != second["interfaces"][1]["mac"]
    node.cni("DEL", "a")
    assert node.cni("ADD", "a")["interfaces"][1]["mac"] == first["interfaces"][1]["mac"]


def test_the_alias_names_the_pod(node: Node) -> None:
    node.namespace("a")
    result = node.cni("ADD", "a", args="K8S_POD_NAMESPACE=web;K8S_POD_NAME=front-0")
    alias = host_link(node, result)["ifalias"]
    assert "web/front-0" in alias and "a" in alias


def test_names_of_any_legal_length_fit_the_alias(node: Node) -> None:
    long = "n" * 253
    node.namespace("a")
    result = node.cni("ADD", "a", args=f"K8S_POD_NAMESPACE={long};K8S_POD_NAME={long}")
    assert host_link(node, result)["ifalias"].startswith(f"flock pod={long[:200]}")
    node.cni("CHECK", "a", prevResult=result)


def test_no_address_is_generated_on_the_host_side_and_it_ignores_router_advertisements(node: Node) -> None:
    link = host_link(node, node.pod("a"))
    assert link["inet6_addr_gen_mode"] == "none"
    conf = f"ipv6/conf/{link['ifname']}"
    assert sysctl(node, f"{conf}/forwarding") == "1"
    assert sysctl(node, f"{conf}/accept_ra") in ("0", "1")  # who forwards listens to none unless it is 2
    assert sysctl(node, f"ipv4/conf/{link['ifname']}/proxy_arp") == "1"
    assert sysctl(node, f"ipv4/conf/{link['ifname']}/forwarding") == "1"


def test_the_pod_ignores_router_advertisements(node: Node) -> None:
    node.pod("a")
    assert sysctl(node, "ipv6/conf/eth0/accept_ra", inside="a") == "0"


def test_ipv6_works_where_the_runtime_switched_it_off(node: Node) -> None:
    node.namespace("a")
    for which in ("all", "default", "lo"):
        sysctl(node, f"ipv6/conf/{which}/disable_ipv6", "1", inside="a")
    result = node.cni("ADD", "a")
    assert sysctl(node, "ipv6/conf/eth0/disable_ipv6", inside="a") == "0"
    assert sysctl(node, "ipv6/conf/lo/disable_ipv6", inside="a") == "0"
    assert all(map(node.ping, addresses_of(result)))
    node.cni("CHECK", "a", prevResult=result)


@pytest.mark.parametrize(("switch", "value"), [("forwarding", "0"), ("accept_ra", "2"), ("disable_ipv6", "1")])
def test_the_nodes_defaults_do_not_reach_the_host_side(node: Node, switch: str, value: str) -> None:
    sysctl(node, f"ipv6/conf/default/{switch}", value)
    name = node.pod("a")["interfaces"][0]["name"]
    assert sysctl(node, f"ipv6/conf/{name}/{switch}") != value
    assert node.ping(addresses_of(node.pod("b"))[0], inside="a")


def test_ipv6_works_where_the_nodes_own_default_is_off(fresh: Node) -> None:
    sysctl(fresh, "ipv6/conf/default/disable_ipv6", "1")
    fresh.start()
    assert all(map(fresh.ping, addresses_of(fresh.pod("a"))))


@pytest.mark.parametrize(("off", "kept"), [("ipv4", ":"), ("ipv6", ".")])
def test_a_pod_of_one_family_has_nothing_of_the_other(node: Node, off: str, kept: str) -> None:
    result = node.pod("a", annotations={OWN + off: "false"})
    [address] = addresses_of(result)
    assert kept in address and node.ping(address)
    assert [r["dst"] for r in result["routes"]] == ["::/0" if kept == ":" else "0.0.0.0/0"]
    assert [r["dst"] for r in pod_routes(node)] == [address]
    assert_sound(node)


def test_the_mac_survives_as_ipv6_link_local_has_no_say(node: Node) -> None:
    """The pod keeps exactly one global address per family: nothing is autoconfigured beside ours."""
    result = node.pod("a")
    inside = pod_side(node.path("a"))
    found = inside["eth0"] | inside["IPv4"]
    assert found == set(addresses_of(result))
    assert all(IPv6Address(a) for a in inside["eth0"])
