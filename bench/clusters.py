"""Objects of a made-up cluster: pods on other nodes, and policies for the pods of namespace `bench`."""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Any

Object = dict[str, Any]

HOME = "bench"  # the namespace of the pods that are measured
APPS, NAMESPACES = 100, 20
FIRST4, FIRST6 = IPv4Address("10.128.0.0"), IPv6Address("2001:db8:128::")


def namespaces() -> list[Object]:
    names = [HOME, *(f"team-{number}" for number in range(NAMESPACES))]
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": _metadata("", name)} for name in names]


def cluster_pods(count: int) -> list[Object]:
    """Pods of other nodes, `APPS` kinds of them in `NAMESPACES` namespaces."""
    return [cluster_pod(number, app=f"app-{number // NAMESPACES % APPS}") for number in range(count)]


def cluster_pod(number: int, *, app: str) -> Object:
    addresses = [{"ip": str(FIRST6 + number)}, {"ip": str(FIRST4 + number)}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**_metadata(f"team-{number % NAMESPACES}", f"pod-{number}"), "labels": {"app": app}},
        "spec": {"nodeName": f"other-{number // 100}", "containers": [{"name": "main", "image": "main"}]},
        "status": {"phase": "Running", "podIPs": addresses},
    }


def policy(
    name: str, *, selects: Mapping[str, str] | None, peers: Sequence[Object] = (), port: int | None = None
) -> Object:
    """Pods with these labels (None: all) are isolated but for these peers, on this port (None: every port)."""
    ports = {"ports": [{"protocol": "TCP", "port": port}]} if port is not None else {}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(HOME, name),
        "spec": {
            "podSelector": {"matchLabels": dict(selects)} if selects else {},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": list(peers), **ports}] if peers else [],
        },
    }


def everywhere(app: str) -> Object:
    """The pods of an app in all namespaces, as a peer."""
    return {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": app}}}


def own(app: str) -> Object:
    """The pods of an app in the policy's namespace, as a peer."""
    return {"podSelector": {"matchLabels": {"app": app}}}


def _metadata(namespace: str, name: str) -> Object:
    labels = {} if namespace else {"labels": {"kubernetes.io/metadata.name": name}}
    return {"name": name, **({"namespace": namespace} if namespace else {}), **labels}


def cluster_policy(number: int, *, priority: int) -> Object:
    """Of the administrator, about every pod: some networks nobody here talks to, and an app that comes in."""
    networks = [{"networks": [f"198.18.{number}.0/24", f"2001:db8:bad:{number:x}::/64"]}]
    app = [{"pods": {"podSelector": {"matchLabels": {"app": f"app-{number % 40}"}}}}]
    return {
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy",
        "metadata": {"name": f"guard-{number}"},
        "spec": {
            "tier": "Admin",
            "priority": priority,
            "subject": {"namespaces": {}},
            "ingress": [{"action": "Pass", "from": app, "protocols": [{"tcp": {"destinationPort": {"number": 9100}}}]}],
            "egress": [{"action": "Deny", "to": networks}],
        },
    }
