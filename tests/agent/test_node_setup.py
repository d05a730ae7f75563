"""What the agent makes of the node itself: the MTU of pods, forwarding, router advertisements."""

import socket
import struct
import time
from pathlib import Path
from typing import Any

from looking import addresses_of, host_link, sysctl

from harness import NODE_CONFIG, Node, eventually, run, with_spec
from namespaces import within


def uplink(node: Node, name: str, *addresses: str, mtu: int = 1500) -> None:
    """A veth whose other end is in a namespace that plays the LAN."""
    lan = node.namespace(f"lan{name}")
    node.ip("link", "add", name, "mtu", mtu, "type", "veth", "peer", "name", "lan0", "netns", Path(lan).name)
    run("ip", "-n", Path(lan).name, "link", "set", "lan0", "up")
    node.ip("link", "set", name, "up")
    for address in addresses:
        node.ip("addr", "add", address, "dev", name, *(["nodad"] if ":" in address else []))


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
