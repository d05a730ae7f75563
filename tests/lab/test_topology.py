"""The plan: pure, so every size is tried."""

from collections import Counter
from ipaddress import ip_interface, ip_network
from itertools import combinations

import pytest

from flock.core.errors import FieldError
from flock.lab.topology import ADDRESSES, ANYCAST, MOST_NODES, MOST_ROUTERS, TOPOLOGIES, Plan, Topology, plan

SIZES = [(1, 1), (3, 2), (MOST_NODES, MOST_ROUTERS)]


@pytest.fixture(params=[(t, n, r) for t in TOPOLOGIES for n, r in SIZES], ids=str)
def drawn(request: pytest.FixtureRequest) -> Plan:
    topology, nodes, routers = request.param
    return plan(nodes=nodes, routers=routers, topology=topology)


def test_no_two_ports_share_an_address_and_no_two_on_a_bridge_a_link_local_one(drawn: Plan) -> None:
    addresses = Counter(a.split("/")[0] for p in drawn.ports for a in p.addresses)
    link_locals = Counter((p.bridge, p.link_local) for p in drawn.ports)
    assert max(addresses.values()) == 1
    assert max(link_locals.values()) == 1


def test_ports_on_one_bridge_are_in_one_subnet_per_family(drawn: Plan) -> None:
    for bridge in {p.bridge for p in drawn.ports}:
        networks = {ip_interface(a).network for p in drawn.ports if p.bridge == bridge for a in p.addresses}
        assert sorted(n.version for n in networks) == [4, 6]


def test_pods_anycast_and_links_live_in_ranges_of_their_own(drawn: Plan) -> None:
    pods = [ip_network(c) for e in drawn.elements for c in (*e.cidr6, *e.cidr4)]
    links = {ip_interface(a).network for e in drawn.elements for p in e.ports for a in (*p.addresses, *e.loopback)}
    everything = [*pods, *links, *(ip_network(n) for n in (*ANYCAST, *ADDRESSES))]
    clashes = [(a, b) for a, b in combinations(everything, 2) if a.version == b.version and a.overlaps(b)]
    assert clashes == []


def test_every_name_fits_into_an_interface_name_and_is_used_once(drawn: Plan) -> None:
    in_the_switch = Counter([*(p.switch_port for p in drawn.ports), *{p.bridge for p in drawn.ports}])
    in_the_elements = Counter((p.owner, p.ifname) for p in drawn.ports)
    assert max(in_the_switch.values()) == max(in_the_elements.values()) == 1
    assert all(len(name) < 16 for name in (*in_the_switch, *(p.ifname for p in drawn.ports)))


def test_in_a_leaf_spine_every_node_has_a_cable_to_every_router() -> None:
    drawn = plan(nodes=3, routers=2, topology="leaf-spine")
    towards = {(p.owner, p.towards) for e in drawn.role("node") for p in e.ports}
    assert towards == {(f"n{i}", f"r{j}") for i in (1, 2, 3) for j in (1, 2)}


def test_in_a_flat_lab_all_share_one_segment() -> None:
    drawn = plan(nodes=3, routers=2, topology="flat")
    owners = {p.owner for p in drawn.ports if p.bridge == "br-lan"}
    assert owners == {"n1", "n2", "n3", "r1", "r2"}


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize(
    ("field", "nodes", "routers"),
    [("--nodes", 0, 1), ("--nodes", MOST_NODES + 1, 1), ("--routers", 1, 0), ("--routers", 1, MOST_ROUTERS + 1)],
)
def test_a_size_out_of_range_is_refused_by_name(topology: Topology, field: str, nodes: int, routers: int) -> None:
    with pytest.raises(FieldError) as refused:
        plan(nodes=nodes, routers=routers, topology=topology)
    assert refused.value.field == field


def test_an_unknown_link_is_answered_with_the_known_ones() -> None:
    with pytest.raises(FieldError, match="n1-r1"):
        plan(nodes=1, routers=1, topology="leaf-spine").link("n9-r9")
