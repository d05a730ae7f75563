"""Which addresses of Services this node announces, and why not the others.  Pure.

An address of a LoadBalancer Service is announced where its traffic is delivered now.  With externalTrafficPolicy Local
that is where an endpoint is ready and kube-proxy, whose rules lead to it, says so (`core/gate.py`); with Cluster it is
everywhere while any endpoint is of use, for kube-proxy has no signal for that.  What is granted to whom, the
configuration says.  Whoever shares an address, each for itself: it is announced while one of them may be here.
"""

from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address

import msgspec

from flock.core.facts import Address, NodeFacts
from flock.core.kinds import Extent, Key
from flock.core.model import EXCLUDED, NO_MAP, SERVICE_NAME, EndpointSlice, Ingress, Namespace, Node, Service
from flock.core.nodeconfig import NodeConfig, service_refusal

HERE, ANYWHERE = "no ready endpoint here", "no ready endpoint"
IPVS_LINK = "kube-ipvs0"  # where kube-proxy puts Services' addresses in that mode: on a node, and not the node's
# One watch for each Service, until one for all of them is less work for everybody.
WATCHES = 32
EVERY_SERVICE = f"{SERVICE_NAME},!service.kubernetes.io/headless"

Slices = Mapping[Key, EndpointSlice]


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One address of one Service.  `obstacle` says why it is nothing for this node, whatever kube-proxy and the node
    say; empty if it is.  `endpoints`: whether it depends on them at all."""

    service: str  # namespace/name
    address: str = ""  # empty: it has none
    local: bool = False
    port: int = 0  # at which kube-proxy is asked; 0: it is not
    endpoints: bool = False
    refused: bool = False  # by the configuration, whatever its endpoints do
    obstacle: str = ""

    @property
    def policy(self) -> str:
        return "Local" if self.local else "Cluster"


Right = Callable[[Service, Address], str]  # why a Service may not have an address announced; empty if it may


def rights(config: NodeConfig, facts: NodeFacts, namespaces: Mapping[Key, Namespace]) -> Right:
    own = tuple(address for address in facts.addresses if address.interface != IPVS_LINK)
    forbidden = NodeFacts(facts.node, own).forbidden

    def right(service: Service, address: Address) -> str:
        namespace = namespaces.get(("", service.metadata.namespace))
        return service_refusal(
            config,
            address=address,
            namespace_labels=namespace.labels if namespace else NO_MAP,
            service_labels=service.metadata.labels or NO_MAP,
            forbidden=forbidden,
        )

    return right


def offers(
    service: Service, slices: Iterable[EndpointSlice], *, node: str, config: NodeConfig, right: Right
) -> tuple[Offer, ...]:
    """All of a Service, at least one."""
    name, local = f"{service.metadata.namespace}/{service.metadata.name}", service.is_local
    port = (service.spec.health_check_node_port or 0) if local else 0
    whole = Offer(service=name, local=local, port=port)
    given = {_canonical(ingress.ip): ingress for ingress in service.ingress if ingress.ip}
    if not given:
        given = {"": Ingress()}
    useful = useful_families(slices, node=node if local else "")
    found = []
    for address, ingress in given.items():
        unfit = _obstacle(service, address, ingress, config)
        refusal = "" if unfit else _refusal(service, address, right)
        obstacle, needs = unfit or refusal, not (unfit or refusal)
        if needs and (6 if ":" in address else 4) not in useful:
            obstacle = HERE if local else ANYWHERE
        elif needs and local and not port:
            obstacle = "the Service has no healthCheckNodePort"
        found.append(
            msgspec.structs.replace(whole, address=address, endpoints=needs, refused=bool(refusal), obstacle=obstacle)
        )
    return tuple(found)


def _obstacle(service: Service, address: str, ingress: Ingress, config: NodeConfig) -> str:
    if not config.services.serves(service.spec.load_balancer_class):
        return f"its loadBalancerClass is {service.spec.load_balancer_class or 'empty'}, which is not announced here"
    if service.metadata.deletion_timestamp is not None:
        return "the Service is being deleted"
    if not address:
        return "the Service has no address"
    if ingress.ip_mode not in (None, "", "VIP"):
        return f"the address's ipMode is {ingress.ip_mode}"
    return ""


def _refusal(service: Service, address: str, right: Right) -> str:
    try:
        return right(service, ip_address(address))
    except ValueError:
        return f"{address[:80]} is no address"


def _canonical(address: str) -> str:
    try:
        return str(ip_address(address))
    except ValueError:
        return address


def useful_families(slices: Iterable[EndpointSlice], *, node: str) -> set[int]:
    """The IP versions of which there are endpoints on the node to lead new connections to; anywhere, where it is empty,
    and then those that terminate and still serve count."""
    return {
        6 if found.address_type == "IPv6" else 4
        for found in slices
        if found.address_type in ("IPv6", "IPv4")
        and any((e.ready and e.node == node) if node else e.serves for e in found.endpoints or ())
    }


def excluded(config: NodeConfig, node: Node | None) -> str:
    """Why this node announces no Service at all, whatever state it is in; empty if it may."""
    if config.services.exclude:
        return "the node is excluded (spec.services.exclude)"
    return f"the node is excluded (label {EXCLUDED})" if node is not None and node.excluded else ""


def extents(services: Iterable[Key], *, before: Iterable[Extent] = ()) -> frozenset[Extent]:
    """What to follow of EndpointSlices, for these Services; `before`: what was.

    One watch for many of them drops what belongs to others, so a Service that comes later was missed by it, and gets a
    watch of its own; when those are many, one for all is begun anew."""
    own = {key: Extent(key[0], f"{SERVICE_NAME}={key[1]}") for key in services}
    shared = next((extent for extent in before if extent.owners), None)
    if len(own) <= (WATCHES // 2 if shared else WATCHES):
        return frozenset(own.values())
    late = own.keys() - (shared.owners if shared else ())
    if shared is None or len(late) > WATCHES or len(own) < len(shared.owners) // 2:
        return frozenset({Extent(labels=EVERY_SERVICE, owners=tuple(sorted(own)))})
    return frozenset({shared, *(own[key] for key in late)})


class Book:
    """What is offered here, by Service and by address."""

    def __init__(self) -> None:
        self.by_service: dict[Key, tuple[Offer, ...]] = {}
        self._by_address: dict[str, dict[Key, Offer]] = {}

    def put(self, key: Key, found: tuple[Offer, ...]) -> set[str]:
        """In the place of what the Service offered before; nothing: it is gone.  Returns the addresses it is about."""
        before = self.by_service.pop(key, ())
        if found:
            self.by_service[key] = found
        for offer in before:
            holders = self._by_address[offer.address]
            del holders[key]
            if not holders:
                del self._by_address[offer.address]
        for offer in found:
            self._by_address.setdefault(offer.address, {})[key] = offer
        return {offer.address for offer in (*before, *found)} - {""}

    @property
    def addresses(self) -> set[str]:
        return self._by_address.keys() - {""}

    def at(self, address: str) -> Mapping[Key, Offer]:
        return self._by_address.get(address, {})
