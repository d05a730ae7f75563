"""Pods run, are reached and go away through a real container runtime: containerd and runc, driven over CRI."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address, ip_network
from itertools import pairwise

import grpc  # type: ignore[import-untyped]
import pytest
from containerd import Containerd, Sandbox
from runtime_agent import ANYCAST, CIDR4, CIDR6, Agent
from runtime_node import Node

IPV4_OFF = {"flock.fritzlab.net/ipv4": "false"}
IPV6_OFF = {"flock.fritzlab.net/ipv6": "false"}


def network(node: Node) -> dict[str, list[str]]:
    """All links, routes and permanent neighbours of the node."""
    shown = {
        "links": ("-br", "link"),
        "routes6": ("-6", "route", "show", "table", "all"),
        "routes4": ("-4", "route", "show", "table", "all"),
        "neighbours": ("neighbour", "show", "nud", "permanent"),
    }
    return {what: sorted(node.run("ip", *arguments).splitlines()) for what, arguments in shown.items()}


def families(pod: Sandbox) -> list[int]:
    return [ip_address(address).version for address in pod.addresses]


def remove(pod: Sandbox) -> None:
    """As the kubelet does, which may well stop a sandbox more than once."""
    pod.stop()
    pod.stop()
    pod.remove()


def test_twenty_pods_started_at_once_reach_each_other_and_leave_nothing_behind(
    node: Node, agent: Agent, runtime: Containerd
) -> None:
    untouched = network(node)
    with ThreadPoolExecutor(max_workers=20) as at_once:
        pods = list(at_once.map(runtime.run_pod, [f"pod{number}" for number in range(20)]))

        assert [families(pod) for pod in pods] == [[6, 4]] * 20, "primary addresses, IPv6 first"
        assert agent.allocations() == {pod.name: pod.addresses for pod in pods}
        assert len({address for pod in pods for address in pod.addresses}) == 40
        for ip6, ip4 in (pod.addresses for pod in pods):
            assert ip_address(ip6) in ip_network(CIDR6)
            assert ip_address(ip4) in ip_network(CIDR4)
        for pod, other in pairwise([*pods, pods[0]]):
            for address in other.addresses:
                pod.ping(address)

        list(at_once.map(remove, pods))
    assert runtime.sandboxes() == []
    assert agent.allocations() == {}
    assert network(node) == untouched


def test_annotations_of_a_pod_without_a_manifest_arrive_through_the_runtime(runtime: Containerd) -> None:
    only6 = runtime.run_pod("only6", annotations=IPV4_OFF)
    only4 = runtime.run_pod("only4", annotations=IPV6_OFF)
    both = runtime.run_pod("both")

    assert (families(only6), families(only4)) == ([6], [4])
    ip6, ip4 = both.addresses
    only6.ping(ip6)
    only4.ping(ip4)


@pytest.mark.slow
def test_twenty_anycast_pods_started_at_once_do_not_disturb_the_runtimes_loopback_plugin(runtime: Containerd) -> None:
    """containerd runs that plugin beside ours, and it fails a pod whose `lo` has an address already."""
    start = partial(runtime.run_pod, annotations={"flock.fritzlab.net/anycast": ANYCAST})
    with ThreadPoolExecutor(max_workers=20) as at_once:
        pods = list(at_once.map(start, [f"pod{number}" for number in range(20)]))
        for pod in pods:
            pod.ping(ANYCAST)
        list(at_once.map(remove, pods))


def test_a_bad_annotation_fails_the_pod_with_its_name_and_changes_nothing(
    node: Node, agent: Agent, runtime: Containerd
) -> None:
    untouched = network(node)

    with pytest.raises(grpc.RpcError, match=re.escape("flock.fritzlab.net/ipv4")):
        runtime.run_pod("bad", annotations={"flock.fritzlab.net/ipv4": "perhaps"})

    assert runtime.sandboxes() == []
    assert agent.allocations() == {}
    assert network(node) == untouched


def test_pods_outlive_a_killed_agent_and_stop_when_it_is_back(node: Node, agent: Agent, runtime: Containerd) -> None:
    untouched = network(node)
    one, other = runtime.run_pod("one"), runtime.run_pod("other")

    agent.kill()
    for address in other.addresses:
        one.ping(address)
    with ThreadPoolExecutor() as meanwhile:
        stopped = meanwhile.submit(one.stop)  # with no agent there: the executable waits for it
        agent.start()
        stopped.result()
    one.remove()
    remove(other)

    assert agent.allocations() == {}
    assert network(node) == untouched


def test_a_pod_can_be_started_while_the_agent_restarts(agent: Agent, runtime: Containerd) -> None:
    agent.kill()
    with ThreadPoolExecutor() as meanwhile:
        started = meanwhile.submit(runtime.run_pod, "early")
        agent.start()

        assert families(started.result()) == [6, 4]


def test_pods_outlive_a_restarted_runtime_and_stop_after_it(node: Node, agent: Agent, runtime: Containerd) -> None:
    untouched = network(node)
    one, other = runtime.run_pod("one"), runtime.run_pod("other")

    runtime.restart()
    for address in other.addresses:
        one.ping(address)
    remove(one)
    remove(other)

    assert agent.allocations() == {}
    assert network(node) == untouched
