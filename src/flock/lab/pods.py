"""Pods: sandboxes attached by the real CNI executable, and their Pod objects in the manifest directory.

The lab plays two parts here.  As the container runtime it makes the namespace and execs ADD and DEL; as the kubelet
it writes the pod's addresses, its Ready condition and its deletion timestamp.  A `PodRecord` is all it remembers;
the manifest is made from it, so the two cannot disagree.
"""

import json
import secrets
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from flock.core.annotations import ANYCAST
from flock.core.conflist import ANNOTATIONS as PASSED
from flock.core.errors import FieldError
from flock.lab import cni, namespaces
from flock.lab.errors import LabError
from flock.lab.home import Home, write, write_object
from flock.lab.hosts import Host, end
from flock.lab.nodes import Node


class PodRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime remembers of a sandbox, and what the kubelet says of its pod."""

    namespace: str
    name: str
    uid: str
    node: str
    container: str
    netns: str
    labels: dict[str, str]
    annotations: dict[str, str]
    result: dict[str, Any] | None = None  # of ADD; None until it succeeded
    ready: bool = False
    deleted_at: str | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def file(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(ip["address"].split("/")[0] for ip in (self.result or {}).get("ips", ()))

    @property
    def anycast(self) -> tuple[str, ...]:
        listed = self.annotations.get(ANYCAST, "")
        return tuple(a.strip() for a in listed.split(",") if a.strip())

    @property
    def cni_args(self) -> str:
        return (
            f"IgnoreUnknown=1;K8S_POD_NAMESPACE={self.namespace};K8S_POD_NAME={self.name};"
            f"K8S_POD_INFRA_CONTAINER_ID={self.container};K8S_POD_UID={self.uid}"
        )


def manifest(pod: PodRecord) -> dict[str, Any]:
    """The Pod object.  Pure."""
    # the API keeps the first address of each family
    first = {":" in a: a for a in reversed(pod.addresses)}
    addresses = [a for a in pod.addresses if a in first.values()]
    status: dict[str, Any] = {
        "phase": "Running" if pod.result else "Pending",
        "conditions": [{"type": "Ready", "status": "True" if pod.ready else "False"}],
        "podIPs": [{"ip": a} for a in addresses],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "labels": pod.labels,
            "annotations": pod.annotations,
            **({"deletionTimestamp": pod.deleted_at} if pod.deleted_at else {}),
        },
        "spec": {"nodeName": pod.node, "containers": [{"name": "main", "image": "lab"}]},
        "status": status,
    }


class Pods:
    """All pods of a lab."""

    def __init__(self, home: Home, *, lab: str, node: Callable[[str], Node]) -> None:
        self._home = home
        self._lab = lab
        self._node = node

    def __iter__(self) -> Iterator[PodRecord]:
        """By file name; those that vanish meanwhile are left out."""
        for path in sorted(self._home.pods.glob("*.json")):
            with suppress(FileNotFoundError):
                yield msgspec.json.decode(path.read_bytes(), type=PodRecord)

    def get(self, name: str) -> PodRecord:
        """A pod by `namespace/name`, or by a name of namespace default."""
        key = name if "/" in name else f"default/{name}"
        for pod in self:
            if pod.key == key:
                return pod
        raise LabError(f"no pod {key}", details=f"there are: {', '.join(p.key for p in self) or 'none'}")

    def find(self, name: str) -> PodRecord | None:
        try:
            return self.get(name)
        except LabError:
            return None

    def host(self, pod: PodRecord) -> Host:
        return Host(pod.key, netns=pod.netns, home=self._home.of(pod.node))

    def add(
        self,
        name: str,
        *,
        node: str,
        namespace: str = "default",
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        ready: bool = False,
    ) -> PodRecord:
        """Attach a new pod.  When ADD fails nothing is left of it, and the plugin's error is raised."""
        _check_name(name, "NAME")
        _check_name(namespace, "--namespace")
        if self.find(f"{namespace}/{name}"):
            raise FieldError("NAME", f"there is a pod {namespace}/{name} already")
        where = self._node(node)
        pod = PodRecord(
            namespace=namespace,
            name=name,
            uid=str(uuid.uuid4()),
            node=node,
            container=secrets.token_hex(32),
            netns=namespaces.netns(self._lab, f"pod.{namespace}.{name}"),
            labels=labels or {},
            annotations=annotations or {},
        )
        self._ensure_namespace(namespace)
        self._save(pod)
        try:
            namespaces.create(pod.netns)
            self.host(pod).run(["ip", "link", "set", "lo", "up"])
            result = json.loads(self._run(where, "ADD", pod, runtimeConfig={PASSED: pod.annotations}))
        except LabError:
            self.forget(pod)
            raise
        return self._save(msgspec.structs.replace(pod, result=result, ready=ready))

    def set_ready(self, name: str, ready: bool) -> PodRecord:
        return self._save(msgspec.structs.replace(self.get(name), ready=ready))

    def serve(self, name: str) -> None:
        """Let the pod answer questions with its name (`traffic`)."""
        pod = self.get(name)
        self.host(pod).spawn(f"answer.{pod.file}", [sys.executable, "-m", "flock.lab.traffic", "serve", pod.name])

    def terminate(self, name: str) -> PodRecord:
        """As when someone asks for deletion: the pod still runs, its object says that it will not for long."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return self._save(msgspec.structs.replace(self.get(name), deleted_at=now))

    def delete(self, name: str, *, grace: float = 0) -> None:
        """Terminate, give the pod its grace period, end its processes, exec DEL, remove what is left."""
        pod = self.terminate(name)
        time.sleep(grace)
        node = self._node(pod.node)
        end(namespaces.pids(pod.netns))
        self._run(node, "DEL", pod, **({"prevResult": pod.result} if pod.result else {}))
        self.forget(pod)

    def forget(self, pod: PodRecord) -> None:
        """Its namespace, object and record go, whatever the plugin says to it; fine where they are gone."""
        namespaces.delete(pod.netns)
        (self._home.manifests / f"pod-{pod.file}.json").unlink(missing_ok=True)
        (self._home.pods / f"{pod.file}.json").unlink(missing_ok=True)

    def _run(self, node: Node, verb: str, pod: PodRecord, **more: Any) -> str:
        netns = namespaces.NETNS_DIR / pod.netns
        return cni.run(node, verb, container=pod.container, netns=netns, args=pod.cni_args, more=more)

    def _save(self, pod: PodRecord) -> PodRecord:
        write(self._home.pods / f"{pod.file}.json", msgspec.json.encode(pod))
        write_object(self._home.manifests, f"pod-{pod.file}", manifest(pod))
        return pod

    def _ensure_namespace(self, namespace: str) -> None:
        # sorts before an operator's own file, whose Namespace then wins
        name = f"00-namespace-{namespace}"
        if not (self._home.manifests / f"{name}.json").exists():
            labels = {"kubernetes.io/metadata.name": namespace}
            metadata = {"name": namespace, "labels": labels}
            write_object(self._home.manifests, name, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def _check_name(name: str, field: str) -> None:
    if not (0 < len(name) < 64 and name.replace("-", "a").isalnum() and name.isascii() and name == name.lower()):
        raise FieldError(field, f"{name!r} is not a name: up to 63 of a-z, 0-9 and -")
