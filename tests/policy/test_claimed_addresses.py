"""Addresses that pods elsewhere claim by annotation, in the kernel of a node that has to believe or not."""

from collections.abc import Iterator
from typing import Any

import pytest
from probing import Cell
from realcluster import OUTSIDE, Object, RealCluster, policy

from harness import eventually

PREFIX = "flock.fritzlab.net"
OWN = {"podSelector": {}}
CONFINED = policy("confined", {"podSelector": {}, "ingress": [{"from": [OWN]}], "egress": [{"to": [OWN]}]})
WEB, NEAR = "x/web", "x/near"
ALL_OUTSIDE = ",".join(OUTSIDE.values())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """x/web and x/near, in a namespace that is confined to its own pods."""
    with RealCluster(tmp_path_factory.mktemp("cluster")) as made:
        made.namespace("x", team="blue")
        made.set_policies([CONFINED])
        made.add(WEB, {})
        made.add(NEAR, {})
        yield made


def elsewhere(name: str, address: str, **annotations: str) -> Object:
    """A pod of namespace x on another node, as its tenant wrote it and its kubelet reported it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "x",
            "annotations": {f"{PREFIX}/{key}": value for key, value in annotations.items()},
        },
        "spec": {"nodeName": "n9", "containers": []},
        "status": {"phase": "Running", "podIPs": [{"ip": address}]},
    }


def put(cluster: RealCluster, *pods: Object) -> None:
    cluster.nodes[0].write("elsewhere", *pods)
    cluster.settle()
    cluster.finish_settling()


def grant(cluster: RealCluster, **spec: Any) -> None:
    config = cluster.config(1)
    config["spec"] |= spec
    cluster.nodes[0].write("nodeconfig", config)


def reaches(cluster: RealCluster, *, outside: bool) -> None:
    """The namespace's pods reach each other, and the world outside only if so."""
    ends = [(WEB, NEAR), (WEB, "external"), ("external", WEB)]
    cells = [Cell(source, target, family, "TCP", 80) for source, target in ends for family in (4, 6)]
    cluster.assert_reached(cells, expected=[c for c in cells if outside or "external" not in (c.source, c.destination)])


def elements(cluster: RealCluster) -> str:
    return cluster.nodes[0].execute("nft", "list", "ruleset").stdout


@pytest.mark.parametrize("annotation", ["addresses", "anycast"])
def test_a_confined_namespace_stays_so_whatever_a_pod_of_it_is_annotated_with(
    cluster: RealCluster, annotation: str
) -> None:
    put(cluster)
    reaches(cluster, outside=False)
    put(cluster, elsewhere("claimer", "10.0.9.1", **{annotation: ALL_OUTSIDE}))
    assert "10.0.9.1" in elements(cluster)  # its status is believed
    reaches(cluster, outside=False)


def test_what_the_configuration_grants_the_namespace_is_believed_for_as_long_as_it_does(cluster: RealCluster) -> None:
    blue = {"namespaceSelector": {"matchLabels": {"team": "blue"}}}
    allowed = [{"prefixes": [f"{OUTSIDE[4]}/32", f"{OUTSIDE[6]}/128"], **blue}]
    put(cluster, elsewhere("claimer", "10.0.9.1", anycast=ALL_OUTSIDE))
    grant(cluster, anycast={"allowed": allowed})
    eventually(lambda: OUTSIDE[4] in elements(cluster), what="the grant counts, though no pod changed")
    reaches(cluster, outside=True)
    cluster.namespace("x", team="red")
    eventually(lambda: OUTSIDE[4] not in elements(cluster), what="another namespace's")
    cluster.namespace("x", team="blue")
    eventually(lambda: OUTSIDE[4] in elements(cluster), what="granted again")
    grant(cluster)
    eventually(lambda: OUTSIDE[4] not in elements(cluster), what="the grant is gone")
    cluster.settle()
    cluster.finish_settling()


def test_thousands_of_claims_put_nothing_into_the_kernel(cluster: RealCluster) -> None:
    put(cluster)
    before = elements(cluster).count("2001:db8:77:")
    claims = [",".join(f"2001:db8:77:{pod}::{at:x}" for at in range(1, 12_001)) for pod in range(6)]
    put(
        cluster,
        *(elsewhere(f"c{n}", f"10.0.9.{n + 1}", addresses=claims[2 * n], anycast=claims[2 * n + 1]) for n in range(3)),
    )
    assert before == elements(cluster).count("2001:db8:77:") == 0
    reaches(cluster, outside=False)
