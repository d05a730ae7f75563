"""flock on a cluster the way an operator brings it there: the shipped manifests, labelled nodes, a NodeConfig for each.

The manifests are applied through an overlay that says where the API server is: no kube-proxy runs here, so the Service
`kubernetes` leads nowhere.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from cluster import Cluster
from places import Failed

MANIFESTS = Path(__file__).parents[1] / "deploy"
NAMESPACE = "flock-system"
NODE_LABEL = "flock.fritzlab.net/agent="


def deploy_flock(cluster: Cluster) -> None:
    """Returns when everything is handed to the API server; `cluster.wait_for_nodes` tells when it works.

    The nodes have to know the image."""
    plane = cluster.plane
    plane.kubectl("apply", "-k", _overlay(overlay(cluster), apiserver=plane.url))
    plane.kubectl("wait", "--for=condition=Established", "crd/nodeconfigs.flock.fritzlab.net")
    plane.apply(*cluster.network.node_configs)
    plane.kubectl("label", "nodes", "--all", NODE_LABEL)


def overlay(cluster: Cluster) -> Path:
    """The directory of the kustomization that was applied."""
    return cluster.plane.place.directory / "overlay"


def status(cluster: Cluster, node: str) -> dict[str, Any]:
    """What the agent of a node says of itself; asked on the node, so that it needs no API server."""
    program = Path(sys.executable).with_name("flockctl")
    said: dict[str, Any] = json.loads(cluster.nodes[node].place.run(program, "status", "--output=json"))
    return said


def problems(cluster: Cluster, node: str) -> str:
    """What is wrong with what it watches; empty if nothing is."""
    return "; ".join(f"{problem['where']}: {problem['message']}" for problem in status(cluster, node)["problems"])


def is_well(cluster: Cluster, node: str) -> bool:
    """Ready, with nothing to complain about.  A watch that its server has just ended is not up for a moment."""
    said = status(cluster, node)
    wrong = [*said["not_ready"], *said["degraded"], *said["problems"], *(w for w in said["watches"] if not w["up"])]
    if wrong:
        raise Failed(str(wrong))
    return True


def agent_pod(cluster: Cluster, node: str) -> str:
    """The name of the agent's pod on a node."""
    pods = cluster.pods("app.kubernetes.io/component=agent", namespace=NAMESPACE)
    return next(pod["metadata"]["name"] for pod in pods if pod["spec"]["nodeName"] == node)


def _overlay(directory: Path, *, apiserver: str) -> Path:
    container = {"name": "agent", "env": [{"name": "FLOCK_APISERVER", "value": apiserver}]}
    patch = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "flock-agent", "namespace": NAMESPACE},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    manifests = os.path.relpath(MANIFESTS, directory)  # kubectl takes no absolute path here
    directory.mkdir()
    (directory / "apiserver.yaml").write_text(json.dumps(patch))
    overlay = {"bases": [manifests], "patchesStrategicMerge": ["apiserver.yaml"]}
    (directory / "kustomization.yaml").write_text(json.dumps(overlay))
    return directory
