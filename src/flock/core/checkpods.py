"""The objects of a check in a cluster: a namespace, its policy, a Service, and pods with few rights.  Pure."""

from collections.abc import Mapping
from typing import Any

from flock.core.annotations import ANYCAST, CHECK
from flock.core.checkup import ASKED, OPEN, PROTOCOLS, SUBJECT, policy

# On the namespace, as a label: what a killed check left is found by it, and grants may name it.  As an annotation: who
# runs it.
SERVES = 180  # seconds; whatever becomes of the check, its pods end
SERVICE = "subjects"
ACCOUNT = "check"  # an account without rights, whose token no pod gets


def frame(namespace: str, *, owner: str, host_ports: bool) -> list[dict[str, Any]]:
    """All but the pods.  Host ports are more than any level but the last one lets a pod have."""
    level = "privileged" if host_ports else "restricted"
    ports = [{"name": protocol.lower(), "protocol": protocol, "port": OPEN} for protocol in PROTOCOLS]
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": namespace,
                "labels": {
                    CHECK: "",
                    "kubernetes.io/metadata.name": namespace,
                    "pod-security.kubernetes.io/enforce": level,
                },
                "annotations": {CHECK: owner},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": namespace},
            "automountServiceAccountToken": False,
        },
        policy(namespace),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": namespace},
            "spec": {"selector": SUBJECT, "ports": ports, "ipFamilyPolicy": "PreferDualStack"},
        },
    ]


def pod(name: str, *, namespace: str, node: str, image: str, anycast: str = "", host_port: int = 0) -> dict[str, Any]:
    """A pod that answers with `NAME-NODE`, which also is its name."""
    full = f"{name}-{node}"
    ports = [{"containerPort": OPEN, "hostPort": host_port, "protocol": p} for p in PROTOCOLS] if host_port else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": full,
            "namespace": namespace,
            "labels": dict(SUBJECT) if name == ASKED else {},
            "annotations": {ANYCAST: anycast} if anycast else {},
        },
        "spec": {
            "nodeName": node,  # past the scheduler: a node that takes no new pods has a network all the same
            "tolerations": [{"operator": "Exists"}],
            "serviceAccountName": ACCOUNT,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": SERVES,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65534,
                "runAsGroup": 65534,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "check",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "-m", "flock.edge.probe", "serve", full, "--for", str(SERVES)],
                    "ports": ports,
                    "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


def trouble(found: Mapping[str, Any]) -> str:
    """Why a pod does not run; empty if it does and has an address."""
    status = found.get("status", {})
    if status.get("phase") == "Running" and status.get("podIPs"):
        return ""
    waiting = (c.get("state", {}).get("waiting", {}) for c in status.get("containerStatuses", ()))
    reasons = [": ".join(filter(None, (w.get("reason"), w.get("message")))) for w in waiting if w]
    said = "; ".join(reasons) or ": ".join(filter(None, (status.get("reason"), status.get("message"))))
    return f"{status.get('phase') or 'Pending'}{', ' if said else ''}{said}"
