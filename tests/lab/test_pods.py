"""Pods in a lab with real agents: what the runtime's and the kubelet's parts have to get right."""

from collections.abc import Iterator

import pytest
from lab_making import new_name, remove, traces

from flock.lab import namespaces
from flock.lab.cni import CniError
from flock.lab.fabric import Lab
from flock.lab.hosts import wait_until
from flock.lab.reach import ask, ping
from flock.lab.traffic import summary

SETTLE = 15.0
ANYCAST = {"flock.fritzlab.net/anycast": "2001:db8:53::1, 192.0.2.1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Lab]:
    name = new_name()
    try:
        lab = Lab.up(name=name, nodes=2)
        lab.wait()
        yield lab
    finally:
        remove(name)
    assert traces(name) == []


@pytest.fixture
def lab(cluster: Lab) -> Iterator[Lab]:
    """The lab, with no pods before and after."""
    yield cluster
    for pod in list(cluster.pods):
        cluster.pods.delete(pod.key)


def announced(lab: Lab, address: str) -> set[str]:
    return {lab.owner(hop) for hop in lab.router("r1").routes().get(address, ())}


def test_pods_of_two_nodes_reach_each_other_over_both_families(lab: Lab) -> None:
    lab.pods.add("a", node="n1")
    lab.pods.add("b", node="n2")
    answers = ping(lab, "a", "b")
    assert [":" in answer.address for answer in answers] == [True, False]
    assert all(answer.reached for answer in answers)


def test_readiness_decides_who_answers_the_anycast_address(lab: Lab) -> None:
    for name, node in (("a", "n1"), ("b", "n2")):
        lab.pods.add(name, node=node, annotations=ANYCAST)
        lab.pods.serve(name)
        lab.pods.set_ready(name, True)
    assert wait_until(lambda: announced(lab, "192.0.2.1/32") == {"n1", "n2"}, timeout=SETTLE)
    assert set(summary(ask(lab, "client", "2001:db8:53::1", every=0.005, duration=0.5)).by_replica) == {"a", "b"}
    lab.pods.set_ready("a", False)
    assert wait_until(lambda: announced(lab, "2001:db8:53::1/128") == {"n2"}, timeout=SETTLE)
    assert wait_until(
        lambda: set(summary(ask(lab, "client", "2001:db8:53::1", duration=0.2)).by_replica) == {"b"}, timeout=SETTLE
    )


def test_a_refused_pod_is_answered_with_the_plugins_own_words_and_leaves_nothing(lab: Lab) -> None:
    with pytest.raises(CniError, match=r"203\.0\.113\.99"):
        lab.pods.add("greedy", node="n1", annotations={"flock.fritzlab.net/anycast": "203.0.113.99"})
    assert list(lab.pods) == []
    assert not any("greedy" in space for space in namespaces.present(lab.name))
    assert not list(lab.home.manifests.glob("*greedy*"))


def test_a_deleted_pod_leaves_nothing(lab: Lab) -> None:
    lab.pods.add("short-lived", node="n1", namespace="jobs")
    lab.pods.serve("jobs/short-lived")
    lab.pods.delete("jobs/short-lived")
    assert not any("short-lived" in space for space in namespaces.present(lab.name))
    assert "flock" not in lab.host("n1").run(["ip", "-br", "link"])


def test_a_killed_node_comes_back_with_its_pods(lab: Lab) -> None:
    lab.pods.add("a", node="n1", annotations=ANYCAST, ready=True)
    assert wait_until(lambda: announced(lab, "192.0.2.1/32") == {"n1"}, timeout=SETTLE)
    lab.kill("n1")
    assert wait_until(lambda: not announced(lab, "192.0.2.1/32"), timeout=SETTLE)
    lab.revive("n1")
    lab.wait()
    assert wait_until(lambda: announced(lab, "192.0.2.1/32") == {"n1"}, timeout=SETTLE)
    assert all(answer.reached for answer in ping(lab, "client", "a"))
