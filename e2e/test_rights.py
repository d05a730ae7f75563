"""Who the agents are, and what they may do, changes under them: a new token, and rights that come and go."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cluster import Cluster, addresses
from deployment import NAMESPACE, agent_pod, problems
from places import eventually
from workloads import PORT, deployment

ACCOUNT = "flock-agent"
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
CLOSED = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "closed-meanwhile", "namespace": "default"},
    "spec": {"podSelector": {"matchLabels": {"app": "unwatched"}}, "policyTypes": ["Ingress"]},
}

pytestmark = pytest.mark.timeout(300)


def test_agents_go_on_with_a_new_token_when_the_old_one_is_refused(cluster: Cluster) -> None:
    """The Secret gets another token: from then on the old one is none, and the kubelet brings the pods the new one."""
    plane = cluster.plane
    secret = plane.get("serviceaccount", ACCOUNT, f"--namespace={NAMESPACE}")["secrets"][0]["name"]
    new = plane.token(ACCOUNT, namespace=NAMESPACE)
    patch = json.dumps({"data": {"token": base64.b64encode(new.encode()).decode()}})
    plane.kubectl("patch", "secret", secret, f"--namespace={NAMESPACE}", "--patch", patch)
    restart_api_server(cluster)  # which also remembers tokens for a while
    for node in cluster.nodes:
        pod = agent_pod(cluster, node)
        eventually(lambda n=node, p=pod: refused_or_renewed(cluster, n, p, new), what="the old token to be refused")
        # A pod that changes is looked after at once; otherwise the kubelet takes a minute.
        plane.kubectl("annotate", "pod", pod, f"--namespace={NAMESPACE}", "--overwrite", "test/hurry=now")
        eventually(lambda p=pod: token_of(cluster, p) == new, what="the new token", patience=120)
        eventually(lambda n=node: not problems(cluster, n), what="the agent to go on")


def refused_or_renewed(cluster: Cluster, node: str, pod: str, new: str) -> bool:
    """A kubelet may have been quicker than the test."""
    return "401" in problems(cluster, node) or token_of(cluster, pod) == new


def token_of(cluster: Cluster, pod: str) -> str:
    return cluster.plane.kubectl("exec", pod, f"--namespace={NAMESPACE}", "--container=agent", "--", "cat", TOKEN)


def test_rights_taken_away_leave_all_in_force_and_given_back_bring_what_was_missed(cluster: Cluster) -> None:
    with without_rights(cluster):
        restart_api_server(cluster)  # a watch that runs is not asked for its rights again
        for node in cluster.nodes:
            eventually(lambda n=node: "403" in problems(cluster, n), what="the agent to be refused")
        cluster.plane.apply(deployment("unwatched", replicas=2), CLOSED)
        pods = cluster.ready_pods(2, "app=unwatched")
        for pod in pods:
            assert cluster.fetch(addresses(pod)[0], PORT) == pod["metadata"]["name"]
    try:
        for node in cluster.nodes:
            eventually(lambda n=node: not problems(cluster, n), what="the agent to go on")
        for address in (addresses(pod)[0] for pod in pods):
            eventually(lambda a=address: cluster.refuses(a, PORT), what="the policy to be in force")
    finally:
        cluster.plane.kubectl("delete", "networkpolicy/closed-meanwhile", "deployment/unwatched")


@contextmanager
def without_rights(cluster: Cluster) -> Iterator[None]:
    binding = cluster.plane.get("clusterrolebinding", ACCOUNT)
    cluster.plane.kubectl("delete", "clusterrolebinding", ACCOUNT)
    try:
        yield
    finally:
        kept = {key: binding[key] for key in ("apiVersion", "kind", "roleRef", "subjects")}
        cluster.plane.apply({**kept, "metadata": {"name": ACCOUNT}})


def restart_api_server(cluster: Cluster) -> None:
    cluster.plane.kill_api_server()
    cluster.plane.start_api_server()
