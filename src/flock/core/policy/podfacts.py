"""What policies need to know of pods, and what of it a Pod object tells.

A pod of this node (`LocalPod`) is what has an allocation here; its addresses come from the store.  Any other pod has
the addresses of its `status.podIPs`, which its tenant cannot write, and those that are vouched for (`vouching`).
"""

from collections.abc import Mapping
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import Any, get_args

import msgspec

from flock.core.model import Allocation, Node, Pod
from flock.core.naming import link_local
from flock.core.policy.compiled import Address, NamedPort, PolicyKey, Protocol

Ports = tuple[tuple[NamedPort, int], ...]
PROTOCOLS = get_args(Protocol)


class PodFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod of the cluster, on whatever node."""

    namespace: str
    name: str
    uid: str = ""
    labels: Mapping[str, str] = {}
    addresses: tuple[Address, ...] = ()
    ports: Ports = ()
    host_network: bool = False
    phase: str = ""

    @property
    def takes_part(self) -> bool:
        """Can it be a peer?  A finished pod's addresses may be another's by now.  Isolated is whatever is attached."""
        return not self.host_network and self.phase not in ("Succeeded", "Failed")


class LocalPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod attached here.  `labels` and `ports` count where its Pod object is not known; None: not known either.

    A container that is no pod has no namespace: no policy selects it and no selector means it.
    """

    interface: str
    container_id: str
    namespace: str
    name: str
    uid: str = ""
    labels: Mapping[str, str] | None
    addresses: tuple[Address, ...]
    link_local: IPv6Address | None = None  # None: not known, the original set the pod up
    ports: Ports = ()

    @property
    def pod(self) -> str:
        return f"{self.namespace}/{self.name}" if self.name else self.container_id


class Local:
    """A pod of this node with what is known of it at the moment.  `labels` None: unknown."""

    __slots__ = ("labels", "pod", "ports", "selected_by", "subject_of", "takes_part")

    def __init__(self, pod: LocalPod, facts: PodFacts | None) -> None:
        self.pod = pod
        self.labels = facts.labels if facts else pod.labels
        self.ports: Ports = facts.ports if facts else pod.ports
        self.takes_part = facts.takes_part if facts else True
        self.selected_by: set[PolicyKey] = set()  # NetworkPolicies of its namespace
        self.subject_of: set[PolicyKey] = set()  # ClusterNetworkPolicies; where labels are unknown, all that it may be


def same_pod(local: LocalPod, facts: PodFacts) -> bool:
    """Is this the local pod's object, and not a namesake's?"""
    return not local.uid or not facts.uid or local.uid == facts.uid


def pod_facts(pod: Pod, *, addresses: tuple[Address, ...]) -> PodFacts:
    return PodFacts(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        labels=pod.labels,
        addresses=addresses,
        ports=pod_ports(pod),
        host_network=bool(pod.spec.host_network),
        phase=pod.status.phase,
    )


def seen(pod: Pod | None) -> Any:
    """All that policies go by, for whoever wonders whether a change is one to them: a pod's readiness is none."""
    if pod is None:
        return None
    metadata, status = pod.metadata, pod.status
    return metadata.uid, metadata.labels, metadata.annotations, pod.spec, status.is_over, status.pod_ips


def local_pod(allocation: Allocation, *, labels: Mapping[str, str] | None, ports: Ports = ()) -> LocalPod:
    addresses = (allocation.ip6, allocation.ip4, *allocation.addresses, *allocation.anycast)
    return LocalPod(
        interface=allocation.host_interface,
        container_id=allocation.container_id,
        namespace=allocation.namespace,
        name=allocation.pod_name,
        uid=allocation.owner_uid,
        labels=labels,
        addresses=tuple(dict.fromkeys(ip_address(address) for address in addresses if address)),
        link_local=link_local(allocation.mac) if allocation.mac else None,
        ports=ports,
    )


def node_addresses(node: Node) -> tuple[Address, ...]:
    """Those of its status that are addresses: there are names too, and nobody outside of a link means a scoped one."""
    found: dict[Address, None] = {}
    for entry in node.status.addresses or ():
        with suppress(ValueError):
            if "%" not in entry.address:
                found[ip_address(entry.address)] = None
    return tuple(found)


def pod_ports(pod: Pod) -> Ports:
    """Named ports; two containers may give one name to two of them, and it means both."""
    found: dict[tuple[NamedPort, int], None] = {}
    for container in pod.spec.containers or ():
        for port in container.ports or ():
            protocol = port.protocol or "TCP"
            if port.name and protocol in PROTOCOLS and 0 < port.container_port < 65536:
                found[NamedPort(port.name, protocol), port.container_port] = None  # type: ignore[arg-type]
    return tuple(found)
