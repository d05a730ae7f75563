"""The kinds of objects flock reads, one row each: where they are, how they are read, what is kept of them.  Pure.

A row is all there is to a kind: whoever feeds the cache (`edge/manifests.py`, `edge/kube/`) goes by it, and whoever
wants the objects names it (`edge/cache.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Generic, TypeVar

import msgspec

from flock.core.decoding import (
    decode_cluster_pod,
    decode_config,
    decode_namespace,
    decode_node,
    decode_pod,
    decode_policy,
)
from flock.core.model import PREFIX, Metadata, Namespace, Node, Pod

T = TypeVar("T")
Key = tuple[str, str]  # namespace, empty for what has none, and name
Raw = Mapping[str, Any]
NAMED = "metadata.name="


class Envelope(msgspec.Struct, frozen=True):
    """What is checked of an object that is kept as it came, to be validated by whoever reads its spec."""

    metadata: Metadata


@dataclass(frozen=True, eq=False)
class Kind(Generic[T]):
    """`name` is the kind's in status and on disk; `of` what the API calls it, where that is another."""

    name: str
    api_version: str
    plural: str
    _: KW_ONLY
    of: str = ""
    namespaced: bool
    selector: str = ""  # of fields, by the node's name: what else there is concerns other nodes
    decode: Callable[[bytes], T]  # the server's JSON, trimmed to what is read
    shape: type[Any] | None = Envelope  # how a manifest's object is read; None: this kind is not for manifests
    judged: bool = False  # handed on even if refused: its reader decides what that means for pods
    remembered: bool = True  # on disk, for a start without the API server
    needed_with: tuple[str, ...] = ()  # followed only once there are objects of one of these kinds, and a reader

    @property
    def kind(self) -> str:
        return self.of or self.name

    @property
    def path(self) -> str:
        """Of all objects of the kind, at the API server."""
        return f"/{'apis' if '/' in self.api_version else 'api'}/{self.api_version}/{self.plural}"

    @property
    def is_of_one_node(self) -> bool:
        """Each node has one object, and it bears the node's name."""
        return self.selector.startswith(NAMED)


POLICY_GROUP, OWN_GROUP = "networking.k8s.io/v1", f"{PREFIX}/v1alpha1"

PODS = Kind[Pod]("Pod", "v1", "pods", namespaced=True, selector="spec.nodeName={node}", decode=decode_pod, shape=Pod)
NAMESPACES = Kind[Namespace](
    "Namespace", "v1", "namespaces", namespaced=False, decode=decode_namespace, shape=Namespace
)
NODES = Kind[Node]("Node", "v1", "nodes", namespaced=False, selector=NAMED + "{node}", decode=decode_node, shape=Node)
NODE_CONFIGS = Kind[Raw](
    "NodeConfig", OWN_GROUP, "nodeconfigs", namespaced=False, selector=NAMED + "{node}", decode=decode_config
)
TEMPLATES = Kind[Raw]("NodeConfigTemplate", OWN_GROUP, "nodeconfigtemplates", namespaced=False, decode=decode_config)
POLICIES = Kind[Raw](
    "NetworkPolicy", POLICY_GROUP, "networkpolicies", namespaced=True, decode=decode_policy, judged=True
)
# Only policies mean pods of other nodes.  Manifests tell all pods as `PODS`.
CLUSTER_PODS = Kind[Pod](
    "ClusterPod",
    "v1",
    "pods",
    of="Pod",
    namespaced=True,
    decode=decode_cluster_pod,
    shape=None,
    needed_with=(POLICIES.name,),
)

# What is needed with another kind comes after it.
KINDS: tuple[Kind[Any], ...] = (PODS, NAMESPACES, NODES, NODE_CONFIGS, TEMPLATES, POLICIES, CLUSTER_PODS)
