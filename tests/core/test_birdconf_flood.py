"""A router that sends far more than a node wants, to a real BIRD with the rendered file."""

import os
import re

import pytest
from bird_fabric import Fabric, eventually
from bird_nodes import ROUTER, bgp, node_beside, rendered, session

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces")

MANY = 5_000


@pytest.mark.parametrize(
    ("takes", "taken"),
    [
        ({"import": "none"}, 0),
        ({"import": "default"}, 1),
        ({"import": "all", "maxPrefixes": 700}, 700),
        ({"import": ["10.0.0.0/8"], "maxPrefixes": 700}, 700),
    ],
    ids=["none", "default", "all", "list"],
)
def test_of_many_routes_a_node_takes_what_it_wants_within_its_limit(
    fabric: Fabric, takes: dict[str, object], taken: int
) -> None:
    router = fabric.router("router")
    node, facts = node_beside(fabric, router)
    routes = "".join(f"route 10.{n >> 8}.{n & 255}.0/24 blackhole; " for n in range(MANY))
    sessions = session("2001:db8:ffff::11", local="2001:db8:ffff::1")
    router.start(f"{ROUTER.format(sessions=sessions)}\nprotocol static {{ ipv4; {routes} }}\n")
    node.start(rendered(facts=facts, bgp=bgp(families=["ipv6", "ipv4"], **takes)))

    def heard_of() -> tuple[int, int]:
        """Routes of IPv4 that the router sent, and those that were taken."""
        shown = node.birdc("show protocols all bgp_tor").partition("Channel ipv4")[2]
        sent, imported = (re.search(p, shown) for p in (r"Import updates:\s+(\d+)", r"Routes:\s+(\d+) imported"))
        return int(sent[1]) if sent else 0, int(imported[1]) if imported else 0

    found = eventually(heard_of, lambda seen: seen[0] >= MANY)
    assert found[1] == taken
    node.established("bgp_tor")
