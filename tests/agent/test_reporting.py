"""What a node reports about itself is where people look for it, whatever becomes of the objects."""

from collections.abc import Iterator
from typing import Any

import pytest
from clustered import Clustered, clustered

from harness import NODE_CONFIG, Node, eventually

TEMPLATE = {
    "kind": "NodeConfigTemplate",
    "metadata": {"name": "common"},
    "spec": {"nodeSelector": {"matchLabels": {"rack": "1"}}, "template": NODE_CONFIG["spec"]},
}


@pytest.fixture
def cluster(fresh: Node) -> Iterator[Clustered]:
    fresh.hurry = {"flock.agent.reporting.LOOK_EVERY": 0.2, "flock.agent.reporting.NUMBERS_EVERY": 3.0}
    with clustered(fresh) as cluster:
        yield cluster


def reported(cluster: Clustered) -> dict[str, Any]:
    status: dict[str, Any] = (cluster.api.get("NodeConfig", "n1") or {}).get("status") or {}
    return {c["type"]: c["status"] for c in status.get("conditions", ())} if status else {}


def test_a_node_reports_in_its_nodeconfig(cluster: Clustered) -> None:
    cluster.configure()
    cluster.start()
    eventually(lambda: reported(cluster).get("Ready") == "True", what="the report")


def test_a_nodeconfig_deleted_and_made_anew_is_reported_in_again(cluster: Clustered) -> None:
    cluster.configure()
    cluster.start()
    eventually(lambda: reported(cluster).get("Ready") == "True", what="the first report")
    cluster.api.delete("NodeConfig", "n1")
    cluster.configure()
    assert not reported(cluster)
    eventually(lambda: reported(cluster).get("Ready") == "True", what="a report in the new object")


def test_a_report_that_is_refused_is_tried_again_and_complained_about_once(cluster: Clustered) -> None:
    place = "/apis/flock.fritzlab.net/v1alpha1/nodeconfigs/n1"
    cluster.api.errors[place] = 403
    cluster.configure()
    cluster.start()
    eventually(lambda: len(cluster.api.asked(place, "PATCH")) > 1, what="a second attempt")
    assert cluster.node.is_ready(), "nothing of the node's own depends on it"
    del cluster.api.errors[place]
    eventually(lambda: reported(cluster).get("Ready") == "True", what="the report")
    assert cluster.node.log_text().count("could not report") == 1


def test_a_report_that_somebody_wiped_is_written_again(cluster: Clustered) -> None:
    cluster.configure()
    cluster.start()
    eventually(lambda: reported(cluster).get("Ready") == "True", what="the first report")
    cluster.api.patch(("NodeConfig", "", "n1"), {"status": {}})
    eventually(lambda: reported(cluster).get("Ready") == "True", what="the report again", within=90)


def test_a_report_is_not_written_again_and_again(cluster: Clustered) -> None:
    cluster.configure()
    cluster.start()
    eventually(lambda: reported(cluster).get("Ready") == "True", what="the report")
    writes = len(cluster.api.asked("/apis/flock.fritzlab.net", "PATCH"))
    passes = len(cluster.api.asked("/api/v1/pods"))
    cluster.api.hang_up()  # watches come back, and objects are looked at anew
    eventually(lambda: len(cluster.api.asked("/api/v1/pods")) > passes, what="the watches to be back")
    with pytest.raises(AssertionError, match="another report"):
        eventually(
            lambda: len(cluster.api.asked("/apis/flock.fritzlab.net", "PATCH")) > writes,
            what="another report",
            within=2,
        )


def test_a_node_that_templates_alone_configure_makes_itself_a_place_to_report_in(cluster: Clustered) -> None:
    cluster.api.put(TEMPLATE)
    cluster.start()
    eventually(lambda: reported(cluster).get("Ready") == "True", what="the report")
    made = cluster.api.get("NodeConfig", "n1")
    assert made is not None and made["spec"] == {}
    assert made["metadata"]["labels"] == {"flock.fritzlab.net/created-by": "agent"}
    owner = cluster.api.get("Node", "n1")
    assert owner is not None
    references = [(r["kind"], r["name"], r["uid"]) for r in made["metadata"]["ownerReferences"]]
    assert references == [("Node", "n1", owner["metadata"]["uid"])]  # it goes with the Node


def test_the_place_it_made_configures_nothing(cluster: Clustered) -> None:
    """Without its template the node goes on by the last good configuration, as if there were no object at all."""
    cluster.api.put(TEMPLATE)
    cluster.start()
    eventually(lambda: reported(cluster).get("Ready") == "True", what="the report")
    pools = cluster.node.ask("status")["pools"]
    cluster.api.delete("NodeConfigTemplate", "common")
    eventually(lambda: "stays in force" in str(cluster.node.ask("status")["degraded"]), what="the loss to be told")
    assert cluster.node.ask("status")["pools"] == pools and cluster.node.is_ready()


def test_what_an_operator_writes_into_that_place_counts(cluster: Clustered) -> None:
    cluster.api.put(TEMPLATE)
    cluster.start()
    eventually(lambda: reported(cluster).get("Ready") == "True", what="the report")
    made = cluster.api.get("NodeConfig", "n1")
    assert made is not None
    cluster.api.put({**made, "spec": {"cidr4": ["198.51.100.0/24"]}})
    eventually(lambda: "198.51.100.0/24" in str(cluster.node.ask("status")["pools"]), what="the operator's CIDR")


def test_a_place_that_is_deleted_is_made_anew(cluster: Clustered) -> None:
    cluster.api.put(TEMPLATE)
    cluster.start()
    eventually(lambda: reported(cluster).get("Ready") == "True", what="the report")
    cluster.api.delete("NodeConfig", "n1")
    eventually(lambda: reported(cluster).get("Ready") == "True", what="the report in a new object")


def test_a_node_that_nothing_configures_makes_no_object(cluster: Clustered) -> None:
    cluster.configure()
    cluster.start()
    eventually(lambda: reported(cluster).get("Ready") == "True", what="the report")
    cluster.api.delete("NodeConfig", "n1")
    eventually(lambda: "stays in force" in str(cluster.node.ask("status")["degraded"]), what="the loss to be told")
    with pytest.raises(AssertionError, match="an object"):
        eventually(lambda: cluster.api.get("NodeConfig", "n1"), what="an object", within=1)
