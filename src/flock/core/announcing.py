"""Which addresses this node announces beyond its aggregates, and why not the others.  Pure.

An anycast address, or an extra one of `addresses`, is announced while a pod that holds it is eligible: attached,
Ready, not terminating, its address still granted, the node not drained.  Several pods may carry one anycast address,
of one namespace unless a grant names it; each is a next hop, reached over its own link by its primary address of that
family.  One that terminates but is Ready still leaves gently: what it is in the middle of, it may finish, if others on
the node take over the rest.
"""

from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address

import msgspec

from flock.core.facts import Network, NodeFacts
from flock.core.model import NO_MAP, Allocation, Namespace, Pod
from flock.core.nodeconfig import Kind, NodeConfig, Right, right

TERMINATING = "the pod is terminating"


class Via(msgspec.Struct, frozen=True, order=True):
    """One next hop: the pod's primary address of the family, over its host interface."""

    gateway: str
    interface: str


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One pod's claim on one address.  `obstacle` is empty if it is to be announced."""

    address: str
    pod: str
    container_id: str
    kind: str  # anycast or addresses
    via: Via
    obstacle: str


def standing(pod: Pod | None) -> tuple[str, bool] | None:
    """What of a pod decides about its claims.  One that is not Ready is as good as none: None."""
    return (pod.metadata.uid, pod.terminating) if pod is not None and pod.ready else None


def claims(
    allocations: Iterable[Allocation],
    pods: Mapping[tuple[str, str], Pod],
    *,
    withdrawn: str,
    alive: Callable[[Allocation], bool],
    right: Callable[[Allocation, Kind, str], Right],
) -> list[Claim]:
    """Every claim on this node.  `withdrawn` says why nothing at all is announced, empty if that is not so.

    `right(allocation, kind, address)`: does the configuration in force still let this pod have the address?
    """
    carrying = [allocation for allocation in allocations if allocation.anycast or allocation.addresses]
    first = _first_comers(carrying)
    found = []
    for allocation in carrying:
        shared = _obstacle(allocation, pods, alive=alive)
        for kind, address in _extra(allocation):
            gateway = allocation.ip6 if ":" in address else allocation.ip4
            if not gateway:
                obstacle = "the pod has no address of that family"
            elif shared not in ("", TERMINATING):
                obstacle = shared
            else:
                by = right(allocation, kind, address)
                obstacle = _refusal(by, kind, is_first=first[address] == allocation.namespace) or shared or withdrawn
            found.append(
                Claim(
                    address=address,
                    pod=allocation.pod,
                    container_id=allocation.container_id,
                    kind=kind,
                    via=Via(gateway, allocation.host_interface),
                    obstacle=obstacle,
                )
            )
    return found


def _first_comers(allocations: Iterable[Allocation]) -> dict[str, str]:
    """The namespace that was first to have each address.  ADD lets no other in, but what an earlier configuration
    granted to several may be there still."""
    first: dict[str, tuple[str, str]] = {}
    for allocation in allocations:
        for _, address in _extra(allocation):
            came = (allocation.allocated_at, allocation.namespace)
            first[address] = min(first.get(address, came), came)
    return {address: namespace for address, (_, namespace) in first.items()}


def _refusal(by: Right, kind: Kind, *, is_first: bool) -> str:
    if by.ungranted:
        return f"spec.{kind}.allowed does not grant it any more"
    return by.refusal or ("" if by.granted or is_first else "pods of another namespace had it first")


def desired(all_claims: Iterable[Claim]) -> dict[str, tuple[Via, ...]]:
    """Next hops by address, sorted; only what is to be announced."""
    return _by_address(claim for claim in all_claims if not claim.obstacle)


def leaving(all_claims: Iterable[Claim]) -> dict[str, tuple[Via, ...]]:
    """The same for pods that are on their way out and have no other obstacle: they still serve."""
    return _by_address(claim for claim in all_claims if claim.obstacle == TERMINATING)


def _by_address(some: Iterable[Claim]) -> dict[str, tuple[Via, ...]]:
    found: dict[str, set[Via]] = {}
    for claim in some:
        found.setdefault(claim.address, set()).add(claim.via)
    return {address: tuple(sorted(vias)) for address, vias in sorted(found.items())}


def _extra(allocation: Allocation) -> Iterable[tuple[Kind, str]]:
    """Addresses beside the primaries, which are routed from commit to DEL whatever the pod's state."""
    yield from (("anycast", address) for address in allocation.anycast)
    for address in allocation.addresses:
        if address not in (allocation.ip6, allocation.ip4):
            yield "addresses", address


def _obstacle(
    allocation: Allocation, pods: Mapping[tuple[str, str], Pod], *, alive: Callable[[Allocation], bool]
) -> str:
    if allocation.state != "committed":
        return "the pod is not attached yet, or not any more"
    if not alive(allocation):
        return "the pod's link is gone"
    pod = pods.get((allocation.namespace, allocation.pod_name))
    if pod is None:
        return "the pod is not known"
    if not pod.may_be(allocation.owner_uid):
        return "the pod was replaced by another of its name"
    if not pod.ready:
        return "the pod is not Ready"
    return TERMINATING if pod.terminating else ""


class Rights:
    """What the configuration lets pods have, asked for each address at every change of any pod: answers are taken
    over from the one `before` while configuration, node and the namespace's labels are the same."""

    def __init__(
        self,
        config: NodeConfig | None,
        facts: NodeFacts,
        namespaces: Mapping[tuple[str, str], Namespace],
        *,
        before: "Rights | None" = None,
    ) -> None:
        self._config, self._facts, self._namespaces = config, facts, namespaces
        same = before if before is not None and before._config is config and before._facts is facts else None
        self._forbidden: tuple[Network, ...] = same._forbidden if same else facts.forbidden
        self._old = same._known if same else {}
        self._known: dict[tuple[Kind, str, str], tuple[Mapping[str, str], Right]] = {}

    def of(self, allocation: Allocation, kind: Kind, address: str) -> Right:
        namespace = self._namespaces.get(("", allocation.namespace))
        labels = namespace.labels if namespace else NO_MAP
        key = (kind, address, allocation.namespace)
        known = self._known.get(key) or self._old.get(key)
        if known is None or known[0] != labels:
            known = (labels, self._ask(kind, address, labels))
        self._known[key] = known
        return known[1]

    def _ask(self, kind: Kind, address: str, labels: Mapping[str, str]) -> Right:
        if self._config is None:
            return Right(refusal="the node has no NodeConfig", ungranted=True)
        wanted = ip_address(address)
        return right(self._config, kind=kind, address=wanted, namespace_labels=labels, forbidden=self._forbidden)
