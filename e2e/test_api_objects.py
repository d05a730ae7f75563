"""deploy on a real API server: it takes all of it, judges NodeConfigs as the tests' own validator does, and lets the
agent do what it needs and nothing else."""

import asyncio
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from control_plane import ControlPlane, api_server
from places import eventually

from flock.edge.kube.access import from_kubeconfig
from flock.edge.kube.client import ApiError, KubeClient
from flock.edge.kube.writer import BURST, KubeWriter

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / "deploy"), str(ROOT / "scripts")]

from configs import CONTAINERS, FULL, SCALARS, node_config, paths, put, without  # noqa: E402
from structural import complaints  # noqa: E402

from crd.definitions import definitions  # noqa: E402

SCHEMA = definitions()["nodeconfigs.yaml"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
PATH = "/apis/flock.fritzlab.net/v1alpha1/nodeconfigs"
SAMPLES = 3000
TEMPLATE = {
    "apiVersion": "flock.fritzlab.net/v1alpha1",
    "kind": "NodeConfigTemplate",
    "metadata": {"name": "common"},
    "spec": {"nodeSelector": {"matchLabels": {"rack": "1"}}, "template": {"bgp": {"asn": 64601}}},
}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with api_server() as plane:
        plane.kubectl("apply", "-k", ROOT / "deploy")
        plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *_names())
        plane.kubectl("wait", "--for=condition=NamesAccepted", "--timeout=60s", *_names())
        yield plane


def _names() -> list[str]:
    return [f"crd/{definition['metadata']['name']}" for definition in definitions().values()]


def test_the_schemas_are_structural(plane: ControlPlane) -> None:
    for crd in plane.get("crd"):
        conditions = {c["type"]: c["status"] for c in crd["status"]["conditions"]}
        assert conditions.get("NonStructuralSchema", "False") == "False", crd["status"]


def test_a_full_configuration_is_stored_with_the_defaults_of_its_lists_and_no_others(plane: ControlPlane) -> None:
    plane.apply(node_config(FULL), TEMPLATE)
    stored = plane.get("nodeconfig", "node1")["spec"]
    assert stored["bgp"]["peers"][2]["holdTime"] == "90s"
    assert stored["ospf"]["areas"][0]["interfaces"][0]["bfd"] == {"enabled": True, "interval": "1s", "multiplier": 3}
    assert plane.get("nodeconfigtemplate", "common")["spec"] == TEMPLATE["spec"]


def test_a_misspelled_field_is_told_by_kubectl(plane: ControlPlane) -> None:
    wrong = json.dumps(node_config({"cidr": ["2001:db8::/64"]}))
    command = plane.kubectl_command("apply", "--dry-run=client", "-f", "-")
    # The schema is published to clients a moment after it is in force.
    eventually(lambda: 'unknown field "cidr"' in plane.place.attempt(*command, stdin=wrong).stderr, what="a complaint")


def test_status_is_written_apart_and_shown_in_columns(plane: ControlPlane) -> None:
    plane.apply(node_config(FULL), TEMPLATE)
    status = {
        "observedGeneration": 1,
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"},
            {"type": "BGPEstablished", "status": "False", "reason": "SessionDown", "message": "1 of 2 sessions"},
        ],
        "sessions": [
            {"peer": "tor1", "address": "2001:db8::1", "state": "Active", "received": 0, "sent": 0, "lastError": ""}
        ],
        "pools": [{"cidr": "2001:db8:1::/64", "size": "2^64", "used": 3, "cooling": 0}],
        "pods": 3,
        "version": "0.1.0",
    }
    _send(plane, "PATCH", f"{PATH}/node1/status", {"status": status}, "application/merge-patch+json")
    assert plane.get("nodeconfig", "node1")["status"] == status
    lines = plane.kubectl("get", "nc", "--output=wide").splitlines()
    assert lines[0].split() == ["NAME", "READY", "BGP", "PODS", "SESSIONS", "VERSION", "AGE"]
    assert lines[1].split()[:8] == ["node1", "True", "False", "3", "1", "of", "2", "sessions"]
    assert "node1" in plane.kubectl("get", "flock") and "common" in plane.kubectl("get", "nct")


def test_it_judges_as_the_tests_own_validator_does(plane: ControlPlane) -> None:
    specs = [without(FULL, path) for path in paths(FULL)]
    specs += [put(FULL, path, value) for path in paths(FULL) for value in (*SCALARS, *CONTAINERS)]
    # This release, built with a Go newer than its own, takes every empty text for null.
    specs = [spec for spec in specs if '""' not in json.dumps(spec)]
    sample = random.Random(4).sample(specs, SAMPLES)
    verdicts = asyncio.run(_verdicts(plane, sample))
    for spec, refused in zip(sample, verdicts, strict=True):
        ours = [text for text in complaints(SCHEMA, node_config(spec)) if "no such field" not in text]
        assert bool(ours) == bool(refused), f"{json.dumps(spec)}: {ours} / {refused}"


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ("get pods", True),
        ("watch networkpolicies.networking.k8s.io", True),
        ("patch nodeconfigs.flock.fritzlab.net --subresource=status", True),
        ("create events", True),
        ("create nodeconfigs.flock.fritzlab.net", True),
        ("get secrets/flock-bgp --namespace=flock-system", True),
        ("get secrets --namespace=flock-system", False),
        ("get secrets", False),
        ("list secrets --namespace=flock-system", False),
        ("update nodeconfigs.flock.fritzlab.net", False),
        ("patch nodes", False),
        ("delete pods", False),
    ],
)
def test_the_agent_may_do_what_it_needs_and_nothing_else(plane: ControlPlane, words: str, allowed: bool) -> None:
    account = "--as=system:serviceaccount:flock-system:flock-agent"
    answer = plane.place.attempt(*plane.kubectl_command("auth", "can-i", *words.split(), account))
    assert answer.stdout.strip() == ("yes" if allowed else "no"), answer.stderr


def test_events_are_neither_repeated_nor_too_many(plane: ControlPlane) -> None:
    asyncio.run(_complain(plane))
    messages = [event["message"] for event in plane.get("events") if event["reason"] == "FlockTest"]
    assert messages.count("again and again") == 1
    assert 1 < len(messages) <= BURST + 5  # a few more may be told while the test runs


async def _complain(plane: ControlPlane) -> None:
    writer = KubeWriter(KubeClient(from_kubeconfig(plane.kubeconfig)), node="node1")
    for message in ["again and again"] * 5 + [f"problem {number}" for number in range(2 * BURST)]:
        await writer.pod_event(namespace="default", name="web", uid="", reason="FlockTest", message=message)


async def _verdicts(plane: ControlPlane, specs: list[dict[str, Any]]) -> list[str]:
    client = KubeClient(from_kubeconfig(plane.kubeconfig))
    turn = asyncio.Semaphore(8)

    async def verdict(spec: dict[str, Any]) -> str:
        async with turn:
            try:
                await client.send(
                    "POST", f"{PATH}?dryRun=All", {**node_config(spec), "metadata": {"generateName": "x"}}
                )
            except ApiError as error:
                assert error.status == 422, error
                return error.msg
        return ""

    return list(await asyncio.gather(*map(verdict, specs)))


def _send(plane: ControlPlane, method: str, path: str, body: Any, content_type: str) -> None:
    asyncio.run(KubeClient(from_kubeconfig(plane.kubeconfig)).send(method, path, body, content_type=content_type))
