"""May this packet pass?  A second answer, for the tests alone.

Written from the text of the NetworkPolicy v1 API and the rules flock adds to it, straight over the objects as `kubectl`
takes them (plain dicts), for one packet at a time, with no index, no sets and no code of flock's.  It is slow and
obvious on purpose: where it and the compiled form differ, one of them misreads the API.
"""

import ipaddress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

Object = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A pod as the API shows it, with every address it has, and whether it is on the node that filters."""

    namespace: str
    name: str
    labels: dict[str, str] | None
    """None: not known yet"""
    addresses: tuple[str, ...]
    ports: tuple[tuple[str, int, str], ...] = ()
    """(name, number, protocol) of its containers' ports"""
    local: bool = True
    host_network: bool = False
    phase: str = "Running"
    annotated: tuple[tuple[str, str], ...] = ()
    """(address, kind) of those that an annotation asks for, `addresses` or `anycast`; the rest is in its status"""

    def counts(self) -> bool:
        """As a peer.  A pod on its host's network is not told from its host; the address of one that has ended may be
        another's."""
        return not self.host_network and self.phase not in ("Succeeded", "Failed")

    def is_there(self) -> bool:
        """One that is attached to the node that filters is isolated whatever its phase."""
        return self.counts() or (self.local and not self.host_network)


class Opinion(NamedTuple):
    """Of the policies that isolate a pod in one direction: those that allow the packet, or all, if none does."""

    allowed: bool
    policies: tuple[str, ...]


@dataclass
class Cluster:
    namespaces: dict[str, dict[str, str]]
    pods: list[Subject]
    policies: list[Object] = field(default_factory=list)
    node_addresses: tuple[str, ...] = ()
    grants: tuple[tuple[str, str, Object | None], ...] = ()
    """(kind, prefix, namespaceSelector) of the filtering node's configuration"""
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    """policies nobody can read, by namespace and name, and of what isolates them even so: `selector` or `types`, or
    neither, if a mistake is elsewhere"""

    def pod_at(self, address: str) -> Subject | None:
        there = (p for p in self.pods if p.is_there() and address in p.addresses and self.is_its(address, p))
        return next(there, None)

    def is_its(self, address: str, pod: Subject) -> bool:
        """An annotation of a pod elsewhere is a claim: it counts where the configuration grants it the namespace."""
        kinds = [kind for annotated, kind in pod.annotated if annotated == address]
        return (
            pod.local
            or not kinds
            or any(
                kind in kinds
                and within(address, prefix)
                and (selector is None or selects(selector, self.namespaces[pod.namespace]))
                for kind, prefix, selector in self.grants
            )
        )

    def allows(self, source: str, destination: str, protocol: str, port: int | None) -> bool:
        """Whether the node that filters lets a first packet through.  `port` is None for ICMP."""
        sender, receiver = self.pod_at(source), self.pod_at(destination)
        opinions = [
            self.opinion(pod, direction, source, destination, protocol, port)
            for pod, direction in ((sender, "Egress"), (receiver, "Ingress"))
            if pod is not None and pod.local
        ]
        return all(opinion is None or opinion.allowed for opinion in opinions)

    def opinion(
        self, pod: Subject, direction: str, source: str, destination: str, protocol: str, port: int | None
    ) -> Opinion | None:
        """Of a packet that a pod of the filtering node sends or gets; None if the pod is not isolated.  Labels that are
        not known are closed: what might select the pod isolates it, and allows nothing."""
        isolating = self._selecting(pod, direction)
        if not isolating:
            return None
        far, field, rules = (destination, "to", "egress") if direction == "Egress" else (source, "from", "ingress")
        other = self.pod_at(far)
        everyone = tuple(name(policy) for policy in isolating)
        if other is pod or far in self.node_addresses:
            return Opinion(True, everyone)
        peer = other if other is not None and other.counts() else None
        target = peer if direction == "Egress" else pod
        allowing = tuple(
            name(policy)
            for policy in isolating
            if any(
                self._rule_allows(policy, rule, field, far, peer, target, protocol, port)
                for rule in self._rules(policy, rules)
            )
            if pod.labels is not None or selects(policy["spec"].get("podSelector") or {}, None)
        )
        return Opinion(bool(allowing), allowing or everyone)

    def _selecting(self, pod: Subject, direction: str) -> list[Object]:
        return [
            policy
            for policy in self.policies
            if policy["metadata"]["namespace"] == pod.namespace
            and (self._unreadable(policy) == "types" or direction in policy_types(policy["spec"]))
            and (
                pod.labels is None
                or self._unreadable(policy) == "selector"
                or selects(policy["spec"].get("podSelector") or {}, pod.labels)
            )
        ]

    def _unreadable(self, policy: Object) -> str | None:
        """None: all of it can be read."""
        return self.refused.get((policy["metadata"]["namespace"], policy["metadata"]["name"]))

    def _rules(self, policy: Object, direction: str) -> list[Object]:
        """A policy that is refused allows nothing."""
        return [] if self._unreadable(policy) is not None else policy["spec"].get(direction) or []

    def _rule_allows(
        self,
        policy: Object,
        rule: Object,
        peers_field: str,
        address: str,
        peer: Subject | None,
        target: Subject | None,
        protocol: str,
        port: int | None,
    ) -> bool:
        """`address` and `peer` are the far end; `target` is the destination, whose names the ports bear."""
        ports = rule.get("ports") or []
        peers = rule.get(peers_field) or []
        if not peers:
            return not ports or any(port_matches(p, protocol, port, target) for p in ports)
        for entry in peers:
            if not self._peer_matches(policy, entry, address, peer):
                continue
            behind_block = peers_field == "to" and entry.get("ipBlock") is not None
            if not ports or any(port_matches(p, protocol, port, None if behind_block else target) for p in ports):
                return True
        return False

    def _peer_matches(self, policy: Object, entry: Object, address: str, peer: Subject | None) -> bool:
        block = entry.get("ipBlock")
        if block is not None:
            return within(address, block["cidr"]) and not any(within(address, e) for e in block.get("except") or [])
        if peer is None:
            return False
        of_pods, of_namespaces = entry.get("podSelector"), entry.get("namespaceSelector")
        if of_namespaces is None:
            if peer.namespace != policy["metadata"]["namespace"]:
                return False
        elif not selects(of_namespaces, self._namespace_labels(peer.namespace)):
            return False
        return of_pods is None or selects(of_pods, peer.labels)

    def _namespace_labels(self, name: str) -> dict[str, str]:
        """The API server puts the name's label on every namespace."""
        return {**self.namespaces[name], "kubernetes.io/metadata.name": name}


def name(policy: Object) -> str:
    return f"{policy['metadata']['namespace']}/{policy['metadata']['name']}"


def policy_types(spec: Object) -> set[str]:
    """Not given: ingress always, egress if there is an egress rule."""
    given = spec.get("policyTypes")
    if given:
        return set(given)
    return {"Ingress", "Egress"} if spec.get("egress") else {"Ingress"}


def selects(selector: Object, labels: dict[str, str] | None) -> bool:
    """All requirements must hold; none means everything, and of labels that are not known nothing else surely does."""
    if labels is None:
        return not selector.get("matchLabels") and not selector.get("matchExpressions")
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for expression in selector.get("matchExpressions") or []:
        key, operator = expression["key"], expression["operator"]
        if operator == "Exists":
            holds = key in labels
        elif operator == "DoesNotExist":
            holds = key not in labels
        elif operator == "In":
            holds = key in labels and labels[key] in expression["values"]
        else:
            assert operator == "NotIn"
            holds = key not in labels or labels[key] not in expression["values"]
        if not holds:
            return False
    return True


def port_matches(entry: Object, protocol: str, port: int | None, target: Subject | None) -> bool:
    """No protocol means TCP; no port means all of the protocol; a name means what the destination calls so."""
    if port is None or (entry.get("protocol") or "TCP") != protocol:
        return False
    wanted = entry.get("port")
    if wanted is None:
        return True
    if isinstance(wanted, str):
        return target is not None and (wanted, port, protocol) in target.ports
    last = entry.get("endPort")
    return bool(wanted <= port <= (wanted if last is None else last))


@lru_cache(100_000)
def within(address: str, cidr: str) -> bool:
    ip, network = ipaddress.ip_address(address), ipaddress.ip_network(cidr, strict=False)
    return ip.version == network.version and ip in network
