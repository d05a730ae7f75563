"""What ADD has to know about a pod before it can give it addresses.

Annotations come with the request where the runtime hands them over (capability `io.kubernetes.cri.pod-annotations`),
else from the pod object.  The object also tells labels and owner, which only ip-algo needs.
"""

import logging
from collections.abc import Mapping
from ipaddress import IPv6Network

import msgspec

from flock.agent.policies import Policies
from flock.agent.preparing import Prepared, Preparing
from flock.core.annotations import ADDRESSES, ANYCAST, own_annotations
from flock.core.cni import CniArgs
from flock.core.embed import Field, Misfit, app_name, embed, image_ref, resolve_ip_algo
from flock.core.errors import NotGranted, TryAgain
from flock.core.facts import Address
from flock.core.fixed import NOTHING, Fixed
from flock.core.kinds import NAMESPACES, PODS
from flock.core.model import NO_MAP, Pod
from flock.core.nodeconfig import Kind, Limits, right
from flock.core.podrequest import PodRequest, parse_annotations
from flock.core.reserving import Named
from flock.edge.cache import Cache
from flock.edge.feeder import Feeder

log = logging.getLogger("pod")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One ADD, understood."""

    container_id: str
    netns: str
    ifname: str
    network: str
    args: CniArgs
    annotations: Mapping[str, str] | None  # where the runtime hands them over
    fixed: Fixed = NOTHING


class PodInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`namespace`, `name` and `uid` are empty for a container that is no pod."""

    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, str]
    request: PodRequest
    named: tuple[Named, ...]  # what it asks for by name, all of it granted
    limits: Limits
    composed: Mapping[IPv6Network, int]  # the ip-algo address of each pool, with instance nibble 0
    mtu: int
    object: Pod | None


class Learner:
    def __init__(self, *, cache: Cache, feeder: Feeder, preparing: Preparing, policies: Policies) -> None:
        self._cache, self._feeder = cache, feeder
        self._preparing = preparing
        self._policies = policies

    async def learn(self, asked: Asked) -> PodInfo:
        """Of the newest that is known.

        Raises AnnotationError or NotGranted for what the pod's owner can fix, TryAgain for what time may."""
        self._feeder.refresh()
        node = await self._preparing.prepared()
        config, args, annotations = node.config, asked.args, asked.annotations
        pod = await self._find(args, annotations, config.annotations)
        if annotations is None:
            annotations = pod.annotations if pod else NO_MAP
        request = parse_annotations(
            annotations,
            default_ipv6=config.wants_ipv6,
            default_ipv4=config.wants_ipv4,
            cidr6=config.cidr6,
            cidr4=config.cidr4,
            fixed=asked.fixed,
        )
        namespace = self._cache.table(NAMESPACES).get(("", args.namespace))
        named = _named(request, asked.fixed, node=node, labels=namespace.labels if namespace else NO_MAP)
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
            composed=_composed(ip_algo, asked, pod, request) if ip_algo else {},
            mtu=node.mtu,
            object=pod,
        )

    async def _find(
        self, args: CniArgs, annotations: Mapping[str, str] | None, node_annotations: Mapping[str, str]
    ) -> Pod | None:
        """The pod object.  Waited for only where something is needed that did not come with the request."""
        requires_pods = self._feeder.requires_pods
        if not args.name:
            return None
        if annotations is not None and requires_pods and not self._policies.undecided(args.namespace):
            fields, _ = resolve_ip_algo(annotations, node_annotations)
            if Field.APP not in fields and Field.IMAGE not in fields:
                known = self._cache.table(PODS).get((args.namespace, args.name))
                return known if known and args.uid in ("", known.metadata.uid) else None  # else a namesake
        pod = await self._feeder.pod(args.namespace, args.name, uid=args.uid)
        if pod is None and requires_pods and annotations is None:
            told = f"pod {args.namespace}/{args.name} is not known yet"
            raise TryAgain(told, details="the runtime retries by itself")
        return pod


def _composed(ip_algo: tuple[Field, ...], asked: Asked, pod: Pod | None, request: PodRequest) -> dict[IPv6Network, int]:
    """Without the pools in which no such address fits: those give a random one."""
    args, found = asked.args, {}
    for pool in request.pools6:
        base = embed(
            pool,
            ip_algo,
            namespace=args.namespace,
            app=app_name(pod) if pod else args.name,
            image=image_ref(pod) if pod else "",
            container_id=asked.container_id,
        )
        if isinstance(base, Misfit):
            log.warning("ip-algo not usable pod=%s/%s reason=%r", args.namespace, args.name, base.reason)
        else:
            found[pool] = base
    return found


def _named(request: PodRequest, fixed: Fixed, *, node: Prepared, labels: Mapping[str, str]) -> tuple[Named, ...]:
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
                origin = fixed.field if kind == "addresses" and address in fixed.addresses else field
                cure = "ask whoever writes this node's NodeConfig" if by.ungranted else "choose another address"
                raise NotGranted(origin, by.refusal, details=cure)
            found.append(Named(kind=kind, address=address, granted=by.granted, pool=by.pool))
    return tuple(found)
