"""The 49 policy tests of Kubernetes itself and fifteen recipes, on real pods made by our own ADD, with real sockets.

SCTP goes as raw packets: this kernel may have no SCTP sockets.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from probing import Cell
from realcluster import RealCluster

from thoroughness import slowly

CASES = Path(__file__).parents[1] / "cases"
E2E = json.loads((CASES / "k8s_e2e_netpol.json").read_text())
RECIPES = json.loads((CASES / "recipes.json").read_text())
NAMED = [(f"serve-{n}-{p.lower()}", n, p) for n in (80, 81) for p in ("TCP", "UDP", "SCTP")]
MODES = {
    "IPv4": ((4,), 1),
    "IPv6": ((6,), 1),
    "dual-stack": ((4, 6), 1),
    "IPv4, two nodes": ((4,), 2),
    "IPv6, two nodes": ((6,), 2),
    "dual-stack, two nodes": ((4, 6), 2),
}


@pytest.fixture(scope="module", params=["dual-stack, two nodes", *slowly(*list(MODES)[:-1])])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    families, nodes = MODES[request.param]
    directory = tmp_path_factory.mktemp("cluster")
    with RealCluster(directory, families=families, nodes=nodes, ports=(80, 81, 53, 8000, 5000, 6379)) as made:
        yield made


@pytest.fixture(scope="module")
def upstream(cluster: RealCluster) -> RealCluster:
    """x, y, z with a, b, c each; across two nodes every second pod is on the other."""
    for namespace in "xyz":
        cluster.namespace(namespace)
    for number, key in enumerate(f"{n}/{p}" for n in "xyz" for p in "abc"):
        cluster.add(key, {"pod": key[2:]}, ports=NAMED, node=number % len(cluster.nodes))
    return cluster


@pytest.mark.parametrize("case", E2E, ids=lambda case: f"{case['index']}")
def test_kubernetes_own_case(upstream: RealCluster, case: Any) -> None:
    upstream.unlabel_namespaces()
    for key in case["pods"]:
        upstream.label_pod(key, {"pod": key[2:]})
    policies: dict[str, Any] = {}
    for step in case["steps"]:
        for action in step["do"]:
            do(upstream, policies, action)
        upstream.set_policies(policies.values())
        upstream.settle()
        denied = {tuple(pair) for pair in step["deny"]}
        probe = step["probe"]
        cells = [
            Cell(source, destination, family, probe["protocol"], probe["port"])
            for source in case["pods"]
            for destination in case["pods"]
            for family in upstream.families
        ]
        upstream.assert_reached(cells, expected=[c for c in cells if c[:2] not in denied])


def do(cluster: RealCluster, policies: dict[str, Any], action: Any) -> None:
    match action["op"]:
        case "create" | "update":
            metadata = action["policy"]["metadata"]
            policies[f"{metadata['namespace']}/{metadata['name']}"] = cluster.filled_in(action["policy"])
        case "deleteAll":
            policies.clear()
        case "labelNamespace":
            cluster.namespace(action["namespace"], **action["labels"])
        case "labelPod":
            labels = cluster.pods[action["pod"]]["metadata"]["labels"]
            cluster.label_pod(action["pod"], {**labels, **action["labels"]})
        case unknown:
            raise AssertionError(unknown)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe["recipe"])
def test_recipe(cluster: RealCluster, recipe: Any) -> None:
    cluster.set_policies(recipe["policies"])
    for name, labels in recipe["namespaces"].items():
        cluster.namespace(name, **labels)
    for number, (key, labels) in enumerate(recipe["pods"].items()):
        cluster.add(key, labels, node=number % len(cluster.nodes))
    try:
        cluster.settle()
        cells = {
            Cell(p["from"], p["to"], family, p["protocol"], p["port"]): p["allow"]
            for p in recipe["probes"]
            for family in cluster.families
        }
        cluster.assert_reached(list(cells), expected=[cell for cell, allow in cells.items() if allow])
    finally:
        cluster.remove(*recipe["pods"])
