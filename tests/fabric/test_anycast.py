"""Anycast and announced addresses on one fabric: who is announced when, and what traffic makes of it."""

import signal
from collections import Counter

import pytest
from fabric_flows import Conversation, Serve, close_all, count_replicas, open_flows, who_answers
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
    why_not,
)

from flock.edge.netlink.nexthop import LEAVING_IDLE_TIMER
from flock.lab import cni, namespaces
from flock.lab.fabric import Lab
from flock.lab.reach import ping

ANYCAST = {f"{OWN}/anycast": BOTH}


def replicas(lab: Lab, serve: Serve, **places: str) -> None:
    """Ready pods that answer: name=node."""
    for name, node in places.items():
        lab.pods.add(name, node=node, annotations=ANYCAST, ready=True)
        serve(lab, name)


@pytest.mark.parametrize("places", [["n1"], ["n1", "n1"], ["n1", "n2"], ["n1", "n1", "n2"], ["n1", "n1", "n1"]])
def test_every_replica_answers_until_it_is_unready(lab: Lab, serve: Serve, places: list[str]) -> None:
    """An IPv6 address on the pod's `lo` answers, and two pods of a node share it."""
    placed = {f"p{number}": node for number, node in enumerate(places)}
    replicas(lab, serve, **placed)
    while placed:
        sent_to(lab, set(placed.values()))
        for node in ("n1", "n2"):
            local = sorted(host_interface(lab, pod) for pod, where in placed.items() if where == node)
            becomes(lambda n=node: kernel_routes(lab, n), dict.fromkeys((V6, V4), local) if local else {})
        for address in (V6, V4):
            eventually(
                lambda a=address: count_replicas(lab, "client", a, 12 * len(placed)),
                lambda seen, p=set(placed): set(seen) == p,
            )
        gone, _ = placed.popitem()
        lab.pods.set_ready(gone, False)
    sent_to(lab, set())
    assert [loose_nexthops(lab, node) for node in ("n1", "n2")] == [set(), set()]


@pytest.mark.parametrize("replicas_here", [1, 2])
def test_every_withdrawal_and_announcement_is_told_to_bird(lab: Lab, replicas_here: int) -> None:
    """Nothing waits for a timer.  Were BIRD left to find out, a few of so many turns would be late."""
    names = [f"p{number}" for number in range(replicas_here)]
    for name in names:
        lab.pods.add(name, node="n1", annotations=ANYCAST)
    for turn in range(20):
        for name in names:
            lab.pods.set_ready(name, turn % 2 == 0)
        sent_to(lab, {"n1"} if turn % 2 == 0 else set())


def test_flows_spread_evenly_over_the_replicas_of_a_node(lab: Lab, serve: Serve) -> None:
    replicas(lab, serve, a="n1", b="n1", c="n1")
    sent_to(lab, {"n1"})
    for address in (V6, V4):
        seen = eventually(lambda a=address: count_replicas(lab, "client", a, 90), lambda seen: len(seen) == 3)
        assert min(seen.values()) >= 10, seen  # thirty each is fair; a third of that would be very bad luck


@pytest.mark.parametrize("address", [V6, V4])
def test_no_flow_of_a_healthy_replica_breaks_when_another_leaves_or_joins_its_node(
    lab: Lab, serve: Serve, address: str
) -> None:
    """Each of them in turn: with plain multipath it depends on who leaves whose flows move."""
    replicas(lab, serve, a="n1", b="n1", c="n1")
    sent_to(lab, {"n1"})
    for leaving in ("a", "b", "c"):
        flows = open_flows(lab, "client", address, 30)
        healthy = [flow for flow in flows if flow.replica != leaving]
        assert healthy
        for ready, members in ((False, 2), (True, 3)):
            lab.pods.set_ready(leaving, ready)
            becomes(lambda m=members: len(kernel_routes(lab, "n1")[address]), members)
            assert [flow.replica for flow in healthy if not flow.answers()] == []
        close_all(flows)
    flows = open_flows(lab, "client", address, 30)
    healthy = [flow for flow in flows if flow.replica != "b"]
    lab.pods.delete("b")  # leaves for good
    lab.pods.add("d", node="n1", annotations=ANYCAST, ready=True)  # a newcomer
    serve(lab, "d")
    wanted = sorted(host_interface(lab, name) for name in ("a", "c", "d"))
    becomes(lambda: kernel_routes(lab, "n1")[address], wanted)
    eventually(lambda: who_answers(lab, "client", address), lambda who: who == "d")
    assert [flow.replica for flow in healthy if not flow.answers()] == []
    close_all(flows)


def test_a_terminating_pod_finishes_what_it_is_in_the_middle_of_while_its_neighbour_takes_over(
    lab: Lab, serve: Serve
) -> None:
    """Whoever is answered at the very moment is answered to the end; and then the pod is out of it."""
    for attempt in range(5):  # on a machine that stalls, flows fall idle, or it is over before we have looked
        leaving, staying = f"leaving{attempt}", f"staying{attempt}"
        replicas(lab, serve, **{leaving: "n1", staying: "n1"})
        sent_to(lab, {"n1"})
        eventually(lambda: count_replicas(lab, "client", V6, 40), lambda seen: len(seen) == 2)
        flows = open_flows(lab, "client", V6, 20)
        talk = Conversation([flow for flow in flows if flow.replica == leaving])
        both = sorted(host_interface(lab, pod) for pod in (leaving, staying))
        assert talk.goes_on()
        lab.pods.terminate(leaving)
        eventually(
            lambda: talk.goes_on() and weights(lab, "n1"),  # noqa: B023
            lambda seen: not seen or max(seen) > 1,
        )
        answered = [talk.goes_on() for _ in range(5)]
        in_time = kernel_routes(lab, "n1")[V6] == both and talk.longest_silence < LEAVING_IDLE_TIMER / 100
        becomes(lambda: kernel_routes(lab, "n1")[V6], [host_interface(lab, staying)])
        becomes(lambda: set(weights(lab, "n1")), {1})
        assert set(count_replicas(lab, "client", V6, 40)) == {staying}
        close_all(flows)
        for pod in (leaving, staying):
            lab.pods.delete(pod)
        becomes(lambda: loose_nexthops(lab, "n1"), set())
        if in_time:
            assert talk.flows and all(answered)
            return
    raise AssertionError("the kernel never showed a pod that leaves")


def test_pods_that_terminate_one_after_the_other_are_all_on_their_way_out(lab: Lab, serve: Serve) -> None:
    """The second one while the first still says farewell: nothing new for either."""
    for _ in range(5):  # as above
        replicas(lab, serve, a="n1", b="n1", c="n1")
        sent_to(lab, {"n1"})
        eventually(lambda: count_replicas(lab, "client", V6, 60), lambda seen: len(seen) == 3)
        lab.pods.terminate("a")
        eventually(lambda: max(weights(lab, "n1"), default=0) > 1, bool)
        lab.pods.terminate("b")
        light = eventually(lambda: weights(lab, "n1").count(1), lambda seen: seen != 2)
        becomes(lambda: kernel_routes(lab, "n1")[V6], [host_interface(lab, "c")])
        becomes(lambda: set(weights(lab, "n1")), {1})
        for pod in ("a", "b", "c"):
            lab.pods.delete(pod)
        if light == 4:  # two pods in the groups of both families
            return
    raise AssertionError("the kernel never showed two pods that leave")


def weights(lab: Lab, node: str) -> list[int]:
    """Of all members of groups."""
    return [member.get("weight", 1) for row in nexthops(lab, node) for member in row.get("group", ())]


def test_a_terminating_pod_that_was_not_ready_gets_no_farewell(lab: Lab, serve: Serve) -> None:
    replicas(lab, serve, a="n1", b="n1")
    becomes(lambda: len(kernel_routes(lab, "n1").get(V6, ())), 2)
    lab.pods.set_ready("a", False)
    becomes(lambda: kernel_routes(lab, "n1")[V6], [host_interface(lab, "b")])
    lab.pods.terminate("a")
    lab.pods.add("c", node="n1", annotations=ANYCAST, ready=True)  # something else to do
    expected = sorted(host_interface(lab, pod) for pod in ("b", "c"))
    becomes(lambda: kernel_routes(lab, "n1")[V6], expected)
    assert set(weights(lab, "n1")) == {1}


def test_a_terminating_pod_is_withdrawn_while_it_still_answers(lab: Lab, serve: Serve) -> None:
    replicas(lab, serve, leaving="n1", staying="n2")
    sent_to(lab, {"n1", "n2"})
    flows = open_flows(lab, "client", V6, 20)
    try:
        assert Counter(flow.replica for flow in flows)["leaving"] > 0
        lab.pods.terminate("leaving")
        sent_to(lab, {"n2"})
        assert why_not(lab, "n1")["default/leaving", V6] == "the pod is terminating"
        # from now on the pod may stop at any time: nobody new is sent there, but it is still served
        assert set(count_replicas(lab, "client", V6, 20)) == {"staying"}
        assert who_answers(lab, "client", lab.pods.get("leaving").addresses[0], patience=10) == "leaving"
    finally:
        close_all(flows)


def test_an_extra_address_is_announced_while_ready_and_the_primary_from_commit_to_del(lab: Lab) -> None:
    primary, extra = ("2001:db8:54::1", "192.0.2.201"), ("2001:db8:54::2", "192.0.2.202")
    listed = ", ".join((*primary, *extra))
    lab.pods.add("p", node="n1", annotations={f"{OWN}/addresses": listed})

    def is_announced(*addresses: str) -> None:
        follows(lambda: set(received(lab, "n1")) - AGGREGATES["n1"], set(map(host_prefix, addresses)))

    is_announced(*primary)
    lab.pods.set_ready("p", True)
    is_announced(*primary, *extra)
    for address in (*primary, *extra):
        becomes(lambda a=address: [p.reached for p in ping(lab, "client", a)], [True])
    lab.pods.set_ready("p", False)
    is_announced(*primary)
    lab.pods.set_ready("p", True)
    is_announced(*primary, *extra)
    lab.pods.terminate("p")
    is_announced(*primary)
    stop_agent(lab, "n1", signal.SIGKILL)
    start_agent(lab, "n1")
    is_announced(*primary)
    lab.pods.delete("p")
    is_announced()


def test_a_ready_pod_that_is_deleted_without_warning_is_withdrawn(lab: Lab, serve: Serve) -> None:
    """As when a sandbox dies: DEL comes while the pod object still says Ready."""
    replicas(lab, serve, a="n1", b="n2")
    sent_to(lab, {"n1", "n2"})
    pod, node = lab.pods.get("a"), lab.node("n1")
    netns, told = namespaces.NETNS_DIR / pod.netns, {"prevResult": pod.result}
    cni.run(node, "DEL", container=pod.container, netns=netns, args=pod.cni_args, more=told)
    for address in (V6, V4):
        follows(lambda a=address: senders(lab, a), {"n2"})


def test_a_ready_pod_whose_namespace_vanishes_is_withdrawn(lab: Lab) -> None:
    lab.pods.add("a", node="n1", annotations=ANYCAST, ready=True)
    sent_to(lab, {"n1"})
    namespaces.delete(lab.pods.get("a").netns)
    for address in (V6, V4):
        follows(lambda a=address: senders(lab, a), set())
    becomes(lambda: why_not(lab, "n1")["default/a", V6], "the pod's link is gone")


def test_a_pod_that_takes_its_own_link_down_keeps_nobody_else_from_coming_and_going(lab: Lab, serve: Serve) -> None:
    """Invariant 7: what one pod does never affects another."""
    replicas(lab, serve, bad="n1", good="n1")
    lab.pods.add("other", node="n1", annotations={f"{OWN}/anycast": "2001:db8:53::2"}, ready=True)
    sent_to(lab, {"n1"})
    lab.host("bad").run(["ip", "link", "set", "eth0", "down"])
    becomes(lambda: kernel_routes(lab, "n1").get(V6), [host_interface(lab, "good")])
    lab.pods.set_ready("other", False)
    follows(lambda: senders(lab, "2001:db8:53::2"), set())
    lab.pods.set_ready("good", False)
    sent_to(lab, set())
    lab.pods.set_ready("good", True)
    sent_to(lab, {"n1"})
    eventually(lambda: degraded(lab, "n1"), lambda text: host_interface(lab, "bad") in text)
    assert set(count_replicas(lab, "client", V6, 10)) == {"good"}
    lab.host("bad").run(["ip", "link", "set", "eth0", "up"])
    becomes(lambda: kernel_routes(lab, "n1")[V6], sorted(host_interface(lab, name) for name in ("bad", "good")))
    becomes(lambda: degraded(lab, "n1"), "")


def test_a_route_somebody_deletes_comes_back(lab: Lab) -> None:
    lab.pods.add("a", node="n1", annotations=ANYCAST, ready=True)
    sent_to(lab, {"n1"})
    lab.host("n1").run(["ip", "-6", "route", "del", V6, "proto", "134"])
    lab.host("n1").run(["ip", "-4", "route", "del", V4, "proto", "134"])
    becomes(lambda: kernel_routes(lab, "n1").keys(), {V6, V4})
    sent_to(lab, {"n1"})
