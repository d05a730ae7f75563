"""Refused policies of an API server: told to whoever wrote them, and what an object made anew inherits."""

from collections.abc import Iterator
from typing import Any

import pytest
from clustered import NAMESPACE, UID, Clustered, clustered, pod

from harness import Node, eventually

WRONG = [{"from": [{"ipBlock": {"cidr": "010.9.0.0/16"}}]}]


@pytest.fixture
def cluster(fresh: Node) -> Iterator[Clustered]:
    """shop/web is attached here."""
    with clustered(fresh) as made:
        made.configure()
        made.api.put(pod("web", labels={"app": "web"}))
        made.start()
        made.add("web", uid=UID)
        yield made


def policy(name: str, *, app: str = "web", ingress: list[Any] = WRONG) -> dict[str, Any]:
    spec = {"podSelector": {"matchLabels": {"app": app}}, "ingress": ingress}
    return {"kind": "NetworkPolicy", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def told(cluster: Clustered) -> dict[str, str]:
    events = [event for event in cluster.api.all("Event") if event["reason"] == "FlockPolicyRefused"]
    assert all(event["involvedObject"]["kind"] == "NetworkPolicy" for event in events)
    return {event["involvedObject"]["name"]: event["message"] for event in events}


def test_who_wrote_a_policy_that_is_refused_hears_of_it_once_and_why(cluster: Clustered) -> None:
    for number in range(5):
        cluster.api.put(policy(f"elsewhere-{number}", app="other"))  # isolates nobody here
    cluster.api.put(policy("bad"))
    message = eventually(lambda: told(cluster).get("bad"), what="an event")
    assert "010.9.0.0/16" in message and "the pods it selects are isolated" in message
    for number in range(20):
        cluster.api.put(policy(f"flood-{number}"))
    eventually(lambda: cluster.problems().count("flood-") == 20, what="all are refused")
    assert not [name for name in told(cluster) if name.startswith("elsewhere")]
    assert len(told(cluster)) == 1  # the others' turn comes a minute later each


def test_a_policy_made_anew_inherits_nothing_of_its_namesake(cluster: Clustered) -> None:
    cluster.api.put(policy("p", ingress=[{}]))
    eventually(lambda: cluster.node.ask("status")["policies"] == 1, what="the good one is known")
    cluster.api.put(policy("p"))
    eventually(lambda: "its last good version stays in force" in cluster.problems(), what="the last good one holds")
    cluster.api.delete("NetworkPolicy", "p", NAMESPACE)
    cluster.api.put(policy("p"))
    eventually(lambda: "the pods it selects are isolated" in cluster.problems(), what="it is another one")
