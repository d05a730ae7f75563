"""The pods of a check in a cluster have no right that a check does not need."""

import json

import pytest

from flock.core.annotations import CHECK
from flock.core.checkpods import frame, pod, trouble
from flock.core.checkup import ASKED, ASKING, CLOSED, SUBJECT


def of_kind(objects: list[dict[str, object]], kind: str) -> dict[str, object]:
    (found,) = (o for o in objects if o["kind"] == kind)
    return found


def test_a_pod_passes_the_strictest_level_of_pod_security() -> None:
    spec = pod(ASKING, namespace="c", node="n1", image="flock:1")["spec"]
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] != 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes"} & set(spec)
    assert spec["automountServiceAccountToken"] is False and "memory" in container["resources"]["limits"]


def test_a_pod_ends_by_itself_and_is_on_its_node_whatever_is_scheduled_there() -> None:
    spec = pod(ASKING, namespace="c", node="n1", image="flock:1")["spec"]
    assert spec["nodeName"] == "n1" and spec["activeDeadlineSeconds"] < 300 and spec["restartPolicy"] == "Never"
    assert spec["containers"][0]["image"] == "flock:1" and spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"


def test_the_policy_selects_those_that_are_asked_and_lets_one_port_through() -> None:
    assert pod(ASKED, namespace="c", node="n1", image="i")["metadata"]["labels"] == SUBJECT
    assert pod(ASKING, namespace="c", node="n1", image="i")["metadata"]["labels"] == {}
    policy = json.dumps(of_kind(frame("c", owner="me", host_ports=False), "NetworkPolicy"))
    assert str(CLOSED) not in policy


@pytest.mark.parametrize(("host_ports", "level"), [(False, "restricted"), (True, "privileged")])
def test_the_namespace_says_whose_it_is_and_is_as_strict_as_host_ports_let_it(host_ports: bool, level: str) -> None:
    metadata = of_kind(frame("c", owner="me", host_ports=host_ports), "Namespace")["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["labels"]["pod-security.kubernetes.io/enforce"] == level and CHECK in metadata["labels"]
    assert metadata["annotations"] == {CHECK: "me"}


def test_only_a_pod_with_an_address_runs_and_of_others_it_is_said_why() -> None:
    assert trouble({"status": {"phase": "Running", "podIPs": [{"ip": "2001:db8::1"}]}}) == ""
    waiting = {"state": {"waiting": {"reason": "ErrImageNeverPull", "message": "no image"}}}
    assert (
        trouble({"status": {"phase": "Pending", "containerStatuses": [waiting]}})
        == "Pending, ErrImageNeverPull: no image"
    )
    assert trouble({"status": {"phase": "Failed", "reason": "NodePorts"}}) == "Failed, NodePorts"
    assert trouble({}) == "Pending"
