"""`flockctl check cluster`: green where all works, and with one fault each the right line is red; then a bundle."""

import json
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM, Signals

import pytest
from checking import checked, flockctl, passed, red
from cluster import Cluster
from deployment import NAMESPACE, agent_pod, is_well, status
from places import eventually

from flock.core.annotations import CHECK
from flock.lab import namespaces

SECRET = "Distinctive-Tok_81x"
BACK = 240.0  # seconds until all is as before; a kubelet may have restarted something meanwhile
MINUTE = 60.0

pytestmark = pytest.mark.timeout(500)


def left(cluster: Cluster) -> list[str]:
    """Namespaces of checks that nobody has asked to go."""
    found = cluster.plane.get("namespaces", f"--selector={CHECK}")
    return [n["metadata"]["name"] for n in found if "deletionTimestamp" not in n["metadata"]]


@contextmanager
def standing_still(cluster: Cluster, node: str, program: str) -> Iterator[None]:
    """A program of a node neither runs nor ends."""
    place = cluster.nodes[node].place
    pids = place.run("pgrep", "-f", program).split()
    assert pids
    place.run("kill", "-STOP", *pids)
    try:
        yield
    finally:
        place.attempt("kill", "-CONT", *pids)


@pytest.fixture
def well(cluster: Cluster) -> Iterator[Cluster]:
    """As it should be before, and again afterwards; nothing of a check is left."""
    for node in cluster.nodes:
        eventually(lambda n=node: is_well(cluster, n), what=f"{node} to be well", patience=BACK)
        eventually(lambda n=node: up(cluster, n), what=f"sessions of {node}", patience=BACK)
    yield cluster
    assert left(cluster) == []


def up(cluster: Cluster, node: str) -> bool:
    sessions = status(cluster, node)["sessions"]
    return bool(sessions) and all(session["up"] for session in sessions)


def test_a_cluster_that_works_is_green(well: Cluster, record_property: Callable[[str, object], None]) -> None:
    code, rows = checked(well)
    assert (code, red(rows)) == (0, {})
    done = passed(rows)
    assert done >= {"agent", "sessions", "policy rules", "pods attach", "pod to pod", "full size", "node to pod"}
    assert done >= {"policy denies", "anycast moves", "host ports"}
    skipped = {row["check"]: row["said"] for row in rows if row["result"] == "skip"}
    assert set(skipped) == {"pod to Service", "names"} and "kube-proxy" in skipped["pod to Service"]
    record_property("measured", f"{len(rows)} rows")


def test_a_router_that_is_cut_off_shows_as_sessions(well: Cluster) -> None:
    port = well.network.plan.link("r1-lan")
    namespaces.cut(well.network.name, port)
    try:
        for node in well.nodes:
            eventually(lambda n=node: not up(well, n), what=f"{node} to miss r1")
        code, rows = checked(well)
    finally:
        namespaces.mend(well.network.name, port)
    assert code == 1 and {node for check, node in red(rows) if check == "sessions"} == {*well.nodes}
    assert "r1" in red(rows)["sessions", "n1"]


def test_a_smaller_mtu_between_nodes_shows_in_full_size_alone(well: Cluster) -> None:
    routers = [well.network.host(name) for name in ("r1", "r2")]
    for router in routers:
        router.run(["ip", "link", "set", "lan", "mtu", "1400"])
    try:
        code, rows = checked(well)
    finally:
        for router in routers:
            router.run(["ip", "link", "set", "lan", "mtu", "1500"])
    assert code == 1 and {check for check, _ in red(rows)} == {"full size"}


def test_rules_that_are_gone_while_the_agent_stands_still_are_told(well: Cluster) -> None:
    with standing_still(well, "n1", "flock-agent"):
        well.nodes["n1"].place.run("nft", "flush", "ruleset")
        code, rows = checked(well)
    assert code == 1 and "policies are not enforced" in red(rows)["policy rules", "n1"]
    assert ("agent", "n1") in red(rows) and ("policy rules", "n2") not in red(rows)


def test_a_bird_that_stands_still_shows_as_sessions_of_its_node(well: Cluster) -> None:
    with standing_still(well, "n2", "bird -f"):
        code, rows = checked(well)
    assert code == 1 and {node for check, node in red(rows) if check == "sessions"} == {"n2"}
    assert not {"agent", "policy rules", "policy denies", "node to pod"} & {check for check, _ in red(rows)}


@pytest.mark.parametrize("by", [SIGINT, SIGTERM, SIGHUP, SIGKILL], ids=lambda s: s.name)
def test_an_interrupted_check_leaves_nothing_and_a_killed_one_is_cleaned_up_by_the_next(
    well: Cluster, by: Signals
) -> None:
    place = well.plane.place
    place.start("check", *flockctl(well, "check", "cluster"))
    eventually(lambda: left(well), what="its namespace")
    place.stop("check", by=by)
    if by == SIGKILL:
        assert left(well)
        assert checked(well)[0] == 0


def test_a_bundle_of_the_cluster_has_every_node_and_no_secret(well: Cluster, tmp_path: Path) -> None:
    plane = well.plane
    plane.kubectl("annotate", "nodeconfig", "n1", f"example.com/token={SECRET}", "--overwrite")
    plane.kubectl(
        "create", "secret", "generic", "hidden", f"--from-literal=password={SECRET}", f"--namespace={NAMESPACE}"
    )
    token = plane.kubectl(
        "exec", agent_pod(well, "n1"), f"--namespace={NAMESPACE}", "--container=agent", "--",
        "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token",
    )  # fmt: skip
    path = tmp_path / "b.tar.gz"
    try:
        command = flockctl(well, "bundle", "n1", "n2", "-o", str(path))
        subprocess.run(plane.place.command(*command), check=True, timeout=2 * MINUTE, capture_output=True)
    finally:
        plane.kubectl("delete", "secret", "hidden", f"--namespace={NAMESPACE}")
        plane.kubectl("annotate", "nodeconfig", "n1", "example.com/token-")
    with tarfile.open(path) as archive:
        files = {m.name: archive.extractfile(m).read().decode() for m in archive if m.isreg()}  # type: ignore[union-attr]
    assert json.loads(files["bundle.json"])["nodes"] == ["n1", "n2"]
    for node in ("n1", "n2"):
        assert json.loads(files[f"{node}/status.json"])["node"] == node
        assert {
            f"{node}/{name}" for name in ("happenings.jsonl", "bird.txt", "routes.txt", "links.txt", "nft.txt")
        } <= {*files}
        assert "flock-agent" in files[f"{node}/log.txt"]
    assert "objects/nodeconfigs.json" in files and "objects/pods.json" in files
    assert not [name for name, text in files.items() if SECRET in text or token.strip() in text]
