"""Every node says how it is where its operator looks: in a NodeConfig, whatever becomes of the object."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cluster import Cluster, addresses, is_true
from places import eventually
from workloads import PORT, deployment

NODE = "n1"

pytestmark = pytest.mark.timeout(300)


def test_a_nodeconfig_deleted_and_made_anew_has_its_status_again(cluster: Cluster) -> None:
    (own,) = [config for config in cluster.network.node_configs if config["metadata"]["name"] == NODE]
    eventually(lambda: reports(cluster), what="the first report")
    before = uid(cluster)
    cluster.plane.kubectl("delete", "nodeconfig", NODE)
    cluster.plane.apply(own)
    assert uid(cluster) != before
    eventually(lambda: reports(cluster), what="a report in the new object", patience=30)


def test_a_node_that_a_template_alone_configures_reports_and_serves(cluster: Cluster) -> None:
    with configured_by_template_alone(cluster):
        made = eventually(lambda: reports(cluster), what="a report in an object of the agent's own")
        assert made["spec"] == {} and made["metadata"]["labels"] == {"flock.fritzlab.net/created-by": "agent"}
        assert made["metadata"]["ownerReferences"][0]["name"] == NODE
        with cluster.running(deployment("templated", replicas=1, node=NODE)) as (pod,):
            eventually(lambda: not cluster.refuses(addresses(pod)[0], PORT), what="the client to reach its pod")
    eventually(lambda: reports(cluster), what="a report in the operator's object")


@contextmanager
def configured_by_template_alone(cluster: Cluster) -> Iterator[None]:
    """The node's own NodeConfig becomes a template that selects it alone."""
    (own,) = [config for config in cluster.network.node_configs if config["metadata"]["name"] == NODE]
    selector = {"matchLabels": {"kubernetes.io/hostname": NODE}}
    template = {
        "apiVersion": own["apiVersion"],
        "kind": "NodeConfigTemplate",
        "metadata": {"name": "alone"},
        "spec": {"nodeSelector": selector, "template": own["spec"]},
    }
    cluster.plane.apply(template)
    cluster.plane.kubectl("delete", "nodeconfig", NODE)
    try:
        yield
    finally:
        cluster.plane.apply(own)
        cluster.plane.kubectl("delete", "nodeconfigtemplate", "alone")


def reports(cluster: Cluster) -> dict[str, Any]:
    """The NodeConfig, if there is one and its agent says in it that the node is ready."""
    found: dict[str, Any] = cluster.plane.get("nodeconfig", NODE)
    return found if is_true(found, "Ready") else {}


def uid(cluster: Cluster) -> str:
    return str(cluster.plane.get("nodeconfig", NODE)["metadata"]["uid"])
