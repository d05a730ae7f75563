"""Random worlds as an index is told of them."""

from typing import Any

from evaluator import Cluster, Subject

from flock.core.nodeconfig import NodeConfig, parse_node_config


def config(world: Cluster) -> NodeConfig:
    allowed: dict[str, list[Any]] = {"addresses": [], "anycast": []}
    for kind, prefix, selector in world.grants:
        allowed[kind].append({"prefixes": [prefix], **({"namespaceSelector": selector} if selector else {})})
    return parse_node_config(
        {
            "apiVersion": "flock.fritzlab.net/v1alpha1",
            "kind": "NodeConfig",
            "metadata": {"name": "here"},
            "spec": {kind: {"allowed": grants} for kind, grants in allowed.items()},
        }
    )


def manifest(pod: Subject) -> dict[str, Any]:
    annotations = {
        f"flock.fritzlab.net/{kind}": ",".join(address for address, other in pod.annotated if other == kind)
        for kind in ("addresses", "anycast")
    }
    primary = pod.addresses[: len(pod.addresses) - len(pod.annotated)]
    ports = [{"name": name, "containerPort": number, "protocol": protocol} for name, number, protocol in pod.ports]
    return {
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "labels": pod.labels,
            "annotations": {name: value for name, value in annotations.items() if value},
        },
        "spec": {"hostNetwork": pod.host_network, "containers": [{"name": "c", "ports": ports}]},
        "status": {"phase": pod.phase, "podIPs": [{"ip": a} for a in primary]},
    }
