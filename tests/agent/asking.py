"""Pods that ask for addresses of their own, and a node that grants some."""

from typing import Any

from harness import with_spec

GRANTING = with_spec(
    addresses={"allowed": [{"prefixes": ["2001:db8:53::/64", "198.51.100.0/24"]}]},
    anycast={"allowed": [{"prefixes": ["2001:db8:53::/64"]}]},
)


def pod_manifest(name: str, *, annotations: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "annotations": annotations or {}, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [{"image": "nginx"}]}}
