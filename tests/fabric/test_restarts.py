"""What dies without traffic noticing, and what has to be noticed: BIRD with and without BFD, the agent, a node."""

import signal
from collections.abc import Iterator

import pytest
from fabric_flows import Serve, close_all, open_flows, who_answers
from fabric_parts import (
    AGGREGATES,
    BOTH,
    OWN,
    V4,
    V6,
    becomes,
    bird_conf,
    established,
    eventually,
    host_prefix,
    kernel_routes,
    new_name,
    nexthops,
    node_birdc,
    node_configs,
    received,
    reloads,
    remove,
    senders,
    start_agent,
    stop_agent,
    up_since,
    write_configs,
)

from flock.lab.fabric import Lab
from flock.lab.router_bird import ROLE as BIRD
from thoroughness import slowly

ANYCAST = {f"{OWN}/anycast": BOTH}
EVERYTHING = AGGREGATES["n1"] | {host_prefix(V6), host_prefix(V4)}
# Well below the hold time of nine seconds: whoever notices in this time was told by BFD.
BY_BFD = 4.0


@pytest.fixture(scope="module", params=["bird", *slowly("frr")])
def without_bfd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One node whose sessions have graceful restart and no BFD, with a pod that answers an anycast address."""
    name, directory = new_name(), tmp_path_factory.mktemp("configs")
    try:
        configs = write_configs(directory, node_configs())
        lab = Lab.up(name=name, nodes=1, routers=1, router=request.param, topology="leaf-spine", nodeconfigs=configs)
        lab.wait()
        lab.pods.add("a", node="n1", annotations=ANYCAST, ready=True)
        becomes(lambda: set(received(lab, "n1")), EVERYTHING)
        yield lab
    finally:
        remove(name)


def installed(lab: Lab) -> set[str]:
    """What the router forwards to the node by its own kernel."""
    shown = [lab.host("r1").run(["ip", family, "route", "show"]) for family in ("-6", "-4")]
    kept = EVERYTHING | {V6, V4}
    return {line.split()[0] for text in shown for line in text.splitlines()} & kept


@pytest.mark.parametrize("how", ["killed", "planned"])
def test_routers_keep_forwarding_while_bird_is_away(without_bfd: Lab, serve: Serve, how: str) -> None:
    """Graceful restart: `-R`, and `birdc graceful restart` for a stop that is planned."""
    lab, node = without_bfd, without_bfd.node("n1")
    serve(lab, "a")
    becomes(lambda: established(lab, "n1"), True)
    before = eventually(lambda: installed(lab), lambda seen: len(seen) == 4)
    flows = [flow for address in (V6, V4) for flow in open_flows(lab, "r1", address, 5)]

    def nothing_is_missed() -> None:
        for _ in range(10):
            assert installed(lab) == before
            assert all(flow.answers() for flow in flows)
            assert [who_answers(lab, "r1", address, patience=10) for address in (V6, V4)] == ["a", "a"]

    try:
        if how == "killed":
            node.host.stop(BIRD, by=signal.SIGKILL)
        else:
            node_birdc(lab, "n1", "graceful restart")
            becomes(lambda: node.host.running(BIRD), False)
        becomes(lambda: established(lab, "n1"), False)
        nothing_is_missed()
    finally:
        node.start_bird()
    becomes(lambda: established(lab, "n1"), True)
    nothing_is_missed()
    becomes(lambda: set(received(lab, "n1")), EVERYTHING)
    close_all(flows)


def test_what_changed_while_bird_was_away_is_right_when_it_is_back(without_bfd: Lab) -> None:
    """Graceful restart keeps what was announced, and no longer than that."""
    lab, node = without_bfd, without_bfd.node("n1")
    becomes(lambda: established(lab, "n1"), True)
    node.host.stop(BIRD, by=signal.SIGKILL)
    lab.pods.set_ready("a", False)
    becomes(lambda: kernel_routes(lab, "n1"), {})
    node.start_bird()
    becomes(lambda: set(received(lab, "n1")), AGGREGATES["n1"])
    lab.pods.set_ready("a", True)
    becomes(lambda: set(received(lab, "n1")), EVERYTHING)


def test_with_bfd_a_dead_bird_is_noticed_at_once_and_traffic_moves(forwarding: Lab, serve: Serve) -> None:
    lab = forwarding
    for name, node in (("a", "n1"), ("b", "n2")):
        lab.pods.add(name, node=node, annotations=ANYCAST, ready=True)
        serve(lab, name)
    for router in ("r1", "r2"):
        becomes(lambda r=router: senders(lab, V6, r), {"n1", "n2"})
    assert {session.bfd for session in lab.router("r1").sessions()} == {"up"}
    lab.node("n1").host.stop(BIRD, by=signal.SIGKILL)
    for router in ("r1", "r2"):
        becomes(lambda r=router: senders(lab, V6, r), {"n2"}, within=BY_BFD)
    for _ in range(10):
        eventually(lambda: who_answers(lab, "client", V6), lambda who: who == "b")
    lab.node("n1").start_bird()
    for router in ("r1", "r2"):
        becomes(lambda r=router: senders(lab, V6, r), {"n1", "n2"})


def test_a_killed_agent_changes_nothing_at_all(forwarding: Lab, serve: Serve) -> None:
    """Not a route, a next hop, a session, a line of bird.conf, nor a flow; then the next one catches up."""
    lab = forwarding
    for name in ("a", "b"):
        lab.pods.add(name, node="n1", annotations=ANYCAST, ready=True)
        serve(lab, name)
    becomes(lambda: set(received(lab, "n1")), EVERYTHING)
    becomes(lambda: senders(lab, V6, "r2"), {"n1"})
    becomes(lambda: {len(hops) for hops in kernel_routes(lab, "n1").values()}, {2})  # both pods

    def picture() -> tuple[object, ...]:
        routes = kernel_routes(lab, "n1"), nexthops(lab, "n1"), received(lab, "n1")
        return (*routes, bird_conf(lab, "n1"), reloads(lab, "n1"), established(lab, "n1"))

    flows = open_flows(lab, "client", V6, 20)
    try:
        since, before = up_since(lab, "n1"), picture()
        stop_agent(lab, "n1", signal.SIGKILL)
        for _ in range(5):
            assert picture() == before
            assert all(flow.answers() for flow in flows)
        start_agent(lab, "n1")
        assert eventually(lambda: up_since(lab, "n1"), bool) == since
        assert (kernel_routes(lab, "n1"), nexthops(lab, "n1")) == before[:2]
        assert all(flow.answers() for flow in flows)
        stop_agent(lab, "n1", signal.SIGKILL)
        lab.pods.set_ready("a", False)
        assert kernel_routes(lab, "n1") == before[0]
        start_agent(lab, "n1")
        becomes(lambda: len(kernel_routes(lab, "n1")[V6]), 1)
        assert all(flow.answers() for flow in flows if flow.replica == "b")
    finally:
        close_all(flows)


def test_a_killed_node_is_noticed_by_bfd_and_its_replica_is_not_missed(forwarding: Lab, serve: Serve) -> None:
    lab = forwarding
    for name, node in (("a", "n1"), ("b", "n2")):
        lab.pods.add(name, node=node, annotations=ANYCAST, ready=True)
        serve(lab, name)
    for router in ("r1", "r2"):
        becomes(lambda r=router: senders(lab, V4, r), {"n1", "n2"})
    lab.kill("n2")
    try:
        for router in ("r1", "r2"):
            becomes(lambda r=router: senders(lab, V4, r), {"n1"}, within=BY_BFD)
        for _ in range(10):
            eventually(lambda: who_answers(lab, "client", V4), lambda who: who == "a")
    finally:
        lab.revive("n2")
        lab.wait()
    becomes(lambda: senders(lab, V4), {"n1", "n2"})
