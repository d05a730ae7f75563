"""What a bundle has of an object: what this network goes by, and nothing that might be somebody's secret.  Pure.

Kept is what is named here.  Of annotations our own, of a pod neither its environment nor its command, of a Secret
nothing at all.
"""

from typing import Any

from flock.core.annotations import own_annotations

_METADATA = ("name", "namespace", "uid", "labels", "generation", "creationTimestamp", "deletionTimestamp")
_NODE_INFO = ("kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion", "architecture")  # and no ids

# Kind -> what is kept of spec and status; None: all of it.
_KEPT: dict[str, dict[str, tuple[str, ...] | None]] = {
    "NodeConfig": {"spec": None, "status": None},
    "NodeConfigTemplate": {"spec": None, "status": None},
    "NetworkPolicy": {"spec": None},
    "ClusterNetworkPolicy": {"spec": None},
    "Namespace": {"status": ("phase",)},
    "Node": {"spec": ("podCIDRs", "unschedulable", "taints"), "status": ("addresses", "conditions", "nodeInfo")},
    "Pod": {
        "spec": ("nodeName", "hostNetwork"),
        "status": ("phase", "podIPs", "conditions", "hostIPs", "startTime", "reason"),
    },
    "Service": {"spec": None, "status": ("loadBalancer", "conditions")},
    "EndpointSlice": {"addressType": None, "endpoints": None, "ports": None},
}
KINDS = tuple(_KEPT)


def told_of(given: dict[str, Any]) -> dict[str, Any] | None:
    """The object as it is told, None if its kind is none of ours."""
    kept = _KEPT.get(str(given.get("kind")))
    if kept is None:
        return None
    metadata = given.get("metadata") or {}
    found: dict[str, Any] = {key: given[key] for key in ("apiVersion", "kind") if key in given}
    found["metadata"] = {key: metadata[key] for key in _METADATA if key in metadata}
    annotations = own_annotations(metadata.get("annotations") or {})
    if annotations:
        found["metadata"]["annotations"] = dict(annotations)
    for part, keys in kept.items():
        value = given.get(part)
        if value is not None:
            found[part] = value if keys is None else {key: value[key] for key in keys if key in value}
    if isinstance(info := found.get("status", {}).get("nodeInfo"), dict):
        found["status"] = found["status"] | {"nodeInfo": {key: info[key] for key in _NODE_INFO if key in info}}
    if found["kind"] == "Pod":
        found["spec"] = found.get("spec", {}) | {"containers": [*map(_container, _containers(given))]}
    return found


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [c for c in (pod.get("spec") or {}).get("containers") or () if isinstance(c, dict)]


def _container(container: dict[str, Any]) -> dict[str, Any]:
    return {key: container[key] for key in ("name", "ports") if key in container}
