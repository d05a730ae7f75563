"""A new version of the agent on every node, and back, while pods talk: nobody notices.

There node after node, back all at once, which is harder on pods that come and go.  On the way back one node gets a new
BIRD as well.  An upgrade of the agent never brings one: it takes a deleted pod.
"""

import json
from typing import Any

import image
import pytest
from cluster import Cluster, addresses
from deployment import NAMESPACE, status
from places import eventually
from traffic import held_connections
from workloads import ECHO_PORT, deployment

from flock import __version__

REPLICAS = 30
CHURNING = 4
AGENT = "daemonset/flock-agent"
ALL_AT_ONCE = '{"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}}}}'
# In each pod a connection to the next one: `cat` sends back what it gets, and a broken connection ends `nc`.
_TALK = """
mkfifo /tmp/talk
(while sleep 0.2; do echo line; done) > /tmp/talk 2> /dev/null &
nc {peer} {port} < /tmp/talk > /tmp/heard 2> /tmp/problem &
echo $!
"""

pytestmark = pytest.mark.timeout(500)
ANOTHER = f"{__version__}.1"


def test_upgrade_and_downgrade_lose_no_connection_and_fail_no_add(cluster: Cluster) -> None:
    _, archive = image.flock(version=ANOTHER)
    cluster.import_image(archive)
    with cluster.running(deployment("talk", replicas=REPLICAS)) as pods:
        talking = start_talking(cluster, pods)
        with held_connections(cluster, [a for pod in pods for a in addresses(pod)], ECHO_PORT) as fates:
            speakers = birds(cluster)
            roll(cluster, ANOTHER)
            assert birds(cluster) == speakers
            cluster.plane.kubectl("delete", "pod", "--namespace", NAMESPACE, "--wait=false", speakers["n2"])
            cluster.plane.kubectl("patch", AGENT, "--namespace", NAMESPACE, "--patch", ALL_AT_ONCE)
            roll(cluster, __version__)
            eventually(lambda: "n2" in birds(cluster), what="the new BIRD")
            eventually(lambda: all_established(cluster, "n2"), what="its sessions")
            assert birds(cluster) == {**speakers, "n2": birds(cluster)["n2"]} != speakers
        assert len(fates) == 2 * REPLICAS and not any(fates.values()), fates
        assert silent(cluster, talking) == []
    assert failed_adds(cluster) == []


def start_talking(cluster: Cluster, pods: list[dict[str, Any]]) -> dict[str, str]:
    """Each pod's connection to the next, as the pid that holds it."""
    talking = {}
    for pod, peer in zip(pods, [*pods[1:], pods[0]], strict=True):
        name, script = pod["metadata"]["name"], _TALK.format(peer=addresses(peer)[0], port=ECHO_PORT)
        talking[name] = cluster.plane.kubectl("exec", name, "--", "sh", "-c", script).strip()
    return talking


def silent(cluster: Cluster, talking: dict[str, str]) -> list[str]:
    """Pods whose connection ended, or carries nothing any more."""
    script = "kill -0 {pid} && a=$(wc -l < /tmp/heard) && sleep 1 && test $(wc -l < /tmp/heard) -gt $a"
    found = []
    for name, pid in talking.items():
        command = cluster.plane.kubectl_command("exec", name, "--", "sh", "-c", script.format(pid=pid))
        if cluster.plane.place.attempt(*command).returncode:
            found.append(name)
    return found


def roll(cluster: Cluster, version: str) -> None:
    """Another image for the agent on all nodes, while pods come and go."""
    kubectl = cluster.plane.kubectl
    name = f"{image.IMAGE}:{version}"
    cluster.plane.apply(deployment("passing", replicas=CHURNING))
    kubectl("set", "image", AGENT, "--namespace", NAMESPACE, f"agent={name}", f"installer={name}")
    for _ in range(2):
        kubectl("rollout", "restart", "deployment", "passing")
        cluster.wait_for_rollout("deployment/passing")
    cluster.wait_for_rollout(AGENT, namespace=NAMESPACE)
    kubectl("delete", "deployment", "passing")
    eventually(lambda: agents(cluster) == {name}, what=f"all agents to be {version}")


def agents(cluster: Cluster) -> set[str]:
    pods = cluster.pods("app.kubernetes.io/component=agent", namespace=NAMESPACE)
    return {pod["spec"]["containers"][0]["image"] for pod in pods}


def birds(cluster: Cluster) -> dict[str, str]:
    """The BIRD pods that are to stay, by node."""
    pods = cluster.pods("app.kubernetes.io/component=bird", namespace=NAMESPACE)
    staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in staying}


def all_established(cluster: Cluster, node: str) -> bool:
    sessions = status(cluster, node)["sessions"]
    return bool(sessions) and all(session["up"] for session in sessions)


def failed_adds(cluster: Cluster) -> list[str]:
    """What kubelets say of ADDs that failed; a sandbox may also fail for other reasons, as when its pod is deleted."""
    events = json.loads(cluster.plane.kubectl("get", "events", "--output=json"))["items"]
    mine = ("talk", "passing")
    return [
        e["message"]
        for e in events
        if "failed to setup network" in e["message"] and e["involvedObject"]["name"].startswith(mine)
    ]
