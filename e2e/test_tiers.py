"""Policies of the cluster's administrator: ClusterNetworkPolicies, whose definition comes while the agents run.

All subjects are in a namespace of this file's own; policies and definition are gone at its end.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import image
import pytest
from cluster import Cluster, addresses, is_true
from deployment import MANIFESTS, NAMESPACE, is_well, problems, status
from places import eventually
from workloads import ANSWER, DNS_PORT, PORT, deployment, name_server

DEFINITION = MANIFESTS / "clusternetworkpolicies.yaml"
KIND = "ClusterNetworkPolicy"
GOVERNED = "governed"
KUBELET_PORT = 10250
NOTICED = 60.0  # seconds, as promised
OURS = {"namespaces": {"matchLabels": {GOVERNED: "yes"}}}  # all pods of our namespace
EVERYWHERE = {"networks": ["0.0.0.0/0", "::/0"]}
EVERY_POD: dict[str, Any] = {"namespaces": {}}

Pods = list[dict[str, Any]]
World = dict[str, Pods]

pytestmark = pytest.mark.timeout(400)


# --- objects ---


def pods_of(app: str) -> dict[str, Any]:
    """A subject or a peer."""
    here = {"namespaceSelector": OURS["namespaces"], "podSelector": {"matchLabels": {"app": app}}}
    return {"pods": here}


def cluster_policy(name: str, *, tier: str, priority: int = 10, **spec: Any) -> dict[str, Any]:
    """About the pods of `web`, unless told otherwise."""
    return {
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"tier": tier, "priority": priority, "subject": pods_of("web"), **spec},
    }


def ingress(action: str, peer: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": f"{action} in", "action": action, "from": [peer], **more}


def egress(action: str, peer: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": f"{action} out", "action": action, "to": [peer], **more}


def network_policy(*admitted: str) -> dict[str, Any]:
    """A namespace's own: `web` lets these in and nobody else."""
    peers = [{"podSelector": {"matchLabels": {"app": app}}} for app in admitted]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "own", "namespace": GOVERNED},
        "spec": {
            "podSelector": {"matchLabels": {"app": "web"}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": peers}] if peers else [],
        },
    }


# --- the world ---


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[World]:
    """`web` and `asker` on both nodes, one `friend`, and a name server."""
    plane, tag = cluster.plane, image.flock()[0]
    labelled = {"name": GOVERNED, "labels": {GOVERNED: "yes"}}
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": labelled})
    try:
        replicas = {"web": 2, "asker": 2, "friend": 1}
        plane.apply(*(deployment(app, replicas=count, namespace=GOVERNED) for app, count in replicas.items()))
        plane.apply(name_server("dns", namespace=GOVERNED, image=tag))
        everybody = {**replicas, "dns": 1}
        made = {app: cluster.ready_pods(n, f"app={app}", namespace=GOVERNED) for app, n in everybody.items()}
        assert {pod["spec"]["nodeName"] for pod in made["web"]} == set(cluster.nodes)
        yield made
    finally:
        plane.kubectl("delete", "namespace", GOVERNED, "--wait=false")


@pytest.fixture(scope="module")
def definition(cluster: Cluster, world: World) -> Iterator[float]:
    """When it was established."""
    plane = cluster.plane
    plane.kubectl("apply", "-f", DEFINITION)
    try:
        plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", DEFINITION)
        yield time.monotonic()
    finally:
        plane.kubectl("delete", "--ignore-not-found", "-f", DEFINITION)  # and all policies with it
        for node in cluster.nodes:
            eventually(lambda n=node: known(cluster, n) == 0 and is_well(cluster, n), what=f"{node} to know none")


@contextmanager
def applied(cluster: Cluster, *objects: dict[str, Any]) -> Iterator[None]:
    """These and no other policies, for a while."""
    cluster.plane.apply(*objects)
    try:
        yield
    finally:
        what = "\n".join(map(json.dumps, objects))
        cluster.plane.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=what)


# --- questions ---


def known(cluster: Cluster, node: str) -> int:
    count: int = status(cluster, node)["clusterPolicies"]
    return count


def is_watched(cluster: Cluster, node: str) -> bool:
    return any(watch["kind"] == KIND for watch in status(cluster, node)["watches"])


def answers(cluster: Cluster, sources: Pods, targets: Pods) -> set[bool]:
    """Which answers there are when each source asks each target at each of its addresses."""

    def asked(source: dict[str, Any], target: dict[str, Any]) -> list[bool]:
        return [said == target["metadata"]["name"] for said in cluster.fetch_from(source, addresses(target))]

    return together(asked, sources, targets)


def resolves(cluster: Cluster, sources: Pods, server: dict[str, Any]) -> set[bool]:
    """The same, for a name that the server is asked for at its own addresses."""

    def asked(source: dict[str, Any], address: str) -> list[bool]:
        return [ANSWER in inside(cluster, source, f"timeout 5 nslookup -type=a web.test. {address} 2>&1")]

    return together(asked, sources, addresses(server))


def together(asked: Callable[..., list[bool]], *sides: Sequence[Any]) -> set[bool]:
    """One that is not answered takes seconds, so they are asked at once."""
    with ThreadPoolExecutor() as pool:
        return {said for several in pool.map(asked, *zip(*product(*sides), strict=True)) for said in several}


def reaches_its_node(cluster: Cluster, pod: dict[str, Any]) -> set[bool]:
    """Whether the kubelet of the pod's own node takes a connection, by each of the node's addresses."""
    said = cluster.network.node(pod["spec"]["nodeName"]).addresses
    connect = f"echo | timeout 5 nc {{}} {KUBELET_PORT} >/dev/null 2>&1 && echo connected"
    return {"connected" in inside(cluster, pod, connect.format(address)) for address in said}


def inside(cluster: Cluster, pod: dict[str, Any], command: str) -> str:
    """What a command prints in a pod, whether it succeeds or not."""
    where = (pod["metadata"]["name"], f"--namespace={GOVERNED}")
    return cluster.plane.kubectl("exec", *where, "--", "sh", "-c", f"{command}; true")


def wait_until(cluster: Cluster, sources: Pods, targets: Pods, *, reached: bool) -> None:
    what = f"{'all' if reached else 'none'} to be reached"
    eventually(lambda: answers(cluster, sources, targets) == {reached}, what=what)


def why(cluster: Cluster, source: dict[str, Any], target: dict[str, Any]) -> dict[str, Any]:
    """What the target's node says of the way in, the same for both families."""
    program = Path(sys.executable).with_name("flockctl")
    place, found = cluster.nodes[target["spec"]["nodeName"]].place, []
    for asker, asked in zip(addresses(source), addresses(target), strict=True):
        said = place.attempt(program, "policy", "why", asker, asked, f"{PORT}/TCP", "--output=json")
        found += [answer["ingress"] for answer in json.loads(said.stdout)]
    assert len(found) == 2 and found[0] == found[1], found
    answer: dict[str, Any] = found[0]
    return answer


def lives(cluster: Cluster) -> dict[str, list[int]]:
    """The agents' pods, and how often each container was restarted."""
    pods = cluster.pods("app.kubernetes.io/component=agent", namespace=NAMESPACE)
    return {pod["metadata"]["name"]: [c["restartCount"] for c in pod["status"]["containerStatuses"]] for pod in pods}


# --- the definition ---


def test_nobody_complains_while_the_definition_is_not_there(cluster: Cluster, world: World) -> None:
    for node in cluster.nodes:
        eventually(lambda n=node: is_well(cluster, n), what=f"{node} to be well")
        assert known(cluster, node) == 0 and not is_watched(cluster, node)


def test_a_definition_that_comes_late_is_noticed_within_a_minute_without_a_restart(
    cluster: Cluster, world: World, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    before = lives(cluster)
    established = request.getfixturevalue("definition")
    with applied(cluster, cluster_policy("late", tier="Admin", ingress=[ingress("Deny", EVERY_POD)])):
        for node in cluster.nodes:
            left = established + NOTICED - time.monotonic()
            eventually(lambda n=node: known(cluster, n) == 1, what=f"{node} to notice", patience=left)
        record_property("measured", f"noticed by all nodes after {time.monotonic() - established:.1f} s")
        wait_until(cluster, world["asker"], world["web"], reached=False)
        for node in cluster.nodes:
            assert is_watched(cluster, node) and is_well(cluster, node)
    assert lives(cluster) == before
    wait_until(cluster, world["asker"], world["web"], reached=True)


# --- the tiers ---


def test_what_an_admin_denies_no_network_policy_allows(cluster: Cluster, world: World, definition: float) -> None:
    denied = cluster_policy("guard", tier="Admin", ingress=[ingress("Deny", pods_of("asker"))])
    with applied(cluster, network_policy("asker", "friend"), denied):
        wait_until(cluster, world["asker"], world["web"], reached=False)
        assert answers(cluster, world["friend"], world["web"]) == {True}
        for asker, web in product(world["asker"], world["web"]):
            said = why(cluster, asker, web)
            assert said["outcome"] == "denied" and said["otherwise"] == "allowed"
            assert said["decided_by"].startswith('Admin guard ingress[0] "Deny in" (Deny from ')
    wait_until(cluster, world["asker"], world["web"], reached=True)


def test_what_an_admin_passes_on_is_left_to_network_policy(cluster: Cluster, world: World, definition: float) -> None:
    passed = cluster_policy("leave", tier="Admin", priority=1, ingress=[ingress("Pass", pods_of("asker"))])
    denied = cluster_policy("guard", tier="Admin", priority=2, ingress=[ingress("Deny", EVERY_POD)])
    asker, web = world["asker"][0], world["web"][0]
    with applied(cluster, passed, denied, network_policy()):
        wait_until(cluster, world["asker"] + world["friend"], world["web"], reached=False)
        said = why(cluster, asker, web)
        assert said["outcome"] == "denied" and said["isolated_by"] == [f"{GOVERNED}/own"] and not said["decided_by"]
        assert any('Admin leave ingress[0] "Pass in"' in reason for reason in said["reasons"])
        cluster.plane.apply(network_policy("asker", "friend"))
        wait_until(cluster, world["asker"], world["web"], reached=True)
        assert why(cluster, asker, web)["allowed_by"].startswith(f"{GOVERNED}/own ingress[0]")
        assert answers(cluster, world["friend"], world["web"]) == {False}, "who is not passed on is denied"
        cluster.plane.kubectl("delete", "networkpolicy", "own", f"--namespace={GOVERNED}")
        eventually(lambda: why(cluster, asker, web)["outcome"] == "not isolated", what="nobody to decide")
        assert answers(cluster, world["asker"], world["web"]) == {True}


def test_what_is_denied_at_the_base_a_namespace_opens_for_itself(
    cluster: Cluster, world: World, definition: float
) -> None:
    shut = cluster_policy("shut", tier="Baseline", subject=OURS, ingress=[ingress("Deny", EVERY_POD)])
    asker, web = world["asker"][0], world["web"][0]
    with applied(cluster, shut):
        wait_until(cluster, world["asker"] + world["friend"], world["web"], reached=False)
        said = why(cluster, asker, web)
        assert said["outcome"] == "denied" and said["otherwise"] == "not isolated"
        assert said["decided_by"].startswith('Baseline shut ingress[0] "Deny in" (Deny from ')
        with applied(cluster, network_policy("asker")):
            wait_until(cluster, world["asker"], world["web"], reached=True)
            assert answers(cluster, world["friend"], world["web"]) == {False}, "now by the NetworkPolicy"
            assert why(cluster, asker, web)["allowed_by"].startswith(f"{GOVERNED}/own ingress[0]")
            assert answers(cluster, world["web"], world["asker"]) == {False}, "the others are as they were"
        wait_until(cluster, world["asker"], world["web"], reached=False)


# --- all denied ---


def test_probes_and_a_name_server_at_its_own_address_work_where_all_else_is_denied(
    cluster: Cluster, world: World, definition: float
) -> None:
    dns = {"protocols": [{"udp": {"destinationPort": {"number": DNS_PORT}}}]}
    names = cluster_policy(
        "names",
        tier="Baseline",
        priority=1,
        subject=OURS,
        ingress=[ingress("Accept", OURS, **dns)],
        egress=[egress("Accept", pods_of("dns"), **dns)],
    )
    nothing = cluster_policy(
        "nothing",
        tier="Baseline",
        priority=1000,
        subject=OURS,
        ingress=[ingress("Deny", EVERY_POD)],
        egress=[egress("Deny", EVERYWHERE)],
    )
    server, asker = world["dns"][0], world["asker"][0]
    eventually(lambda: resolves(cluster, world["asker"], server) == {True}, what="names to be told")
    assert reaches_its_node(cluster, asker) == {True}
    before = readiness(cluster, world)
    with applied(cluster, nothing):
        wait_until(cluster, world["asker"], world["web"], reached=False)
        assert resolves(cluster, world["asker"], server) == {False}
        assert reaches_its_node(cluster, asker) == {False}
        with applied(cluster, names):
            eventually(lambda: resolves(cluster, world["asker"], server) == {True}, what="names to be told again")
            assert answers(cluster, world["asker"], world["web"]) == {False}
            with cluster.running(deployment("later", replicas=2, namespace=GOVERNED)) as later:
                assert {pod["spec"]["nodeName"] for pod in later} == set(cluster.nodes)
                assert answers(cluster, world["asker"], later) == {False}
            for web in world["web"]:
                for address in addresses(web):
                    assert cluster.fetch(address, PORT, source=cluster.nodes[web["spec"]["nodeName"]])
                    assert not cluster.refuses(address, PORT), "who is no pod is not meant, and is answered"
            assert readiness(cluster, world) == before, "no probe has failed meanwhile"


def readiness(cluster: Cluster, world: World) -> dict[str, str]:
    """Since when each pod is ready."""
    named = {pod["metadata"]["name"]: pod for app in world for pod in cluster.pods(f"app={app}", namespace=GOVERNED)}
    assert all(is_true(pod, "Ready") for pod in named.values()), sorted(named)
    conditions = ((name, condition) for name, pod in named.items() for condition in pod["status"]["conditions"])
    return {name: condition["lastTransitionTime"] for name, condition in conditions if condition["type"] == "Ready"}


# --- what is wrong ---


def test_a_policy_that_is_refused_closes_its_subjects_and_says_so_in_status_and_event(
    cluster: Cluster, world: World, definition: float
) -> None:
    """The definition's schema cannot compare two numbers; the agents do."""
    ports = [{"tcp": {"destinationPort": {"range": {"start": PORT, "end": 80}}}}]
    backwards = cluster_policy("backwards", tier="Baseline", ingress=[ingress("Accept", EVERY_POD, protocols=ports)])
    with applied(cluster, backwards):
        wait_until(cluster, world["asker"], world["web"], reached=False)
        for node in cluster.nodes:
            said = problems(cluster, node)
            assert f"{KIND} backwards: spec.ingress[0].protocols[0].tcp" in said, said
            assert "it denies everything to and from its subjects" in said, said
        event = eventually(lambda: events_of(cluster, "backwards"), what="the event")[-1]
        assert event["reason"] == "FlockPolicyRefused" and "is not above start" in event["message"]
        assert "is refused" in " ".join(why(cluster, world["asker"][0], world["web"][0])["reasons"])
    wait_until(cluster, world["asker"], world["web"], reached=True)


def events_of(cluster: Cluster, policy: str) -> list[dict[str, Any]]:
    about = f"involvedObject.kind={KIND},involvedObject.name={policy}"
    events: list[dict[str, Any]] = cluster.plane.get("events", f"--field-selector={about}")
    return events


def test_a_definition_that_goes_takes_its_policies_along_and_nobody_complains(
    cluster: Cluster, world: World, definition: float
) -> None:
    cluster.plane.apply(cluster_policy("last", tier="Admin", ingress=[ingress("Deny", EVERY_POD)]))
    wait_until(cluster, world["asker"], world["web"], reached=False)
    cluster.plane.kubectl("delete", "-f", DEFINITION)
    wait_until(cluster, world["asker"], world["web"], reached=True)
    for node in cluster.nodes:
        eventually(lambda n=node: is_well(cluster, n) and not is_watched(cluster, n), what=f"{node} to be well")
        assert known(cluster, node) == 0
