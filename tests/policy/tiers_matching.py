"""Whom and what a rule of a ClusterNetworkPolicy means: subjects, peers, protocols.

Where the labels of a pod are not known, the answer may be None: it might.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from evaluator import Object, Subject, selects, within
from tiers_facts import Facts

FIELDS = {"ingress": ("namespaces", "pods"), "egress": ("namespaces", "pods", "networks", "nodes")}
"""of a peer, as far as we know; `domainNames` we do not"""
DENY_ALL: Object = {"action": "Deny", "from": [{}], "to": [{}]}
"""what stands for the rules of a policy that cannot be read: one that fails closed"""
Maybe = bool | None


@dataclass(frozen=True)
class Pod(Subject):
    """Labels None: its object has not been seen, and other nodes do not know of it at all.  Namespace "": a container
    that nobody gave one.  `local` means nothing here."""

    node: str = "here"


@dataclass(frozen=True)
class Node:
    name: str
    labels: dict[str, str]
    addresses: tuple[str, ...]
    """in its status"""
    unlisted: tuple[str, ...] = ()
    """others it has"""

    def has(self, address: str) -> bool:
        return address in self.addresses or address in self.unlisted


@dataclass(frozen=True)
class Packet:
    """The first of a connection.  `port` is None for ICMP and what else has none."""

    source: str
    destination: str
    protocol: str
    port: int | None = None
    by_service: bool = False
    """the destination is the one behind a Service's address"""


@dataclass(frozen=True)
class Question:
    """Of one end of a packet."""

    direction: str
    packet: Packet
    pod: Pod
    """whose policies are asked"""
    far: str
    """the address at the other end"""
    peer: Pod | None
    """the pod there, if this node knows of one that counts"""

    @property
    def target(self) -> Pod | None:
        """Whose names the destination ports bear."""
        return self.peer if self.direction == "egress" else self.pod


@dataclass(frozen=True)
class Matching:
    namespaces: dict[str, dict[str, str]]
    nodes: list[Node]
    facts: Facts

    def subject(self, subject: Object, pod: Pod) -> Maybe:
        if not pod.namespace and self.facts.no_namespace_is_nobodys_subject:
            return False
        return self._selected(subject, pod, home=None)

    def rule(self, question: Question, rule: Object) -> tuple[str, Maybe]:
        """What it does, and whether it matches.  A peer that we do not know makes it fail closed: an Accept matches
        nothing, all else denies everything."""
        action, facts = rule["action"], self.facts
        peers = rule["to" if question.direction == "egress" else "from"]
        known = [peer for peer in peers if field_of(peer, question.direction)]
        if known != peers:
            if action == "Accept" and facts.an_unknown_peer_voids_an_accept:
                return action, False
            if action == "Pass":
                return ("Deny" if facts.an_unknown_peer_makes_pass_deny_all else action), True
            if action == "Deny" and facts.an_unknown_peer_makes_deny_deny_all:
                heeded = not facts.an_unknown_peer_overrules_protocols
                return action, self._protocols(question, rule, {}) if heeded else True
        if not facts.a_name_beside_networks_or_nodes_leaves_the_rest and names_beside_addresses(rule, known):
            return action, False
        return action, either(both(self._peer(question, p), self._protocols(question, rule, p)) for p in known)

    def _peer(self, question: Question, peer: Object) -> Maybe:
        kind = field_of(peer, question.direction)
        if kind == "networks":
            return any(self._in_network(question, network) for network in peer["networks"])
        if kind == "nodes":
            return any(
                selects(peer["nodes"], node.labels) and self._node_has(node, question.far)
                for node in self.nodes
                if self.facts.nodes_mean_all_nodes or node.name == question.pod.node
            )
        pod = question.peer
        if pod is None or (not pod.namespace and self.facts.no_namespace_is_nobodys_peer):
            return False
        return self._selected(peer, pod, home=question.pod.namespace)

    def _selected(self, chooser: Object, pod: Pod, *, home: str | None) -> Maybe:
        """A subject and a peer choose pods alike."""
        of_namespace = {**self.namespaces.get(pod.namespace, {}), "kubernetes.io/metadata.name": pod.namespace}
        if chooser.get("namespaces") is not None:
            return selects(chooser["namespaces"], of_namespace)
        selector = chooser["pods"].get("namespaceSelector")
        if selector is not None:
            in_namespace = selects(selector, of_namespace)
        else:
            in_namespace = self.facts.no_namespace_selector_means_every_namespace or pod.namespace == home
        return both(in_namespace, might_select(chooser["pods"]["podSelector"], pod.labels))

    def _in_network(self, question: Question, network: str) -> bool:
        """Whoever is there: pods and nodes as well."""
        if not self.facts.networks_mean_pods and question.peer is not None:
            return False
        if not self.facts.networks_mean_nodes and any(node.has(question.far) for node in self.nodes):
            return False
        if not self.facts.networks_are_masked and has_host_bits(network):
            return False
        return within(question.far, network)

    def _node_has(self, node: Node, address: str) -> bool:
        return address in node.addresses if self.facts.nodes_mean_listed_addresses else node.has(address)

    def _protocols(self, question: Question, rule: Object, peer: Object) -> Maybe:
        """None given: every protocol.  Else one of them, and one with ports."""
        given, packet = rule.get("protocols"), question.packet
        if given is None:
            return packet.port is not None or self.facts.no_protocols_mean_icmp_too
        if packet.port is None:
            return not self.facts.protocols_never_mean_icmp
        return either(self._protocol(question, entry, peer, packet.port) for entry in given)

    def _protocol(self, question: Question, entry: Object, peer: Object, port: int) -> Maybe:
        name = entry.get("destinationNamedPort")
        if name is not None:
            by_address = by_addresses(peer) and self.facts.a_name_beside_networks_or_nodes_never_matches
            return False if by_address else self._named(question, name, port)
        wanted = entry.get(question.packet.protocol.lower())
        if wanted is None:
            return False
        if wanted.get("destinationPort") is None:
            return self.facts.a_bare_protocol_means_all_its_ports
        number, span = wanted["destinationPort"].get("number"), wanted["destinationPort"].get("range")
        if span is None:
            return bool(port == number)
        return bool(span["start"] <= port < span["end"] + self.facts.the_end_of_a_range_belongs_to_it)

    def _named(self, question: Question, name: str, port: int) -> Maybe:
        """Every port of that name, in each protocol it is declared for."""
        target, protocol = question.target, question.packet.protocol
        if target is None or (protocol != "TCP" and not self.facts.a_name_means_each_protocol):
            return False
        if target.labels is None:
            return None if self.facts.unknown_port_names_might_match else False
        declared = [(number, of) for called, number, of in target.ports if called == name]
        if not self.facts.a_name_means_every_port:
            declared = [entry for entry in declared if entry[1] == protocol][:1]
        return (port, protocol) in declared


# --- small words ------------------------------------------------------------------------------------------------


def field_of(peer: Object, direction: str) -> str | None:
    """None: it has none that we know."""
    return next((name for name in FIELDS[direction] if peer.get(name) is not None), None)


def by_addresses(peer: Object) -> bool:
    return peer.get("networks") is not None or peer.get("nodes") is not None


def names_beside_addresses(rule: Object, peers: list[Object]) -> bool:
    named = any(entry.get("destinationNamedPort") is not None for entry in rule.get("protocols") or [])
    return named and any(map(by_addresses, peers))


def has_host_bits(network: str) -> bool:
    return str(ipaddress.ip_interface(network).network.network_address) != str(ipaddress.ip_interface(network).ip)


def might_select(selector: Object, labels: dict[str, str] | None) -> Maybe:
    """Of labels that are not known, anything that asks for some might."""
    return selects(selector, labels) or (None if labels is None else False)


def both(one: Maybe, other: Maybe) -> Maybe:
    if one is False or other is False:
        return False
    return True if one and other else None


def either(answers: Iterable[Maybe]) -> Maybe:
    might: Maybe = False
    for answer in answers:
        if answer:
            return True
        if answer is None:
            might = None
    return might
