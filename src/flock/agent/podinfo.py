"""What ADD has to know about a pod before it can give it addresses.

Annotations come with the request where the runtime hands them over (capability `io.kubernetes.cri.pod-annotations`),
else from the pod object.  The object also tells labels and owner, which only ip-algo needs.
"""

import logging
from collections.abc import Mapping
from ipaddress import IPv6Network

import msgspec

from flock.agent.preparing import Prepared
from flock.core.annotations import ADDRESSES, ANYCAST, own_annotations
from flock.core.claims import Named
from flock.core.cniargs import CniArgs
from flock.core.embed import Field, Misfit, app_name, embed, image_ref, resolve_ip_algo
from flock.core.errors import NotGranted, TryAgain
from flock.core.model import NO_MAP, Pod
from flock.core.nodeconfig import Kind, Limits, right
from flock.core.podrequest import Address, PodRequest, parse_annotations
from flock.edge.source import Source

log = logging.getLogger("pod")


class PodInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`namespace`, `name` and `uid` are empty for a container that is no pod."""

    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, str]
    request: PodRequest
    named: tuple[Named, ...]  # what it asks for by name, all of it granted
    limits: Limits
    ip_algo: tuple[Field, ...]
    app: str
    image: str
    mtu: int
    object: Pod | None

    def compose(self, prefix: IPv6Network, container_id: str) -> int | None:
        """The ip-algo address in `prefix` with instance nibble 0; None for a random one."""
        if not self.ip_algo:
            return None
        base = embed(
            prefix,
            self.ip_algo,
            namespace=self.namespace,
            app=self.app,
            image=self.image,
            container_id=container_id,
        )
        if isinstance(base, Misfit):
            log.warning("ip-algo not usable pod=%s/%s reason=%r", self.namespace, self.name, base.reason)
            return None
        return base


async def learn(
    *,
    source: Source,
    node: Prepared,
    args: CniArgs,
    annotations: Mapping[str, str] | None,
    needs_labels: bool,
) -> PodInfo:
    """Raises AnnotationError or NotGranted for what the pod's owner can fix, TryAgain for what time may."""
    config = node.config
    pod = await _find(source, args, annotations, config.annotations, needs_labels=needs_labels)
    if annotations is None:
        annotations = pod.annotations if pod else NO_MAP
    request = parse_annotations(
        annotations,
        default_ipv6=config.wants_ipv6,
        default_ipv4=config.wants_ipv4,
        cidr6=config.cidr6,
        cidr4=config.cidr4,
    )
    named = _named(request, node=node, labels=_namespace_labels(source, args.namespace))
    ip_algo, warnings = resolve_ip_algo(annotations, config.annotations)
    for warning in (*request.warnings, *warnings):
        log.warning("pod=%s/%s %s", args.namespace, args.name, warning)
    return PodInfo(
        namespace=args.namespace,
        name=args.name,
        uid=args.uid or (pod.metadata.uid if pod else ""),
        annotations=own_annotations(annotations),
        request=request,
        named=named,
        limits=config.limits,
        ip_algo=ip_algo,
        app=app_name(pod) if pod else args.name,
        image=image_ref(pod) if pod else "",
        mtu=node.mtu,
        object=pod,
    )


async def _find(
    source: Source,
    args: CniArgs,
    annotations: Mapping[str, str] | None,
    node_annotations: Mapping[str, str],
    *,
    needs_labels: bool,
) -> Pod | None:
    """The pod object.  Waited for only where something is needed that did not come with the request."""
    if not args.name:
        return None
    if annotations is not None and source.requires_pods and not needs_labels:
        fields, _ = resolve_ip_algo(annotations, node_annotations)
        if Field.APP not in fields and Field.IMAGE not in fields:
            known = source.pods.get((args.namespace, args.name))
            return known if known and args.uid in ("", known.metadata.uid) else None  # else a namesake
    pod = await source.pod(args.namespace, args.name, uid=args.uid)
    if pod is None and source.requires_pods and annotations is None:
        raise TryAgain(f"pod {args.namespace}/{args.name} is not known yet", details="the runtime retries by itself")
    return pod


def _namespace_labels(source: Source, namespace: str) -> Mapping[str, str]:
    known = source.namespaces.get(namespace)
    return known.labels if known else NO_MAP


def _named(request: PodRequest, *, node: Prepared, labels: Mapping[str, str]) -> tuple[Named, ...]:
    """Raises NotGranted for the first address the namespace may not have."""
    if not request.anycast and not request.addresses:
        return ()
    asked: list[tuple[Kind, str, tuple[Address, ...]]] = [
        ("addresses", ADDRESSES, request.addresses),
        ("anycast", ANYCAST, request.anycast),
    ]
    forbidden = node.facts.forbidden
    found = []
    for kind, field, addresses in asked:
        for address in addresses:
            by = right(node.config, kind=kind, address=address, namespace_labels=labels, forbidden=forbidden)
            if by.refusal:
                raise NotGranted(field, by.refusal, details="ask whoever runs the cluster's NodeConfigs")
            found.append(Named(kind=kind, address=address, granted=by.granted, pool=by.pool))
    return tuple(found)
