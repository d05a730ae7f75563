"""What a router is told of a node is what the node's own BIRD does."""

import random
import re
from ipaddress import ip_interface

import pytest

from flock.core.birdconf.document import render_bird_conf
from flock.core.facts import HostAddress, NodeFacts
from flock.core.nodeconfig import NodeConfig, parse_node_config
from flock.core.routerconf.asked import routers


def config(router: str) -> NodeConfig:
    peers = [{"name": "tor1", "address": router, "asn": 64600}]
    spec = {"cidr6": ["2001:db8:1::/64"], "bgp": {"asn": 64601, "peers": peers}}
    kind = {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig"}
    return parse_node_config({**kind, "metadata": {"name": "node1"}, "spec": spec})


@pytest.mark.parametrize(
    ("router", "own"),
    [
        # The one that somebody gave it, and the one it made of a router's advertisement: the kernel lists that first.
        ("2001:db8:ffff::1", ["2001:db8:ffff:0:c8c8:3bff:fe29:9308/64", "2001:db8:ffff::2/64"]),
        ("2001:db8:ffff::1", ["2001:db8:ffff::2/64", "2001:db8:ffff::9/112", "2001:db8:fffe::1/64"]),
        ("198.51.100.1", ["198.51.100.20/24", "198.51.100.3/24", "203.0.113.1/24", "2001:db8:ffff::2/64"]),
    ],
)
def test_a_session_comes_from_the_address_that_the_router_was_told_whatever_else_the_node_has(
    router: str, own: list[str]
) -> None:
    node = config(router)
    for order in range(6):
        addresses = [ip_interface(address) for address in random.Random(order).sample(own, len(own))]
        facts = NodeFacts("node1", tuple(HostAddress("eth0", address) for address in addresses))
        spoken = re.search(r"^  local (\S+) as 64601;", render_bird_conf(node, facts, secrets={}), re.MULTILINE)
        ((told,),) = (speaker.neighbours for speaker in routers([node], nodes={"node1": addresses}))
        assert spoken and told.address == spoken[1], f"the kernel lists {addresses}"


def test_no_session_comes_from_an_address_that_is_made_to_go_away_again() -> None:
    """Those of privacy extensions change every day, and the router knows one."""
    own = ip_interface("2001:db8:ffff:0:c8c8:3bff:fe29:9308/64")
    passing = ip_interface("2001:db8:ffff:0:1111:2222:3333:4444/64")
    facts = NodeFacts("node1", (HostAddress("eth0", passing, temporary=True), HostAddress("eth0", own)))
    for router in ("2001:db8:ffff::1", "fe80::1%eth0"):
        text = render_bird_conf(config(router), facts, secrets={})
        assert str(own.ip) in text
        assert str(passing.ip) not in text.partition("protocol bgp")[2]
