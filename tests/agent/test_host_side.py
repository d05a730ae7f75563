"""What a pod's host side listens to: nothing that would change where the node's traffic goes.

Rules drop such packets as well (tests/policy/test_walls.py); here they are gone, and the link alone stands for it.
"""

import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from looking import OWN, sysctl

from harness import NODE_CONFIG, Node, eventually, run
from namespaces import within
from thoroughness import some

ONLY_IPV4 = {**NODE_CONFIG, "spec": {"cidr4": ["192.0.2.0/24"]}}


def host(result: dict[str, Any]) -> str:
    name: str = result["interfaces"][0]["name"]
    return name


def without_rules(node: Node) -> None:
    node.kill()
    node.execute("nft", "flush", "ruleset")


def advertise(node: Node, pod: str) -> None:
    """A pod plays a router: default route, prefix and all."""
    run("ip", "-n", Path(node.path(pod)).name, "addr", "replace", "fe80::99/64", "dev", "eth0", "nodad")
    prefix = struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 86400, 14400, 0) + socket.inet_pton(
        socket.AF_INET6, "2001:db8:bad::"
    )

    def send() -> None:
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as raw:
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("eth0"))
            raw.bind(("fe80::99", 0, 0, socket.if_nametoindex("eth0")))
            raw.sendto(struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + prefix, ("ff02::1", 0))

    within(node.path(pod), send)


def learned(node: Node) -> list[Any]:
    """What the node has from router advertisements.  The kernel takes one in while it is sent."""
    addresses = [a for x in node.ip_json("-6", "addr") for a in x.get("addr_info", ()) if a.get("dynamic")]
    return [*node.ip_json("-6", "route", "show", "proto", "ra"), *addresses]


@pytest.mark.parametrize("config", [NODE_CONFIG, ONLY_IPV4], ids=["node of both families", "node of IPv4 alone"])
@pytest.mark.parametrize("default", ["accept_ra=1", "accept_ra=2", "disable_ipv6=1"])
@pytest.mark.parametrize("off", some(["ipv4", "ipv6", ""]))
def test_a_router_advertisement_from_a_pod_changes_nothing(
    fresh: Node, config: dict[str, Any], default: str, off: str
) -> None:
    if config is ONLY_IPV4 and off == "ipv4":
        return  # a pod of neither
    fresh.write("nodeconfig", config)
    fresh.start()
    switch, value = default.split("=")
    sysctl(fresh, f"ipv6/conf/default/{switch}", value)
    fresh.pod("a", annotations={OWN + off: "false"} if off else {})
    without_rules(fresh)
    advertise(fresh, "a")
    assert learned(fresh) == []


def test_redirects_and_source_routes_are_not_taken_from_pods(node: Node) -> None:
    for pod, annotations in (("a", {}), ("b", {OWN + "ipv6": "false"})):
        name = host(node.pod(pod, annotations=annotations))
        for switch in ("accept_redirects", "accept_source_route", "send_redirects"):
            assert sysctl(node, f"ipv4/conf/{name}/{switch}") == "0"
        heeds = sysctl(node, f"ipv6/conf/{name}/accept_redirects") == "1"
        assert not heeds or sysctl(node, f"ipv6/conf/{name}/forwarding") == "1", "who forwards ignores them"


def as_an_earlier_version_left_it(node: Node, name: str) -> None:
    for switch in ("ipv6/conf/{}/accept_ra", "ipv6/conf/{}/accept_redirects", "ipv4/conf/{}/accept_redirects"):
        sysctl(node, switch.format(name), "1")


@pytest.mark.parametrize("when", ["before the agent starts", "while it runs"])
def test_links_that_still_listen_are_healed(fresh: Node, when: str) -> None:
    fresh.write("nodeconfig", ONLY_IPV4)
    fresh.start()
    name = host(fresh.pod("a"))

    def deaf() -> bool:
        switches = ("ipv6/conf/{}/accept_ra", "ipv6/conf/{}/accept_redirects", "ipv4/conf/{}/accept_redirects")
        return all(sysctl(fresh, switch.format(name)) == "0" for switch in switches)

    assert deaf()
    wake: Callable[[], object] = lambda: fresh.ask("repair")  # noqa: E731
    if when == "before the agent starts":
        fresh.kill()
        wake = fresh.start
    as_an_earlier_version_left_it(fresh, name)
    assert not deaf()
    wake()
    eventually(deaf, what="the host side was prepared")
    without_rules(fresh)
    advertise(fresh, "a")
    assert learned(fresh) == []
