"""Objects of the Kubernetes API, from the server's JSON to what is read of them.  Pure.

Trimmed, because a cluster has ten thousand pods, and equal strings are shared.  Objects that are kept as they came
(policies, configurations) keep what identifies them, our annotations and their spec; of what the server keeps for
itself (`managedFields`) nothing.
"""

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from flock.core.annotations import own_annotations
from flock.core.errors import Code, FlockError
from flock.core.model import (
    SERVICE_NAME,
    Condition,
    Container,
    ContainerPort,
    Endpoint,
    EndpointSlice,
    Metadata,
    Namespace,
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    Service,
)
from flock.core.nesting import shallow

T = TypeVar("T")
READY = (Condition("Ready", "True"),)
SHARED = 4096  # sets of labels or ports that equal pods share, those met last


class Unreadable(FlockError):
    """Not what was expected; the message names the field, or the place in the text."""

    code = Code.DECODING_FAILURE


def decode(raw: bytes, shape: type[T]) -> T:
    """JSON as `shape`, whatever it nests where nobody reads.  Unreadable."""
    try:
        try:
            return msgspec.json.decode(raw, type=shape)
        except RecursionError:
            return msgspec.json.decode(shallow(raw), type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(str(error)) from None


class _Meta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    api_version: str = ""
    kind: str = ""
    metadata: _Meta = _Meta()
    spec: Any = None
    status: Any = None


class Identity(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Identified(msgspec.Struct, frozen=True):
    metadata: Identity = Identity()


def decode_identity(raw: bytes) -> Identity:
    return decode(raw, _Identified).metadata


def decode_pod(raw: bytes) -> Pod:
    """Of its status only whether it is Ready, whether it is over, and its addresses: what else a kubelet reports, again
    and again, is no change."""
    pod = decode(raw, Pod)
    status = PodStatus(phase=_end(pod.status), conditions=READY if pod.ready else None, pod_ips=pod.status.pod_ips)
    return Pod(_trimmed(pod.metadata), pod.spec, status)


def decode_cluster_pod(raw: bytes) -> Pod:
    """Only what policies read of a peer: there may be a hundred thousand, most of them copies of some other."""
    pod = decode(raw, Pod)
    ports = tuple(port for container in pod.spec.containers or () for port in container.ports or () if port.name)
    metadata, annotations = pod.metadata, own_annotations(pod.metadata.annotations or {})
    return Pod(
        Metadata(
            name=sys.intern(metadata.name),
            namespace=sys.intern(metadata.namespace),
            uid=metadata.uid,
            labels=_shared_labels(tuple((metadata.labels or {}).items())),
            annotations=annotations or None,
        ),
        _shared_spec(bool(pod.spec.host_network), ports),
        PodStatus(phase=_end(pod.status), pod_ips=pod.status.pod_ips),
    )


def _end(status: PodStatus) -> str:
    """The phase of a pod that is over; else nobody asks for it."""
    return sys.intern(status.phase) if status.is_over else ""


@lru_cache(SHARED)
def _shared_labels(labels: tuple[tuple[str, str], ...]) -> dict[str, str] | None:
    return {sys.intern(key): sys.intern(value) for key, value in labels} or None


@lru_cache(SHARED)
def _shared_spec(host_network: bool, ports: tuple[ContainerPort, ...]) -> PodSpec:
    return PodSpec(host_network=host_network or None, containers=(Container(ports=ports),) if ports else None)


def decode_namespace(raw: bytes) -> Namespace:
    return Namespace(_trimmed(decode(raw, Namespace).metadata))


def decode_node(raw: bytes) -> Node:
    return decode(raw, Node)


def decode_cluster_node(raw: bytes) -> Node:
    """Only what policies read of a peer: a kubelet writes its Node's status all the time."""
    node = decode(raw, Node)
    return Node(
        Metadata(name=node.metadata.name, labels=node.metadata.labels),
        status=NodeStatus(addresses=node.status.addresses),
    )


def decode_service(raw: bytes) -> Service | None:
    """None for one of another type: an API server that cannot select by type tells those as well."""
    service = decode(raw, Service)
    given = service.metadata
    metadata = Metadata(
        name=given.name,
        namespace=sys.intern(given.namespace),
        uid=given.uid,
        labels=given.labels,
        deletion_timestamp=given.deletion_timestamp,
    )
    return msgspec.structs.replace(service, metadata=metadata) if service.balances else None


def decode_slice(raw: bytes) -> EndpointSlice:
    """On which nodes endpoints are of use, and how; not which, nor what else changes about them."""
    found = decode(raw, EndpointSlice)
    useful = (Endpoint(e.conditions, sys.intern(e.node)) for e in found.endpoints or () if e.ready or e.serves)
    labels = {SERVICE_NAME: found.service[1]} if found.service[1] else None
    metadata = Metadata(found.metadata.name, sys.intern(found.metadata.namespace), labels=labels)
    return EndpointSlice(metadata, sys.intern(found.address_type), tuple(dict.fromkeys(useful)) or None)


def decode_config(raw: bytes) -> Mapping[str, Any]:
    """A NodeConfig or a template, to be checked by whoever reads it; with its status, to see what was reported."""
    found = decode(shallow(raw), _Object)  # kept as it is, and read by what recurses
    annotations = own_annotations(found.metadata.annotations or {}) or None
    trimmed = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, annotations=annotations))
    kept: Mapping[str, Any] = msgspec.to_builtins(trimmed)
    return kept


def decode_policy(raw: bytes) -> Mapping[str, Any]:
    """A policy of either kind, to be checked by whoever compiles it.

    One that cannot be read as an object has a text for a spec, so that it is refused there, where it is known what a
    refused policy closes.  Unreadable only if it does not even tell its name."""
    try:
        return {key: value for key, value in decode_config(raw).items() if key != "status"}
    except Unreadable as error:
        identity = decode_identity(raw)
        return {
            "metadata": {"name": identity.name, "namespace": identity.namespace},
            "spec": f"cannot be read: {error}",
        }


def _trimmed(metadata: Metadata) -> Metadata:
    annotations = own_annotations(metadata.annotations or {})
    labels = {sys.intern(k): sys.intern(v) for k, v in (metadata.labels or {}).items()}
    return msgspec.structs.replace(
        metadata,
        namespace=sys.intern(metadata.namespace),
        annotations=annotations or None,
        labels=labels or None,
    )
