"""Anycast through flapping and crashes: whatever dies when, the next agent leaves the right state and no leaks."""

import random
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence

import pytest
from fabric_parts import (
    AGGREGATES,
    BOTH,
    OWN,
    V4,
    V6,
    becomes,
    degraded,
    eventually,
    follows,
    host_interface,
    host_prefix,
    kernel_routes,
    loose_nexthops,
    nexthops,
    received,
    senders,
    sent_to,
    start_agent,
    stop_agent,
)

from flock.core.announcing import Via
from flock.edge.kernel.announce import Changes, announce
from flock.edge.netlink.route import Request
from flock.edge.netlink.socket import Netlink
from flock.lab.fabric import Lab
from namespaces import within

ANYCAST = {f"{OWN}/anycast": BOTH}


@pytest.mark.parametrize("last", [True, False])
def test_readiness_flapping_a_hundred_times_leaves_the_right_state(lab: Lab, last: bool) -> None:
    lab.pods.add("a", node="n1", annotations=ANYCAST)
    lab.pods.add("steady", node="n1", annotations={f"{OWN}/anycast": "2001:db8:53::2"}, ready=True)
    for turn in range(100):
        lab.pods.set_ready("a", turn % 2 == 0)
    lab.pods.set_ready("a", last)
    sent_to(lab, {"n1"} if last else set())
    steady = {"2001:db8:53::2"}
    becomes(lambda: kernel_routes(lab, "n1").keys(), {V6, V4, *steady} if last else steady)
    # one for each pod and family, a group for each address; those of the withdrawn go a little later
    becomes(lambda: len(nexthops(lab, "n1")), 6 if last else 2)
    assert degraded(lab, "n1") == ""


def test_an_agent_killed_at_random_moments_of_flapping_converges(lab: Lab) -> None:
    dice = random.Random(53)
    for name in ("a", "b"):
        lab.pods.add(name, node="n1", annotations=ANYCAST)
    stop = threading.Event()

    def flap() -> None:
        turn = 0
        while not stop.wait(dice.uniform(0, 0.01)):
            turn += 1
            lab.pods.set_ready("ab"[turn % 2], dice.random() < 0.5)

    flapping = threading.Thread(target=flap)
    flapping.start()
    try:
        for _ in range(5):
            stop.wait(dice.uniform(0, 0.2))
            stop_agent(lab, "n1", signal.SIGKILL)
            lab.node("n1").start_agent()
            stop.wait(dice.uniform(0, 0.5))  # some die while they start
        lab.node("n1").wait_ready()
    finally:
        stop.set()
        flapping.join()
    for ready in (("a",), ("a", "b"), ("b",), ()):
        for name in ("a", "b"):
            lab.pods.set_ready(name, name in ready)
        wanted = sorted(host_interface(lab, name) for name in ready)
        becomes(lambda w=wanted: kernel_routes(lab, "n1"), dict.fromkeys((V6, V4), wanted) if wanted else {})
        sent_to(lab, {"n1"} if ready else set())
    becomes(lambda: nexthops(lab, "n1"), [])  # withdrawn addresses are delivered a little longer, then nothing is left


@pytest.mark.slow
@pytest.mark.timeout(600)  # a life for each step; on a busy machine they take their time
def test_an_agent_killed_between_any_two_steps_of_announcing_converges(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent starts with something to announce and something to withdraw, and dies before its n-th conversation
    with the kernel; the next one finds whatever was left."""
    carried = {"a": {V6, V4}, "b": {V6, "2001:db8:53::2"}}
    for name, addresses in carried.items():
        lab.pods.add(name, node="n1", annotations={f"{OWN}/anycast": ", ".join(sorted(addresses))})
    interfaces = {name: host_interface(lab, name) for name in carried}
    found_done: list[bool] = []
    for step in range(20, 90):  # from before the first change until after the last
        if found_done[-2:] == [True, True]:
            break
        leaving, coming = ("a", "b") if step % 2 else ("b", "a")
        wanted = {address: [interfaces[coming]] for address in carried[coming]}
        stop_agent(lab, "n1", signal.SIGKILL)
        lab.pods.set_ready(leaving, False)
        lab.pods.set_ready(coming, True)
        with monkeypatch.context() as patch:
            patch.setenv("FLOCK_FAULT", f"netlink.send=kill@{step}")
            lab.node("n1").start_agent()
        eventually(lambda w=wanted: kernel_routes(lab, "n1") == w or not lab.node("n1").host.running("agent"), bool)
        found_done.append(kernel_routes(lab, "n1") == wanted)
        stop_agent(lab, "n1", signal.SIGKILL)
        start_agent(lab, "n1")
        becomes(lambda w=wanted: kernel_routes(lab, "n1"), wanted)
        becomes(lambda: loose_nexthops(lab, "n1"), set())
        follows(lambda: set(received(lab, "n1")), AGGREGATES["n1"] | set(map(host_prefix, wanted)))
    assert set(found_done) == {True, False}, "the steps looked at are not those of announcing any more"


def test_what_is_to_be_withdrawn_may_be_gone_already() -> None:
    """Somebody deletes routes and next hops between our look and our deletion."""

    class Meddled(Netlink):
        def run(self, requests: Sequence[Request], *, ignore: Sequence[int] = ()) -> None:
            for what in (["-6", "route"], ["-4", "route"], ["nexthop"]):
                subprocess.run(["ip", *what, "flush", "proto", "134"], check=False, capture_output=True)
            super().run(requests, ignore=ignore)

    def in_a_namespace_of_its_own() -> tuple[Changes, ...]:
        for command in ("link add flock00000001 type veth peer name far", "link set far up", "link set lo up"):
            subprocess.run(["ip", *command.split()], check=True)
        subprocess.run(["ip", "link", "set", "flock00000001", "up"], check=True)
        indexes = {"flock00000001": socket.if_nametoindex("flock00000001")}
        vias = {V6: (Via("2001:db8:1::5", "flock00000001"),), V4: (Via("100.64.1.5", "flock00000001"),)}
        with Netlink() as plain, Meddled() as meddled:
            return tuple(
                announce(netlink, wanted, leaving={}, indexes=indexes, lingers=lambda _: False)
                for netlink, wanted in ((plain, vias), (meddled, {}), (plain, vias), (plain, {}), (meddled, {}))
            )

    made, gone, again, lingering, over = within(None, in_a_namespace_of_its_own)
    assert [made.announced, again.announced] == [[V6, V4]] * 2
    assert [len(gone.withdrawn), len(lingering.withdrawn), len(over.withdrawn)] == [2, 2, 0]


def test_what_a_killed_agent_left_goes_when_the_next_one_starts_and_what_is_not_ours_stays(lab: Lab) -> None:
    """What is announced is read from the kernel, not remembered."""
    lab.pods.add("a", node="n1", annotations=ANYCAST, ready=True)
    lab.pods.add("b", node="n1", annotations={f"{OWN}/anycast": V6}, ready=True)
    becomes(lambda: len(kernel_routes(lab, "n1").get(V6, ())), 2)
    stop_agent(lab, "n1", signal.SIGKILL)
    lab.pods.set_ready("a", False)
    n1, veth = lab.host("n1"), host_interface_by_name(lab, "b")
    # a death between two steps: a next hop without group, a group without route, a route nobody asked for
    via = ["via", lab.pods.get("b").addresses[0], "dev", veth, "onlink"]
    n1.run(["ip", "nexthop", "add", "id", "7001", *via, "proto", "134"])
    n1.run(["ip", "nexthop", "add", "id", "7002", *via, "proto", "134"])
    n1.run(["ip", "nexthop", "add", "id", "7003", "group", "7002", "type", "resilient", "buckets", "8", "proto", "134"])
    n1.run(["ip", "-6", "route", "add", "2001:db8:53::66/128", "nhid", "7003", "proto", "134", "metric", "20"])
    n1.run(["ip", "nexthop", "add", "id", "9001", *via, "proto", "static"])
    n1.run(["ip", "-6", "route", "add", "2001:db8:99::1/128", "nhid", "9001", "proto", "static"])
    follows(lambda: senders(lab, "2001:db8:53::66"), {"n1"})
    start_agent(lab, "n1")
    becomes(lambda: kernel_routes(lab, "n1"), {V6: [veth]})
    follows(lambda: set(received(lab, "n1")), AGGREGATES["n1"] | {host_prefix(V6)})
    becomes(lambda: {row["id"] for row in nexthops(lab, "n1")} & {7001, 7002, 7003}, set())
    assert "nhid 9001" in n1.run(["ip", "-6", "route", "show", "2001:db8:99::1"])
    n1.run(["ip", "nexthop", "del", "id", "9001"])


def host_interface_by_name(lab: Lab, pod: str) -> str:
    """Without an agent to ask: the alias tells."""
    for line in lab.host("n1").run(["ip", "-o", "link", "show"]).splitlines():
        if f"pod=default/{pod} " in line:
            return line.split(": ")[1].split("@")[0]
    raise AssertionError(f"no link of {pod}")
