"""Refused policies in the kernel: what they would have isolated is closed, until a good version comes or they go."""

from typing import Any

import pytest
from probing import Cell
from realcluster import FAR, NEAR, WEB, Object, RealCluster, flockctl, policy

STRICT = "flock.fritzlab.net/strict"
APP = {"podSelector": {"matchLabels": {"app": "web"}}}
OPEN = {**APP, "ingress": [{}]}
BLOCK = {**APP, "ingress": [{"from": [{"ipBlock": {"cidr": "010.9.0.0/16"}}]}]}


@pytest.fixture
def cluster(standing: RealCluster) -> RealCluster:
    put(standing)
    return standing


def put(cluster: RealCluster, *policies: Object) -> None:
    cluster.set_policies(policies)
    cluster.settle()
    cluster.finish_settling()


def assert_closed(cluster: RealCluster, *closed: tuple[str, str]) -> None:
    """Exactly these pods take (`to`) or send (`from`) nothing."""
    ways = [(FAR, WEB), (WEB, FAR), (FAR, NEAR)]
    cells = [Cell(source, target, family, "TCP", 80) for source, target in ways for family in (4, 6)]
    cluster.assert_reached(
        cells, expected=[c for c in cells if ("from", c.source) not in closed and ("to", c.destination) not in closed]
    )


def problem(cluster: RealCluster) -> str:
    shown = flockctl(cluster.nodes[0], "status").stdout
    return "\n".join(line for line in shown.splitlines() if line.startswith("problem"))


def test_a_policy_that_is_refused_from_the_first_isolates_what_it_selects(cluster: RealCluster) -> None:
    assert_closed(cluster)
    for bad in (policy("bad", BLOCK), policy("bad", OPEN, **{STRICT: "yes"})):
        put(cluster, bad)
        assert_closed(cluster, ("to", WEB))
        assert "x/bad" in problem(cluster) and "the pods it selects are isolated" in problem(cluster)
    put(cluster, policy("bad", {**BLOCK, "policyTypes": ["Ingress", "Egress"]}))
    assert_closed(cluster, ("to", WEB), ("from", WEB))
    put(cluster, policy("bad", {"podSelector": {"matchExpressions": [{"key": "app", "operator": "Like"}]}}))
    assert_closed(cluster, ("to", WEB), ("to", NEAR))


@pytest.mark.parametrize(
    "broken",
    [
        {"metadata": {"annotations": {STRICT: True}}},
        {"metadata": {"labels": {"team": 7}}},
        {"apiVersion": "networking.k8s.io/v2"},
        {"metadata": {"name": "x/bad"}},
        {"metadata": {"name": None}},
    ],
    ids=str,
)
def test_an_object_that_is_none_to_the_manifests_reader_isolates_too(
    cluster: RealCluster, broken: dict[str, Any]
) -> None:
    good = policy("bad", OPEN)
    cluster.nodes[0].write("broken", {**good, **broken, "metadata": {**good["metadata"], **broken.get("metadata", {})}})
    put(cluster)
    assert_closed(cluster, ("to", WEB))
    assert "NetworkPolicy x/" in problem(cluster)
    (cluster.nodes[0].manifests / "broken.json").unlink()
    put(cluster)
    assert_closed(cluster)


def test_a_restart_keeps_the_isolation_and_its_policy_takes_it_along(cluster: RealCluster) -> None:
    put(cluster, policy("bad", BLOCK))
    cluster.nodes[0].kill()
    cluster.nodes[0].start()
    assert_closed(cluster, ("to", WEB))
    put(cluster)
    assert_closed(cluster)
    assert not problem(cluster)


@pytest.mark.parametrize("bad", [policy("guard", BLOCK), policy("guard", OPEN, **{STRICT: True})], ids=["spec", "text"])  # type: ignore[arg-type]
def test_a_last_good_version_holds_over_restarts_and_goes_with_its_policy(cluster: RealCluster, bad: Object) -> None:
    put(cluster, policy("guard", {"podSelector": {"matchLabels": {"app": "near"}}}))
    for _ in range(2):
        put(cluster, bad)
        assert_closed(cluster, ("to", NEAR))
        assert "its last good version stays in force" in problem(cluster)
        cluster.nodes[0].kill()
        cluster.nodes[0].start()
    put(cluster)
    put(cluster, bad)
    assert_closed(cluster, ("to", WEB))


def test_why_and_show_tell_what_is_wrong_with_the_policy(cluster: RealCluster) -> None:
    put(cluster, policy("bad", BLOCK))
    node = cluster.nodes[0]
    answer = flockctl(node, "policy", "why", FAR, WEB, "80/TCP", check=False)
    assert answer.returncode == 1
    assert "x/bad: is refused, so it isolates and allows nothing: spec.ingress[0].from[0].ipBlock.cidr" in answer.stdout
    assert "x/bad: nothing, for it is refused: spec.ingress[0]" in flockctl(node, "policy", "show", WEB).stdout
