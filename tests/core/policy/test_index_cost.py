"""An event costs what it changes: counted in comparisons of selectors with labels, in a cluster of 10,000 pods."""

from collections.abc import Iterator
from typing import Any

import pytest
from policy_world import Model, addresses, labelled, local, parts, plain, pod, policy

from flock.core.policy.compiled import Verdicts, everything
from flock.core.policy.index import PolicyIndex

NAMESPACES, APPS, REPLICAS = 50, 20, 10


@pytest.fixture(scope="module")
def cluster() -> PolicyIndex:
    """10,000 pods, 1000 of them here; every app has a policy that lets one other app of each namespace in."""
    index = PolicyIndex()
    for n in range(NAMESPACES):
        index.set_namespace(f"ns{n}", {"team": f"team{n % 5}"})
    for facts in cluster_pods():
        index.set_pod(facts)
        if facts.name.endswith("-0"):
            key = f"{facts.namespace}/{facts.name}"
            index.set_local(local(key, *map(str, facts.addresses), labels=None))
    for n in range(NAMESPACES):
        for a in range(APPS):
            index.set_policy(app_policy(n, a, peer=a + 1))
    index.commit()
    return index


def app_policy(n: int, a: int, *, peer: int) -> dict[str, Any]:
    peers = [{"podSelector": labelled(app=f"app{peer}"), "namespaceSelector": labelled(team=f"team{n % 5}")}]
    spec = {"podSelector": labelled(app=f"app{a}", env="prod"), "ingress": [{"from": peers}]}
    return policy(spec, name=f"policy{a}", namespace=f"ns{n}")


def cluster_pods() -> Iterator[Any]:
    for n in range(NAMESPACES):
        for a in range(APPS):
            for r in range(REPLICAS):
                labels = {"app": f"app{a}", "env": "prod", "pod": f"app{a}-{r}"}
                yield pod(f"ns{n}/app{a}-{r}", f"10.{n}.{a}.{r}", f"2001:db8:{n:x}:{a:x}::{r:x}", labels=labels)


class Cost:
    def __init__(self, index: PolicyIndex) -> None:
        self._index = index
        self._before = index.effort.comparisons

    def so_far(self) -> int:
        return self._index.effort.comparisons - self._before


def test_a_pod_event_compares_only_selectors_its_labels_lead_to(cluster: PolicyIndex) -> None:
    cost = Cost(cluster)
    labels = {"app": "app3", "env": "prod", "pod": "app3-new"}
    cluster.set_pod(pod("ns7/app3-new", "10.99.0.1", labels=labels))
    (membership,) = cluster.commit().added
    assert membership.addresses == set(addresses("10.99.0.1"))
    assert cost.so_far() <= 2
    cluster.drop_pod(("ns7", "app3-new"))
    assert len(cluster.commit().dropped) == 1
    assert cost.so_far() <= 2


def test_one_more_pod_with_labels_that_are_known_compares_nothing(cluster: PolicyIndex) -> None:
    cost = Cost(cluster)
    labels = {"app": "app3", "env": "prod", "pod": "app3-1"}
    cluster.set_pod(pod("ns7/app3-twin", "10.99.0.2", labels=labels))
    assert len(cluster.commit().added) == 1
    cluster.drop_pod(("ns7", "app3-twin"))
    cluster.commit()
    assert cost.so_far() == 0


def test_a_new_local_pod_compares_only_policies_its_labels_lead_to(cluster: PolicyIndex) -> None:
    cost = Cost(cluster)
    cluster.set_local(local("ns7/app3-new", "10.99.0.3", labels={"app": "app3", "env": "prod"}))
    (subject,) = cluster.commit().subjects
    assert subject.verdicts == Verdicts((("ns7", "policy3"),))
    assert cost.so_far() <= 3
    cluster.drop_local("flock-ns7-app3-new")
    cluster.commit()


def test_a_policy_event_compares_only_pods_its_labels_lead_to(cluster: PolicyIndex) -> None:
    cost = Cost(cluster)
    cluster.set_policy(app_policy(7, 3, peer=5))
    assert parts(cluster.commit()) == {"policies"}  # the group is another policy's too
    assert cost.so_far() <= APPS
    cluster.set_policy(policy({**app_policy(7, 3, peer=5)["spec"], "ingress": []}, name="policy3", namespace="ns7"))
    cluster.commit()
    assert cost.so_far() <= 2 * APPS
    cluster.set_policy(app_policy(7, 3, peer=4))
    cluster.commit()


def test_a_new_group_compares_only_pods_that_carry_its_label(cluster: PolicyIndex) -> None:
    cost = Cost(cluster)
    selector = {"namespaceSelector": {}, "podSelector": labelled(app="app3", env="prod")}
    spec = {"podSelector": labelled(app="app0"), "ingress": [{"from": [selector]}]}
    cluster.set_policy(policy(spec, namespace="ns7"))
    (membership,) = cluster.commit().added
    assert len(membership.addresses) == 2 * NAMESPACES * REPLICAS
    assert cost.so_far() <= NAMESPACES * REPLICAS + NAMESPACES + APPS
    cluster.drop_policy(("ns7", "p"))
    assert len(cluster.commit().removed_groups) == 1


def test_a_namespace_event_compares_only_its_own_pods(cluster: PolicyIndex) -> None:
    cost = Cost(cluster)
    cluster.set_namespace("ns7", {"team": "team0"})
    change = cluster.commit()
    assert parts(change) == {"added", "dropped"}
    assert cost.so_far() <= 2 * APPS * REPLICAS
    cluster.set_namespace("ns7", {"team": "team2"})
    cluster.commit()


def test_the_full_change_is_all_there_is(cluster: PolicyIndex) -> None:
    model = Model()
    model.apply(everything(cluster.compiled))
    assert plain(model) == plain(cluster.compiled)
    assert len(model.subjects) == NAMESPACES * APPS
    assert all(subject.verdicts.ingress for subject in model.subjects.values())
