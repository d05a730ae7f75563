"""NodeConfigs in, routers' jobs out: pure."""

from typing import Any

import pytest

from flock.core.errors import FieldError
from flock.core.nodeconfig import NodeConfig, parse_node_config
from flock.lab import mirror
from flock.lab.nodeconfigs import generated, plan_for
from flock.lab.router_bird import parse_routes
from flock.lab.topology import TOPOLOGIES, Plan, Topology, plan


def config(name: str = "w1", **spec: Any) -> NodeConfig:
    return parse_node_config(
        {
            "apiVersion": "flock.fritzlab.net/v1alpha1",
            "kind": "NodeConfig",
            "metadata": {"name": name},
            "spec": {"cidr4": ["10.244.1.0/24"]} | spec,
        }
    )


def bgp(*peers: dict[str, Any], asn: int = 65010) -> dict[str, Any]:
    return {"asn": asn, "peers": [{"asn": 65000} | peer for peer in peers]}


def routers(drawn: Plan, *configs: NodeConfig, passwords: mirror.Passwords | None = None) -> dict[str, Any]:
    return {s.name: s for s in mirror.routers(drawn, configs, passwords=passwords or {}, bfd=True)}


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_generated_node_configs_are_valid_and_every_router_expects_every_node(topology: Topology) -> None:
    drawn = plan(nodes=3, routers=2, topology=topology)
    configs = [parse_node_config(c) for c in generated(drawn, bfd=True)]
    assert mirror.strays(drawn, configs) == ()
    for speaker in routers(drawn, *configs).values():
        assert [n.name for n in speaker.neighbours] == ["n1", "n2", "n3", "client"]
        assert all(n.families == ("ipv6", "ipv4") and n.bfd.interval == 100 for n in speaker.neighbours)
        assert [n.default_route for n in speaker.neighbours] == [True, True, True, False]


def test_the_far_end_of_a_session_is_what_the_node_has_on_that_cable() -> None:
    drawn = plan(nodes=2, routers=2, topology="leaf-spine")
    configs = [parse_node_config(c) for c in generated(drawn, bfd=True)]
    second = next(n for n in routers(drawn, *configs)["r2"].neighbours if n.name == "n1")
    assert (second.address, second.local_address, second.asn) == ("2001:db8:ff2:1::2", "2001:db8:ff2:1::1", 64601)


def test_an_operators_own_addresses_get_a_router_each_and_the_node_the_address_they_expect() -> None:
    given = config(
        bgp=bgp({"address": "10.0.0.1"}, {"address": "fd00::1", "localAddress": "fd00::21", "families": ["ipv6"]})
    )
    drawn = plan_for([given])
    node, first, second, _client = drawn.elements
    assert node.addresses == ("10.0.0.101", "fd00::21")
    assert (first.addresses[0], second.addresses[0]) == ("10.0.0.1", "fd00::1")
    found = routers(drawn, given)
    seen = [n.address for router in found.values() for n in router.neighbours if n.name == "w1"]
    assert seen == ["10.0.0.101", "fd00::21"]


def test_a_link_local_peer_is_met_on_the_interface_it_names() -> None:
    given = config(bgp=bgp({"address": "fe80::a%eth0"}))
    (neighbour, _) = routers(plan_for([given]), given)["r1"].neighbours
    assert (neighbour.address, neighbour.interface, neighbour.local_address) == ("fe80::11", "lan", "fe80::a")


def test_a_link_local_peer_on_an_interface_no_lab_node_has_is_refused() -> None:
    with pytest.raises(FieldError, match="bond0"):
        plan_for([config(bgp=bgp({"address": "fe80::a%bond0"}))])


def test_what_guards_the_session_is_mirrored() -> None:
    guards = {"passwordFile": "/secrets/tor", "ttlSecurity": True, "bfd": {"interval": "50ms"}}
    given = config(bgp=bgp({"address": "10.0.0.1"} | guards))
    (neighbour, _) = routers(plan_for([given]), given, passwords={"/secrets/tor": "s3cret"})["r1"].neighbours
    assert (neighbour.password, neighbour.ttl_security, neighbour.bfd.interval) == ("s3cret", True, 50)


def test_routers_speak_ospf_where_a_node_does() -> None:
    drawn = plan(nodes=1, routers=2, topology="leaf-spine")
    area = {"id": "0.0.0.7", "interfaces": [{"name": "eth1", "cost": 5}]}
    found = routers(drawn, config("n1", ospf={"areas": [area]}))
    assert found["r1"].ospf == ()
    assert [(link.interface, link.area, link.settings.cost) for link in found["r2"].ospf] == [("n1", "0.0.0.7", 5)]


def test_a_peer_that_is_no_router_of_the_lab_is_pointed_out() -> None:
    drawn = plan(nodes=1, routers=1, topology="flat")
    assert mirror.strays(drawn, [config("n1", bgp=bgp({"address": "10.9.9.9"}))]) == ("n1: 10.9.9.9",)


BIRD_SAYS = """\
BIRD 2.0.12 ready.
Table master6:
2001:db8:1::/64      unicast [n1_6 05:13:22.123] * (100) [AS64601i]
\tvia 2001:db8:ff1:1::2 on n1
\tType: BGP univ
\tBGP.as_path: 64601
                     unicast [n2_6 05:13:22.125] (100) [AS64602i]
\tvia 2001:db8:ff1:2::2 on n2
\tType: BGP univ
\tBGP.as_path: 64602
                     unicast [client_6 05:13:23.001] (100) [AS64601i]
\tvia 2001:db8:ffc:1::2 on client
\tType: BGP univ
\tBGP.as_path: 64512 64522 64601
2001:db8:ffc:1::/64  unicast [direct6 05:13:21.000] * (240)
\tdev client
\tType: device univ
                     unicast [client_6 05:13:23.001] (100) [AS64512i]
\tvia 2001:db8:ffc:1::2 on client
\tType: BGP univ
\tBGP.as_path: 64512
::/0                 unreachable [static6 05:13:21.000] * (200)
\tType: static univ
"""


def test_birds_table_gives_the_best_learned_routes_and_those_as_good() -> None:
    assert parse_routes(BIRD_SAYS) == {"2001:db8:1::/64": ("2001:db8:ff1:1::2", "2001:db8:ff1:2::2")}
