"""What ADD makes of the kernel, read back with `ip`: original.md §7 and issue 2, Deliver 7."""

import socket
import struct
import time
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import pytest
from looking import (
    ANNOUNCED_PROTOCOL,
    HOST_MAC,
    METRIC,
    OWN,
    POD_PROTOCOL,
    addresses_of,
    assert_sound,
    failure,
    pod_routes,
    pod_side,
    sysctl,
    within,
)

from harness import NODE_CONFIG, CniFailure, Node, eventually, run

# Found by search: both names have the same FNV-1a-32, which names the host interface.
COLLIDING = ("c693596", "c1170850")


def with_spec(**changes: Any) -> dict[str, Any]:
    return {**NODE_CONFIG, "spec": {**NODE_CONFIG["spec"], **changes}}


def host_link(node: Node, result: dict[str, Any]) -> dict[str, Any]:
    link: dict[str, Any] = node.links()[result["interfaces"][0]["name"]]
    return link


def uplink(node: Node, name: str, *addresses: str, mtu: int = 1500) -> None:
    """A veth whose other end is in a namespace that plays the LAN."""
    lan = node.namespace(f"lan{name}")
    node.ip("link", "add", name, "mtu", mtu, "type", "veth", "peer", "name", "lan0", "netns", Path(lan).name)
    run("ip", "-n", Path(lan).name, "link", "set", "lan0", "up")
    node.ip("link", "set", name, "up")
    for address in addresses:
        node.ip("addr", "add", address, "dev", name, *(["nodad"] if ":" in address else []))


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
        ("fe80::1", 64, False)
    ]


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
    # fault 10: no private address beside the one that replaces IPAM
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


# --- MTU ---------------------------------------------------------------------------------------------------------


def mtus(node: Node, result: dict[str, Any]) -> set[int]:
    [eth0] = node.ip_json("link", "show", "eth0", inside="a")
    return {host_link(node, result)["mtu"], eth0["mtu"], *(i["mtu"] for i in result["interfaces"])}


def test_the_mtu_is_that_of_the_default_route(fresh: Node) -> None:
    uplink(fresh, "up0", "198.51.100.2/24", mtu=1400)
    fresh.ip("route", "add", "default", "via", "198.51.100.1")
    fresh.start()
    assert mtus(fresh, fresh.pod("a")) == {1400}


def test_the_mtu_is_the_smallest_towards_the_bgp_peers_before_the_default_route(fresh: Node) -> None:
    uplink(fresh, "up0", "198.51.100.2/24", mtu=1300)
    uplink(fresh, "peer0", "2001:db8:ffff::11/64", mtu=1450)
    uplink(fresh, "peer1", "203.0.113.11/24", mtu=1420)
    fresh.ip("route", "add", "default", "via", "198.51.100.1")
    peers = [{"address": "2001:db8:ffff::1", "asn": 64600}, {"address": "203.0.113.1", "asn": 64600}]
    fresh.write("nodeconfig", with_spec(bgp={"asn": 64601, "peers": peers}))
    fresh.start()
    assert mtus(fresh, fresh.pod("a")) == {1420}


def test_without_uplink_the_mtu_is_1500(node: Node) -> None:
    assert mtus(node, node.pod("a")) == {1500}


def test_pods_work_on_a_node_without_any_address_or_default_route(fresh: Node) -> None:
    fresh.ip("addr", "flush", "dev", "lo", "scope", "global")
    fresh.start()
    fresh.pod("a")
    for address in addresses_of(fresh.pod("b")):
        assert fresh.ping(address, inside="a")


def test_the_mtu_of_the_nodeconfig_wins(fresh: Node) -> None:
    uplink(fresh, "up0", "198.51.100.2/24", mtu=1400)
    fresh.ip("route", "add", "default", "via", "198.51.100.1")
    fresh.write("nodeconfig", with_spec(mtu=9000))
    fresh.start()
    assert mtus(fresh, fresh.pod("a")) == {9000}


def test_a_changed_uplink_counts_for_the_next_pod(fresh: Node) -> None:
    uplink(fresh, "up0", "198.51.100.2/24", mtu=1500)
    fresh.ip("route", "add", "default", "via", "198.51.100.1")
    fresh.start()
    fresh.pod("before")
    fresh.ip("link", "set", "up0", "mtu", "1380")
    eventually(lambda: fresh.ask("status")["mtu"] == 1380, what="the new MTU")
    assert mtus(fresh, fresh.pod("a")) == {1380}
    fresh.cni("CHECK", "before")


# --- the node itself ---------------------------------------------------------------------------------------------


def advertise(router_netns: str, *, interface: str) -> None:
    """One router advertisement with a lifetime, from the LAN; hop limit 255, checksum by the kernel."""

    def send() -> None:
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as raw:
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex(interface))
            raw.sendto(struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0), ("ff02::1", 0))

    within(router_netns, send)


def ra_defaults(node: Node) -> list[str]:
    return [r["gateway"] for r in node.ip_json("-6", "route", "show", "default") if r["protocol"] == "ra"]


def test_the_default_route_learned_from_a_router_outlives_forwarding(fresh: Node) -> None:
    uplink(fresh, "up0")
    lan = fresh.path("lanup0")
    run("ip", "-n", Path(lan).name, "addr", "add", "fe80::99/64", "dev", "lan0", "nodad")
    sysctl(fresh, "ipv6/conf/up0/accept_ra", "1")

    def learned() -> list[str]:
        advertise(lan, interface="lan0")
        time.sleep(0.1)
        return ra_defaults(fresh)

    router = eventually(learned, what="the router advertisement")
    fresh.start()
    assert ra_defaults(fresh) == router, "the RA default route was lost when forwarding was switched on"
    assert sysctl(fresh, "ipv6/conf/up0/accept_ra") == "2"
    fresh.ip("-6", "route", "flush", "proto", "ra")
    assert eventually(learned, what="router advertisements are still listened to") == router
    assert sysctl(fresh, "ipv6/conf/all/forwarding") == "1" and sysctl(fresh, "ipv4/ip_forward") == "1"


def test_an_interface_that_ignores_router_advertisements_keeps_ignoring_them(fresh: Node) -> None:
    uplink(fresh, "up0")
    sysctl(fresh, "ipv6/conf/up0/accept_ra", "0")
    fresh.start()
    assert sysctl(fresh, "ipv6/conf/up0/accept_ra") == "0"


def test_a_family_without_cidr_leaves_its_forwarding_alone(fresh: Node) -> None:
    fresh.write("nodeconfig", {**NODE_CONFIG, "spec": {"cidr6": ["2001:db8:1::/64"]}})
    before = sysctl(fresh, "ipv4/ip_forward")
    fresh.start()
    assert sysctl(fresh, "ipv4/ip_forward") == before
    assert all(":" in a for a in addresses_of(fresh.pod("a")))


# --- things in the way -------------------------------------------------------------------------------------------


def test_a_stale_link_of_the_same_name_is_replaced(node: Node) -> None:
    """An unrelated veth that happens to carry the name that this container's host interface will get."""
    name = node.pod("a")["interfaces"][0]["name"]
    node.cni("DEL", "a")
    node.ip("link", "add", name, "type", "veth", "peer", "name", "other")
    result = node.cni("ADD", "a")
    assert result["interfaces"][0]["name"] == name
    assert all(map(node.ping, addresses_of(result)))
    assert_sound(node)


def test_our_own_leftover_is_replaced(node: Node) -> None:
    """The link of a container whose entry was lost, its peer still in the pod, addresses and all."""
    node.pod("a")
    node.kill()
    (node.state_dir / "allocations.json").unlink()
    node.start()
    result = node.cni("ADD", "a")
    assert all(map(node.ping, addresses_of(result)))
    assert_sound(node)


def test_a_leftover_of_another_container_in_the_same_namespace_is_replaced(node: Node) -> None:
    """One that nothing tells the owner of; else it would be adopted."""
    link = node.pod("a")["interfaces"][0]["name"]
    node.kill()
    (node.state_dir / "allocations.json").unlink()
    node.ip("link", "set", link, "alias", "somebody's")
    node.start()
    result = node.cni("ADD", "b", netns=node.path("a"))
    assert all(map(node.ping, addresses_of(result)))
    assert_sound(node)


def test_two_containers_whose_interface_names_collide_both_work(node: Node) -> None:
    """Fault 22."""
    results = [node.pod(name) for name in COLLIDING]
    assert results[0]["interfaces"][0]["name"] != results[1]["interfaces"][0]["name"]
    for result in results:
        assert all(map(node.ping, addresses_of(result)))
    assert_sound(node)
    node.kill()
    node.start()
    assert_sound(node)
    node.cni("DEL", COLLIDING[0])
    assert all(map(node.ping, addresses_of(results[1])))
    assert node.cni("ADD", COLLIDING[1])["ips"] == results[1]["ips"]
    assert_sound(node)
    node.cni("DEL", COLLIDING[1])
    assert_sound(node)


def test_two_colliding_containers_added_at_once_both_work(node: Node) -> None:
    for name in COLLIDING:
        node.namespace(name)
    started = [node.cni_start("ADD", name) for name in COLLIDING]
    assert all(process.wait(30) == 0 for process in started)
    assert_sound(node)
    assert len(node.links()) == 2


def test_an_interface_in_the_pod_that_is_not_ours_is_an_error_and_stays(node: Node) -> None:
    node.namespace("a")
    node.ip("link", "add", "eth0", "type", "veth", "peer", "name", "other", inside="a")
    failed = failure(node, "ADD", "a")
    assert failed.code >= 100 and "eth0" in failed.msg
    assert {x["ifname"] for x in node.ip_json("link", inside="a")} == {"lo", "eth0", "other"}
    assert not node.allocations() and not node.links() and not pod_routes(node)
    assert node.cni("ADD", "a", ifname="net1")["interfaces"][1]["name"] == "net1"


def test_the_nodes_own_namespace_is_an_error(node: Node) -> None:
    failed = failure(node, "ADD", "a", netns=f"/run/netns/{node.netns}")
    assert failed.code >= 100 and "own" in failed.msg
    assert not node.allocations() and not node.links()


@pytest.mark.parametrize("what", ["file", "directory", "missing", "other namespace"])
def test_a_path_that_is_no_network_namespace_is_an_error(node: Node, tmp_path: Path, what: str) -> None:
    path = tmp_path / "ns"
    if what == "file":
        path.write_text("no namespace")
    elif what == "directory":
        path.mkdir()
    elif what == "other namespace":
        path = Path("/proc/self/ns/uts")
    failed = failure(node, "ADD", "a", netns=str(path))
    assert failed.code == 4 and "CNI_NETNS" in failed.msg and str(path) in failed.msg
    assert not node.allocations() and not node.links()
    assert len(node.ask("pods")) == 0


def test_the_namespace_of_another_pod_is_refused_and_that_pod_unharmed(fresh: Node) -> None:
    """Also its anycast addresses, which the refused container asks for too."""
    grants = {"allowed": [{"prefixes": ["2001:db8:53::/64"]}]}
    fresh.write("nodeconfig", with_spec(anycast=grants))
    fresh.start()
    asked = {OWN + "anycast": "2001:db8:53::53"}
    result = fresh.pod("a", annotations=asked)
    with pytest.raises(CniFailure):
        fresh.cni("ADD", "b", netns=fresh.path("a"), annotations=asked)
    assert all(map(fresh.ping, addresses_of(result)))
    assert_sound(fresh)


def test_the_mac_survives_as_ipv6_link_local_has_no_say(node: Node) -> None:
    """The pod keeps exactly one global address per family: nothing is autoconfigured beside ours."""
    result = node.pod("a")
    inside = pod_side(node.path("a"))
    found = inside["eth0"] | inside["IPv4"]
    assert found == set(addresses_of(result))
    assert all(IPv6Address(a) for a in inside["eth0"])
