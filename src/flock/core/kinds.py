"""The kinds of objects flock reads, one row each: where they are, how they are read, what is kept of them.  Pure.

A row is all there is to a kind: whoever feeds the cache (`edge/manifests.py`, `edge/kube/`) goes by it, and whoever
wants the objects names it (`edge/cache.py`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Generic, TypeVar

import msgspec

from flock.core.decoding import (
    decode_cluster_node,
    decode_cluster_pod,
    decode_config,
    decode_namespace,
    decode_node,
    decode_pod,
    decode_policy,
    decode_service,
    decode_slice,
)
from flock.core.model import PREFIX, EndpointSlice, Metadata, Namespace, Node, Pod, Service

T = TypeVar("T")
Key = tuple[str, str]  # namespace, empty for what has none, and name
Raw = Mapping[str, Any]
NAMED = "metadata.name="
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")  # a DNS subdomain, as the API server requires


def is_name(value: Any) -> bool:
    """Of an object."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


class Extent(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A part of a kind: the objects of a namespace (empty: of all) whose labels fit a selector (empty: any do), and of
    those the ones that belong to one of `owners` (empty: all), which no API server can select."""

    namespace: str = ""
    labels: str = ""
    owners: tuple[Key, ...] = ()

    @property
    def is_all(self) -> bool:
        return self == ALL

    def __str__(self) -> str:
        owners = f"of {len(self.owners)}" if self.owners else ""
        return ", ".join(filter(None, (self.namespace, self.labels, owners))) or "all"


ALL = Extent()


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
    selectable: str = ""  # another such, which not every API server knows; without it, `decode` drops the rest
    older: str = ""  # the version of servers that do not know `api_version`
    decode: Callable[[bytes], T | None]  # the server's JSON, trimmed to what is read; None: it is none of ours
    owner: Callable[[T], Key] | None = None  # what an object belongs to, where an extent may be of some owners alone
    shape: type[Any] | None = Envelope  # how a manifest's object is read; None: this kind is not for manifests
    judged: bool = False  # handed on even if refused: its reader decides what that means for pods
    remembered: bool = True  # on disk, for a start without the API server
    partial: bool = False  # followed only as far as somebody needs it, extent by extent
    pods_wait: bool = True  # until what is needed of it has been listed
    optional: bool = False  # an API server that does not know the kind is as good as one that has none of it

    @property
    def kind(self) -> str:
        return self.of or self.name

    @property
    def path(self) -> str:
        """Of all objects of the kind, at the API server."""
        return self.path_in("")

    def path_in(self, namespace: str, *, version: str = "") -> str:
        where, version = f"namespaces/{namespace}/" if namespace else "", version or self.api_version
        return f"/{'apis' if '/' in version else 'api'}/{version}/{where}{self.plural}"

    @property
    def is_of_one_node(self) -> bool:
        """Each node has one object, and it bears the node's name."""
        return self.selector.startswith(NAMED)


@dataclass(frozen=True, eq=False)
class Aspect(Generic[T]):
    """What somebody reads of a kind's objects: a change that leaves that as it is does not concern them.  `view` is
    what they see of an object, or of its absence: None."""

    of: Kind[T]
    view: Callable[[T | None], Any]


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
CLUSTER_POLICIES = Kind[Raw](
    "ClusterNetworkPolicy",
    "policy.networking.k8s.io/v1alpha2",
    "clusternetworkpolicies",
    namespaced=False,
    decode=decode_policy,
    judged=True,
    optional=True,
)
# Only policies mean pods of other nodes, and not all of them.  Those of this node are told once, as `PODS`; manifests
# tell all pods so.
CLUSTER_PODS = Kind[Pod](
    "ClusterPod",
    "v1",
    "pods",
    of="Pod",
    namespaced=True,
    selector="spec.nodeName!={node}",
    decode=decode_cluster_pod,
    shape=None,
    partial=True,
)
# Only policies mean other Nodes than the own one, and few do.
CLUSTER_NODES = Kind[Node](
    "ClusterNode", "v1", "nodes", of="Node", namespaced=False, decode=decode_cluster_node, shape=Node, partial=True
)
# Followed only where the configuration announces Services, and of those.
SERVICES = Kind[Service](
    "Service",
    "v1",
    "services",
    namespaced=True,
    selectable="spec.type=LoadBalancer",
    decode=decode_service,
    shape=Service,
    partial=True,
    pods_wait=False,
)
ENDPOINT_SLICES = Kind[EndpointSlice](
    "EndpointSlice",
    "discovery.k8s.io/v1",
    "endpointslices",
    namespaced=True,
    older="discovery.k8s.io/v1beta1",
    decode=decode_slice,
    owner=lambda found: found.service,
    shape=EndpointSlice,
    partial=True,
    pods_wait=False,
)

KINDS: tuple[Kind[Any], ...] = (
    PODS,
    NAMESPACES,
    NODES,
    NODE_CONFIGS,
    TEMPLATES,
    POLICIES,
    CLUSTER_POLICIES,
    CLUSTER_PODS,
    CLUSTER_NODES,
    SERVICES,
    ENDPOINT_SLICES,
)
