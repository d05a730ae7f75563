"""The ways a node can meet its routers: link-local, one AS for all nodes, learning everything, OSPF."""

from pathlib import Path
from typing import Any

import pytest
from fabric_flows import Serve, who_answers
from fabric_parts import (
    AGGREGATES,
    BOTH,
    OWN,
    V4,
    V6,
    MakeLab,
    becomes,
    eventually,
    host_prefix,
    kernel_routes,
    node_birdc,
    node_configs,
    received,
    senders,
    told,
    write_configs,
)

from flock.lab.fabric import Lab
from flock.lab.reach import ping
from thoroughness import slowly

ANYCAST = {f"{OWN}/anycast": BOTH}


def installed(lab: Lab, node: str) -> dict[str, str]:
    """What BIRD put into the node's kernel: prefix -> the whole route."""
    shown = [lab.host(node).run(["ip", family, "route", "show", "proto", "bird"]) for family in ("-6", "-4")]
    return {line.split()[0]: line for text in shown for line in text.splitlines() if not line.startswith("\t")}


def learned(lab: Lab, node: str, address: str) -> bool:
    """Does the node's BIRD have a route to the address from a router?"""
    return "Type: BGP" in node_birdc(lab, node, f"show route {host_prefix(address)} all")


@pytest.mark.parametrize("router", ["bird", *slowly("frr", "gobgp")])
def test_a_link_local_peer_learns_both_families_with_a_global_next_hop(
    make_lab: MakeLab, tmp_path: Path, router: str
) -> None:
    """Some routers refuse a route whose only next hop is link-local."""
    (config,) = node_configs(bfd=router != "gobgp")
    config["spec"]["bgp"]["peers"][0]["address"] = "fe80::1%eth0"
    directory = write_configs(tmp_path / "configs", [config])
    lab = make_lab(nodes=1, routers=1, router=router, topology="leaf-spine", nodeconfigs=directory)
    lab.pods.add("a", node="n1", annotations=ANYCAST, ready=True)
    wanted = AGGREGATES["n1"] | {host_prefix(V6), host_prefix(V4)}
    routes = eventually(lambda: received(lab, "n1"), lambda seen: set(seen) == wanted)
    assert set(routes.values()) == {"2001:db8:ff1:1::2"}
    (row,) = told(lab, "n1", "bgp")
    assert (row["address"], row["up"]) == ("fe80::1%eth0", True)
    if router != "gobgp":
        for target in ("a", V6, V4):
            becomes(lambda t=target: all(p.reached for p in ping(lab, "client", t)), True)


@pytest.mark.parametrize("router", ["bird", *slowly("frr")])
def test_two_nodes_that_learn_everything_both_announce_and_serve_a_shared_address(
    make_lab: MakeLab, serve: Serve, tmp_path: Path, router: str
) -> None:
    """`import: all` and one AS for both nodes (`allowLocalAS`), all on one LAN.

    The LAN a router announces back is not learned.  And learned kernel routes rank above BGP: else the
    second node would follow the first, fall silent, and send its own pods' traffic away.
    """
    configs = node_configs(nodes=2, routers=2, topology="flat", bfd=True)
    for config in configs:
        config["spec"]["bgp"]["asn"] = 64600
        for peer in config["spec"]["bgp"]["peers"]:
            peer.update({"import": "all", "allowLocalAS": 1})
    directory = write_configs(tmp_path / "configs", configs)
    lab = make_lab(nodes=2, routers=2, router=router, topology="flat", nodeconfigs=directory)
    for name, node in (("a", "n1"), ("b", "n2")):
        lab.pods.add(name, node=node, annotations=ANYCAST, ready=True)
        serve(lab, name)
    lab.pods.add("asker", node="n1")
    for address in (V6, V4):
        for each in ("r1", "r2"):
            becomes(lambda a=address, r=each: senders(lab, a, r), {"n1", "n2"})
    # a router tells its best route to everybody, so at least one node learned the other's
    for address in (V6, V4):
        eventually(lambda a=address: [learned(lab, node, a) for node in ("n1", "n2")], any)
    # both know each other's pods, and the address is still their own
    for node, other in (("n1", "n2"), ("n2", "n1")):
        eventually(lambda n=node: installed(lab, n).keys(), lambda seen, o=other: AGGREGATES[o] <= seen)
        assert not {V6, V4, "2001:db8:ffff::/64", "198.51.100.0/24"} & installed(lab, node).keys()
        assert {V6, V4} == kernel_routes(lab, node).keys()
    for node in ("n1", "n2"):
        assert set(received(lab, node)) == AGGREGATES[node] | {host_prefix(V6), host_prefix(V4)}
    for source, answer in (("asker", "a"), ("n1", "a"), ("n2", "b")):
        for address in (V6, V4):
            for _ in range(5):
                assert who_answers(lab, source, address) == answer
    # without a replica of its own, a node's pods are served by the other's
    lab.pods.set_ready("a", False)
    for address in (V6, V4):
        eventually(lambda a=address: who_answers(lab, "asker", a), lambda who: who == "b")
    becomes(lambda: [p.reached for p in ping(lab, "asker", "b")], [True, True])


def ospf_config(config: dict[str, Any]) -> dict[str, Any]:
    timers = {"type": "ptp", "helloInterval": "1s", "deadInterval": "4s"}
    link = {"name": "eth0", "bfd": {"interval": "100ms"}, **timers}
    config["spec"]["ospf"] = {"areas": [{"id": "0.0.0.0", "interfaces": [link]}]}
    del config["spec"]["bgp"]
    return config


@pytest.mark.slow
def test_ospf_carries_aggregates_and_announced_addresses_as_they_come_and_go(make_lab: MakeLab, tmp_path: Path) -> None:
    """Both daemons at once: OSPF takes its time."""
    directory = write_configs(tmp_path / "configs", map(ospf_config, node_configs()))
    labs = [
        make_lab(nodes=1, routers=1, router=router, topology="leaf-spine", nodeconfigs=directory, settled=False)
        for router in ("bird", "frr")
    ]
    anycast = {host_prefix(V6), host_prefix(V4)}

    def from_node(lab: Lab) -> set[str]:
        routes = lab.router("r1").routes().items()
        return {prefix for prefix, hops in routes if any(lab.owner(hop) == "n1" for hop in hops)}

    for lab in labs:
        lab.node("n1").wait_ready()
        lab.pods.add("a", node="n1", annotations=ANYCAST, ready=True)
    for lab in labs:
        becomes(lambda it=lab: from_node(it), AGGREGATES["n1"] | anycast, within=40)
    for lab in labs:
        lab.pods.set_ready("a", False)
    for lab in labs:
        becomes(lambda it=lab: from_node(it), AGGREGATES["n1"])
        (seen, *_) = told(lab, "n1", "bgp")
        assert (seen["kind"], seen["up"]) == ("OSPF", True)
        becomes(lambda it=lab: [p.reached for p in ping(it, "r1", "a")], [True, True])
