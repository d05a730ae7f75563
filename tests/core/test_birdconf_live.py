"""Rendered files in real BIRDs, one per network namespace: what a router really gets, and what the node takes in."""

import os
import re

import pytest
from bird_fabric import Fabric, Router, eventually
from bird_nodes import ROUTER, bgp, node_beside, rendered, session

from flock.core.birdconf import protocol_name
from flock.core.naming import PROTO_ANNOUNCE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces")

AGGREGATES = {"2001:db8:1::/64", "192.0.2.0/26"}
ANNOUNCED = {"2001:db8:53::1/128", "198.51.100.53/32"}


def link_local(router: Router, link: str = "eth0") -> str:
    found = re.search(r"inet6 (fe80\S+)/64", router.ip("-6", "address", "show", "dev", link))
    assert found
    return found[1]


def test_exactly_the_aggregates_and_marked_routes_arrive_and_no_lan_comes_back(fabric: Fabric) -> None:
    tor = fabric.router("tor")
    node, facts = node_beside(fabric, tor)
    peer = bgp(families=["ipv6", "ipv4"], communities=["64601:100", "64601:1:2"], **{"import": "all"})
    node.start(rendered(facts=facts, bgp=peer, anycast={"communities": ["64601:200"]}), "-R")
    tor.start(ROUTER.format(sessions=session("2001:db8:ffff::11")))
    tor.established("node")

    eventually(lambda: tor.routes("protocol node"), lambda routes: routes == AGGREGATES | ANNOUNCED)
    taken = eventually(lambda: node.routes(f"protocol {protocol_name('tor')}"), lambda routes: len(routes) >= 4)
    assert taken == {"::/0", "2001:db8:77::/48", "0.0.0.0/0", "10.77.0.0/16"}
    installed = eventually(lambda: node.ip("route", "show", "proto", "bird"), lambda text: "10.77" in text)
    assert "default via inet6 2001:db8:ffff::1" in installed and "metric 32" in installed

    aggregate = tor.birdc("show route 2001:db8:1::/64 protocol node all")
    assert "BGP.community: (64601,100)\n" in aggregate and "BGP.large_community: (64601, 1, 2)" in aggregate
    assert "(64601,200)" in tor.birdc("show route 198.51.100.53/32 protocol node all")

    node.ip("route", "del", "2001:db8:53::1/128", "proto", str(PROTO_ANNOUNCE))
    eventually(lambda: tor.routes("protocol node"), lambda routes: routes == AGGREGATES | {"198.51.100.53/32"})


def test_a_link_local_peer_gets_a_global_next_hop(fabric: Fabric) -> None:
    tor = fabric.router("tor")
    node, facts = node_beside(fabric, tor)
    peer = bgp(address=f"{link_local(tor)}%eth0", families=["ipv6", "ipv4"], ttlSecurity=True)
    node.start(rendered(facts=facts, bgp=peer))
    tor.start(ROUTER.format(sessions=session(f"{link_local(node)}%eth0", options="ttl security on;")))
    tor.established("node")
    eventually(lambda: tor.routes("protocol node"), lambda routes: routes == AGGREGATES | ANNOUNCED)
    next_hops = re.findall(r"BGP.next_hop: (\S+)", tor.birdc("show route protocol node all"))
    assert next_hops == ["2001:db8:ffff::11"] * 4


def test_routes_of_a_peer_two_hops_away_find_their_next_hop(fabric: Fabric) -> None:
    far, middle = fabric.router("far"), fabric.router("middle")
    node, facts = node_beside(fabric, middle)
    fabric.link(middle, ["2001:db8:cccc::2/64"], far, ["2001:db8:cccc::1/64"], "eth1")
    node.ip("route", "add", "default", "via", "2001:db8:ffff::1", "metric", "1024", "proto", "static")
    far.ip("route", "add", "2001:db8:ffff::/64", "via", "2001:db8:cccc::2")
    node.start(rendered(facts=facts, bgp=bgp(address="2001:db8:cccc::1", families=["ipv6", "ipv4"], multihop=2,
                                             localAddress="2001:db8:ffff::11")))  # fmt: skip
    far.start(ROUTER.format(sessions=session("2001:db8:ffff::11", local="2001:db8:cccc::1", options="multihop 2;")))
    far.established("node")
    eventually(lambda: far.routes("protocol node"), lambda routes: routes == AGGREGATES | ANNOUNCED)
    for family, way in (("-6", "via 2001:db8:ffff::1"), ("-4", "via inet6 2001:db8:ffff::1")):
        routes = eventually(lambda f=family: node.ip(f, "route", "show", "proto", "bird"), bool)
        assert routes.startswith(f"default {way}")


def test_two_nodes_of_one_as_both_announce_a_shared_address_and_learn_each_other(fabric: Fabric) -> None:
    """Learned kernel routes rank above BGP: else the second node would follow the first and fall silent."""
    tor = fabric.router("tor")
    nodes = [node_beside(fabric, tor, number=number, link=f"eth{number}") for number in (1, 2)]
    sessions = [session(str(facts.addresses[0].address.ip), name=f"node{n}") for n, (_, facts) in enumerate(nodes, 1)]
    tor.start(ROUTER.format(sessions="".join(sessions)))
    for number, (node, facts) in enumerate(nodes, 1):
        router = str(facts.addresses[0].address.network[1])
        node.start(rendered(facts=facts, number=number, bgp=bgp(address=router, allowLocalAS=1, **{"import": "all"})))
        tor.established(f"node{number}")
    for number, (node, _) in enumerate(nodes, 1):
        other = f"2001:db8:{3 - number}::/64"
        eventually(lambda n=node: n.ip("-6", "route", "show", "proto", "bird"), lambda text, o=other: o in text)
        assert "53::1" not in node.ip("-6", "route", "show", "proto", "bird")
        # Seen from the router after the nodes have each other's routes: nobody withdrew.
        eventually(lambda n=number: tor.routes(f"protocol node{n}"), lambda routes: "2001:db8:53::1/128" in routes)


@pytest.mark.parametrize(("secret", "up"), [("same", True), ("other", False)])
def test_a_session_needs_the_right_password(fabric: Fabric, secret: str, up: bool) -> None:
    tor = fabric.router("tor")
    node, facts = node_beside(fabric, tor)
    node.start(rendered(facts=facts, secret=secret, bgp=bgp(passwordFile="/etc/flock/secrets/tor", connectRetry=1)))
    tor.start(ROUTER.format(sessions=session("2001:db8:ffff::11", options='password "same";')))
    if up:
        tor.established("node")
    else:
        with pytest.raises(AssertionError, match="never came to be"):
            eventually(lambda: tor.birdc("show protocols node"), lambda text: "Established" in text, tries=40)


@pytest.mark.parametrize("bfd", [False, True])
def test_a_killed_bird_is_bridged_by_graceful_restart_unless_bfd_reports_it(fabric: Fabric, bfd: bool) -> None:
    tor = fabric.router("tor")
    node, facts = node_beside(fabric, tor)
    conf = rendered(facts=facts, bgp=bgp(bfd={"enabled": bfd, "interval": "100ms"}))
    node.start(conf, "-R")
    options = "bfd { interval 100 ms; multiplier 3; };" if bfd else ""
    tor.start(
        ROUTER.format(sessions=("protocol bfd { }" if bfd else "") + session("2001:db8:ffff::11", options=options))
    )
    wanted = {"2001:db8:1::/64", "2001:db8:53::1/128"}
    eventually(lambda: tor.routes("protocol node"), lambda routes: routes == wanted)
    if bfd:
        eventually(lambda: tor.birdc("show bfd sessions"), lambda text: " Up " in text)
    node.kill()
    eventually(lambda: tor.birdc("show protocols node"), lambda text: "Established" not in text)
    assert tor.routes("protocol node") == (set() if bfd else wanted)
    node.start(conf, "-R")
    tor.established("node")
    eventually(lambda: tor.routes("protocol node"), lambda routes: routes == wanted)


@pytest.mark.slow
def test_ospf_carries_the_same_as_external_routes(fabric: Fabric) -> None:
    tor = fabric.router("tor")
    node, facts = node_beside(fabric, tor)
    interface = {
        "name": "eth0",
        "type": "ptp",
        "helloInterval": 1,
        "deadInterval": 4,
        "authentication": {"keyID": 3, "passwordFile": "/etc/flock/secrets/ospf"},
        "bfd": {"interval": "100ms"},
    }
    node.start(rendered(facts=facts, secret="same", ospf={"areas": [{"id": 0, "interfaces": [interface]}]}))
    tor.start(
        ROUTER.format(
            sessions="protocol bfd { }"
            + "".join(
                f"protocol ospf {version} o{family} {{ {family} {{ import all; export all; }}; area 0 {{ interface"
                ' "eth0" { type ptp; hello 1; dead 4; bfd yes; authentication cryptographic;'
                ' password "same" { id 3; algorithm hmac sha256; }; }; }; }'
                for version, family in (("v3", "ipv6"), ("v2", "ipv4"))
            )
        )
    )

    def external(router: Router) -> set[str]:
        return router.routes("where source = RTS_OSPF_EXT1")

    eventually(lambda: external(tor), lambda routes: routes == AGGREGATES | ANNOUNCED)
    # The router's own external routes come in, but for what lies inside this node's networks and aggregates.
    taken = eventually(lambda: node.routes("where source = RTS_OSPF_EXT2"), lambda routes: len(routes) >= 4)
    assert taken == {"::/0", "2001:db8:77::/48", "0.0.0.0/0", "10.77.0.0/16"}
    assert eventually(lambda: tor.birdc("show bfd sessions"), lambda text: text.count(" Up ") == 2)
