"""Addresses of Services in bird.conf: a table and communities of their own, and nothing where there are none."""

import os

import pytest
from bird_fabric import Fabric, eventually
from bird_nodes import ROUTER, bgp, node_beside, rendered, session

from flock.core.facts import NodeFacts
from flock.core.naming import PROTO_ANNOUNCE, SERVICE_TABLE

GRANTING = {"allowed": [{"prefixes": ["198.18.0.0/24", "2001:db8:5e::/64"]}]}
AGGREGATES = {"2001:db8:1::/64", "192.0.2.0/26"}
ANNOUNCED = {"2001:db8:53::1/128", "198.51.100.53/32"}
SERVICES = {"198.18.0.1/32", "2001:db8:5e::1/128"}


def test_without_a_grant_the_file_is_what_it_was() -> None:
    facts = NodeFacts("node1")
    for services in ({}, {"exclude": True}, {"communities": ["64601:300"], "class": "example.com/lb"}):
        assert rendered(facts=facts, bgp=bgp(), services=services) == rendered(facts=facts, bgp=bgp())


@pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces")
def test_they_are_learned_from_their_own_table_and_marked_apart_from_pods(fabric: Fabric) -> None:
    tor = fabric.router("tor")
    node, facts = node_beside(fabric, tor)
    services = GRANTING | {"communities": ["64601:300"]}
    peer = bgp(families=["ipv6", "ipv4"], communities=["64601:100"], **{"import": "all"})
    node.start(rendered(facts=facts, bgp=peer, services=services, anycast={"communities": ["64601:200"]}), "-R")
    tor.start(ROUTER.format(sessions=session("2001:db8:ffff::11")))
    tor.established("node")
    eventually(lambda: tor.routes("protocol node"), lambda routes: routes == AGGREGATES | ANNOUNCED)

    table = ("table", str(SERVICE_TABLE), "metric", "20")
    for prefix in sorted(SERVICES):
        node.ip("route", "add", "blackhole", prefix, "proto", str(PROTO_ANNOUNCE), *table)
    node.ip("route", "add", "blackhole", "198.18.0.9/32", "proto", "static", *table)
    eventually(lambda: tor.routes("protocol node"), lambda routes: routes == AGGREGATES | ANNOUNCED | SERVICES)
    for prefix, own, others in (("198.18.0.1/32", 300, 200), ("198.51.100.53/32", 200, 300)):
        shown = tor.birdc(f"show route {prefix} protocol node all")
        assert f"(64601,{own})" in shown and "(64601,100)" in shown and f"(64601,{others})" not in shown
    assert "198.18.0.1" not in node.ip("route", "show", "table", "main")

    node.ip("route", "del", "blackhole", "198.18.0.1/32", *table)
    left = AGGREGATES | ANNOUNCED | SERVICES - {"198.18.0.1/32"}
    eventually(lambda: tor.routes("protocol node"), lambda routes: routes == left)
