"""The values everything else passes around: allocations as stored, and the few Kubernetes objects we read.

Kubernetes structs mirror the API's JSON so that `msgspec` decodes, trims and type-checks in one step; unknown
fields are ignored, and a type error names the field's path.  Everything is frozen.  Of what there may be a hundred
thousand, the garbage collector is told nothing (`gc=False`): values contain no cycles.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

PREFIX = "flock.fritzlab.net"
NO_MAP: Mapping[str, str] = {}
REFUSED = "refused"  # a key no API has, in a NetworkPolicy whose reader could not take it: why.  The rest is as it came

EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"  # a label of Nodes, whatever its value

State = Literal["pending", "committed"]


class Allocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One container's entry in allocations.json.

    The first ten keys are the original's, in its order and spelling; what follows is ours, and absent in
    entries the original wrote (then the pod was set up by it and is adopted as it is).  The store completes the
    names of both interfaces when it is read; what else is empty nobody knows.
    `pending`: addresses are picked, kernel work may be half done or half undone.  `committed`: the kernel has it.
    """

    container_id: str
    namespace: str
    pod_name: str
    owner_uid: str
    ip6: str = ""
    ip4: str = ""
    anycast: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    state: State
    allocated_at: str
    network: str = ""  # the CNI network's name: GC frees only its own
    netns: str = ""
    # Which namespace that is, for `core/whose.py` alone to judge by.
    netns_id: str = ""  # "device:inode"; empty: nobody recorded which
    netns_cookie: int = 0  # 0: the kernel tells none, or an earlier version recorded it
    boot_id: str = ""
    ifname: str = ""
    host_interface: str = ""
    mac: str = ""  # the pod side's; empty for a pod the original set up
    mtu: int = 0
    annotations: dict[str, str] = {}  # ours, as read at ADD; a later change needs a new pod

    @property
    def pod(self) -> str:
        return f"{self.namespace}/{self.pod_name}" if self.pod_name else self.container_id

    @property
    def is_adopted(self) -> bool:
        """Set up by the original, which recorded no more than the first ten keys."""
        return not self.mac

    @property
    def held(self) -> tuple[str, ...]:
        """Addresses only this container may hold: the primaries and `addresses`, without repeats."""
        return tuple(dict.fromkeys(a for a in (self.ip6, self.ip4, *self.addresses) if a))

    @property
    def carried(self) -> tuple[str, ...]:
        """Every address that leads to this container."""
        return (*self.held, *self.anycast)


class Released(msgspec.Struct, frozen=True, omit_defaults=True):
    """An address that was freed and is cooling down."""

    address: str
    at: float  # seconds since the epoch; cool-down has to survive a restart
    namespace: str = ""  # whose it was: its pods need not wait for it


# --- Kubernetes objects -------------------------------------------------------------------------------------


class OwnerReference(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    deletion_timestamp: str | None = None


class ContainerPort(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    container_port: int
    name: str = ""
    protocol: str = "TCP"


class Container(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    image: str = ""
    ports: tuple[ContainerPort, ...] | None = None


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""
    host_network: bool | None = None
    containers: tuple[Container, ...] | None = None


class Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class PodIP(msgspec.Struct, frozen=True, gc=False):
    ip: str = ""


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename={"pod_ips": "podIPs"}):
    phase: str = ""
    conditions: tuple[Condition, ...] | None = None
    pod_ips: tuple[PodIP, ...] | None = None

    @property
    def is_over(self) -> bool:
        """Its containers have ended for good."""
        return self.phase in ("Succeeded", "Failed")


class Pod(msgspec.Struct, frozen=True, gc=False):
    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> tuple[str, str]:
        return (self.metadata.namespace, self.metadata.name)

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations or NO_MAP

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels or NO_MAP

    @property
    def ready(self) -> bool:
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions or ())

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    def may_be(self, uid: str) -> bool:
        """False for a namesake: both uids are known, and they differ."""
        return not uid or not self.metadata.uid or self.metadata.uid == uid


class ServiceSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    type: str = ""
    external_traffic_policy: str | None = None
    health_check_node_port: int | None = None
    load_balancer_class: str | None = None


class Ingress(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    ip: str | None = None
    ip_mode: str | None = None


class LoadBalancer(msgspec.Struct, frozen=True, gc=False):
    ingress: tuple[Ingress, ...] | None = None


class ServiceStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    load_balancer: LoadBalancer | None = None


class Service(msgspec.Struct, frozen=True, gc=False):
    metadata: Metadata
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()

    @property
    def balances(self) -> bool:
        return self.spec.type == "LoadBalancer"

    @property
    def is_local(self) -> bool:
        """Only nodes with an endpoint deliver."""
        return self.spec.external_traffic_policy == "Local"

    @property
    def ingress(self) -> tuple[Ingress, ...]:
        return (self.status.load_balancer.ingress or ()) if self.status.load_balancer else ()


class EndpointConditions(msgspec.Struct, frozen=True, gc=False):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


HOSTNAME = "kubernetes.io/hostname"  # in an endpoint's topology


class Endpoint(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    conditions: EndpointConditions | None = None
    node_name: str | None = None
    topology: dict[str, str] | None = None  # before v1

    @property
    def node(self) -> str:
        return self.node_name or (self.topology or NO_MAP).get(HOSTNAME, "")

    @property
    def ready(self) -> bool:
        """New connections are for it: null means so, for whoever does not know."""
        given = self.conditions or EndpointConditions()
        return given.ready is not False and not given.terminating

    @property
    def serves(self) -> bool:
        """The same, or it answers while it terminates: where nothing else is left, kube-proxy leads there."""
        given = self.conditions or EndpointConditions()
        serving = given.ready is not False if given.serving is None else given.serving
        return given.ready is not False or (bool(given.terminating) and serving)


SERVICE_NAME = "kubernetes.io/service-name"  # a label: whose endpoints these are


class EndpointSlice(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: Metadata
    address_type: str = ""
    endpoints: tuple[Endpoint, ...] | None = None

    @property
    def service(self) -> tuple[str, str]:
        return (self.metadata.namespace, (self.metadata.labels or NO_MAP).get(SERVICE_NAME, ""))


class Namespace(msgspec.Struct, frozen=True):
    metadata: Metadata

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels or NO_MAP


class NodeSpec(msgspec.Struct, frozen=True, rename={"pod_cidrs": "podCIDRs", "unschedulable": "unschedulable"}):
    unschedulable: bool | None = None
    pod_cidrs: tuple[str, ...] | None = None


class NodeAddress(msgspec.Struct, frozen=True):
    address: str = ""


class NodeCondition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    message: str | None = None


class NodeStatus(msgspec.Struct, frozen=True):
    addresses: tuple[NodeAddress, ...] | None = None
    conditions: tuple[NodeCondition, ...] | None = None


class Node(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def excluded(self) -> bool:
        """From what load balancers lead to."""
        return EXCLUDED in (self.metadata.labels or NO_MAP)

    @property
    def cordoned(self) -> bool:
        return bool(self.spec.unschedulable)

    @property
    def shutting_down(self) -> bool:
        """Said by a kubelet that ends pods for a shutdown; it has no reason or condition of its own for it."""
        ready = (c for c in self.status.conditions or () if c.type == "Ready" and c.status == "False")
        return any("node is shutting down" in (condition.message or "") for condition in ready)
