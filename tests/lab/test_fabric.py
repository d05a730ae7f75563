"""The lab itself, without agents: each kind of router, links that are cut, nodes that die.

What a lab does to pods is tested with the agent.
"""

import pytest
from lab_making import MakeLab

from flock.lab.fabric import Lab
from flock.lab.hosts import wait_until
from flock.lab.reach import ping

# Well below the hold time of nine seconds: whoever notices in this time was told by BFD.
BY_BFD = 4.0
# A session that broke needs a few seconds of back-off.
SETTLE = 15.0


def through(lab: Lab, router: str, prefix: str) -> set[str]:
    """The elements a router sends a prefix to."""
    return {lab.owner(hop) for hop in lab.router(router).routes().get(prefix, ())}


def from_nodes(lab: Lab, router: str) -> dict[str, set[str]]:
    """What a router has learned from nodes, and from which."""
    nodes = {e.name for e in lab.plan.role("node")}
    found = {prefix: {lab.owner(hop) for hop in hops} for prefix, hops in lab.router(router).routes().items()}
    return {prefix: owners for prefix, owners in found.items() if owners <= nodes}


def test_routers_learn_exactly_the_aggregates_of_both_families(fabric: Lab) -> None:
    aggregates = {c: {e.name} for e in fabric.plan.role("node") for c in (*e.cidr6, *e.cidr4)}
    for router in ("r1", "r2"):
        assert wait_until(lambda r=router: from_nodes(fabric, r) == aggregates, timeout=SETTLE)


def test_the_client_spreads_over_all_routers(fabric: Lab) -> None:
    for prefix in ("2001:db8:1::/64", "100.64.1.0/24"):
        assert wait_until(lambda p=prefix: through(fabric, "client", p) == {"r1", "r2"}, timeout=SETTLE)


def test_client_and_nodes_reach_each_other_over_both_families(forwarding: Lab) -> None:
    for source, target in (("client", "n1"), ("n1", "n2"), ("n2", "client")):
        assert wait_until(lambda a=source, b=target: all(p.reached for p in ping(forwarding, a, b)), timeout=SETTLE)


@pytest.mark.parametrize("address", ["2001:db8:53::1/128", "192.0.2.1/32"])
def test_a_kernel_route_of_two_nodes_appears_with_two_next_hops_and_goes_with_them(fabric: Lab, address: str) -> None:
    route = ["ip", "route"] if "." in address else ["ip", "-6", "route"]
    for node in ("n1", "n2"):
        fabric.host(node).run([*route, "add", address, "dev", "lo", "proto", "static"])
    assert wait_until(lambda: through(fabric, "r1", address) == {"n1", "n2"}, timeout=SETTLE)
    for node in ("n1", "n2"):
        fabric.host(node).run([*route, "del", address, "dev", "lo", "proto", "static"])
    assert wait_until(lambda: not fabric.router("r1").routes().get(address), timeout=SETTLE)


def test_a_cut_link_is_noticed_by_bfd_alone_and_traffic_takes_the_other_leaf(forwarding: Lab) -> None:
    forwarding.cut("n1-r1")
    try:
        assert wait_until(lambda: "n1" not in through(forwarding, "r1", "2001:db8:1::/64"), timeout=BY_BFD)
        for name, port in (("n1", "eth0"), ("r1", "n1")):
            assert "LOWER_UP" in forwarding.host(name).run(["ip", "link", "show", port])
        assert wait_until(lambda: through(forwarding, "r1", "2001:db8:1::/64") == {"client"}, timeout=SETTLE)
        assert through(forwarding, "r2", "2001:db8:1::/64") == {"n1"}
    finally:
        forwarding.mend("n1-r1")
    assert wait_until(lambda: through(forwarding, "r1", "2001:db8:1::/64") == {"n1"}, timeout=SETTLE)


def test_a_killed_node_is_noticed_by_bfd_and_comes_back(forwarding: Lab) -> None:
    forwarding.kill("n2")
    try:
        assert wait_until(lambda: not through(forwarding, "r1", "100.64.2.0/24") & {"n2"}, timeout=BY_BFD)
        assert not forwarding.node("n2").host.running("bird")
    finally:
        forwarding.revive("n2")
    forwarding.wait()
    assert through(forwarding, "r1", "100.64.2.0/24") == {"n2"}


def test_a_router_can_be_started_again(fabric: Lab) -> None:
    """What its daemon wrote before must not be in its way."""
    fabric.router("r2").stop()
    fabric.router("r2").start()
    fabric.wait()


def test_in_a_flat_lab_everyone_meets_on_one_segment(make_lab: MakeLab) -> None:
    lab = make_lab(topology="flat", nodes=2)
    aggregates = {c: {e.name} for e in lab.plan.role("node") for c in (*e.cidr6, *e.cidr4)}
    assert wait_until(lambda: from_nodes(lab, "r1") == aggregates, timeout=SETTLE)
