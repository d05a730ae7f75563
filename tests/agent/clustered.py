"""A node of a cluster: the real agent, and an API server in the node's namespace that the test commands."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apiserver import ApiServer
from harness import NODE_CONFIG, Node

NAMESPACE = "shop"
UID = "11111111-2222-4333-8444-555555555555"


class Clustered:
    """`node` with `api` beside it; the agent is started by the test."""

    def __init__(self, node: Node, api: ApiServer) -> None:
        self.node, self.api = node, api
        api.put({"kind": "Namespace", "metadata": {"name": NAMESPACE}})
        api.put({"kind": "Node", "metadata": {"name": node.name, "labels": {"rack": "1"}}})

    def start(self, *flags: str, wait: bool = True) -> None:
        kubeconfig = self.api.kubeconfig(self.node.directory / "kubeconfig")
        self.node.start(*flags, wait=wait, kubeconfig=kubeconfig)

    def configure(self, **spec: Any) -> None:
        self.api.put({**NODE_CONFIG, "spec": {**NODE_CONFIG["spec"], **spec}})

    def add(self, name: str, *, uid: str = UID, annotations: dict[str, str] | None = None, **how: Any) -> Any:
        """ADD as a kubelet's runtime asks for it; the pod's object is the test's."""
        self.node.namespace(name)
        return self.add_again(name, uid=uid, annotations=annotations, **how)

    def add_again(self, name: str, *, uid: str = UID, annotations: dict[str, str] | None = None, **how: Any) -> Any:
        args = f"K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={name};K8S_POD_UID={uid}"
        return self.node.cni("ADD", name, args=args, annotations=annotations, **how)

    def problems(self) -> str:
        return "; ".join(f"{p['where']}: {p['message']}" for p in self.node.ask("status")["problems"])


@contextmanager
def clustered(node: Node) -> Iterator[Clustered]:
    with ApiServer(namespace=Path("/run/netns") / node.netns) as api:
        yield Clustered(node, api)


def pod(name: str, *, uid: str = UID, ready: bool = False, node: str = "n1", **metadata: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": uid, **metadata},
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "conditions": conditions},
    }


def closed(name: str = "closed", **labels: str) -> dict[str, Any]:
    """Nothing gets into the pods with these labels."""
    return {
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"]},
    }


def primary(result: Any) -> str:
    """The pod's IPv4 address."""
    return next(ip["address"].partition("/")[0] for ip in result["ips"] if ":" not in ip["address"])
