"""May this packet pass, with the administrator's policies above and below NetworkPolicy?  For the tests alone.

Written from the facts about ClusterNetworkPolicy (`tiers_facts`, one switch each) over plain objects, for one packet at
a time, with no index, no sets and no code of flock's; what NetworkPolicy says is asked of `evaluator`.  Of two answers
that differ, one misreads a fact.

A packet is judged at both ends: by the policies of whoever sends it, at its node, and of whoever gets it, at its own.
Each end goes down the tiers until one decides.  Where labels are not known, a match is None, "it might": what closes
counts then, and what opens does not.
"""

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from evaluator import Cluster, Object
from tiers_facts import RIGHT, Facts
from tiers_matching import DENY_ALL, Matching, Maybe, Node, Packet, Pod, Question, both

ADMIN, NETWORK_POLICY, BASELINE = "Admin", "NetworkPolicy", "Baseline"
AUDIT = "flock.fritzlab.net/audit"


@dataclass(frozen=True)
class Verdict:
    allowed: bool
    tier: str = ""
    """that decided; "": none did"""
    policies: tuple[str, ...] = ()
    """the one of the cluster, or those of NetworkPolicy that allow it, or all that isolate the pod"""
    rule: int | None = None
    """of a cluster policy that can be read"""


@dataclass(frozen=True)
class Judgement:
    """None: that end is nobody whom policies could mean, or of another node than the one in question."""

    egress: Verdict | None
    ingress: Verdict | None

    @property
    def allowed(self) -> bool:
        return all(end is None or end.allowed for end in (self.egress, self.ingress))


@dataclass(eq=False)
class World:
    """Nobody changes one: `dataclasses.replace` makes the next."""

    namespaces: dict[str, dict[str, str]]
    pods: list[Pod]
    nodes: list[Node]
    policies: list[Object] = field(default_factory=list)
    cluster_policies: list[Object] = field(default_factory=list)
    """the oldest first"""
    grants: tuple[tuple[str, str, Object | None], ...] = ()
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    """as in `Cluster`"""
    refused_cluster: dict[str, str] = field(default_factory=dict)
    """cluster policies that never could be read, and what about them: `subject`, `place` (tier or priority), `rules`"""

    def judge(self, packet: Packet, *, at: str | None = None, facts: Facts = RIGHT, audited: bool = False) -> Judgement:
        """`at`: by one node alone; `audited`: as if what is only audited were in force."""
        reader = Reader(self, facts, audited, Matching(self.namespaces, self.nodes, facts))
        egress = reader.end("egress", packet, at)
        if not facts.the_other_end_is_asked_too and egress and egress.allowed and egress.rule is not None:
            return Judgement(egress, None)
        return Judgement(egress, reader.end("ingress", packet, at))

    def seen_from(self, node: str, *, audited: bool = False) -> Cluster:
        """What a node has to go by for NetworkPolicy."""
        return self._views[node, audited]

    @cached_property
    def _views(self) -> dict[tuple[str, bool], Cluster]:
        return {
            (node.name, audited): Cluster(
                namespaces={**{pod.namespace: {} for pod in self.pods}, **self.namespaces},
                pods=[
                    replace(pod, local=pod.node == node.name)
                    for pod in self.pods
                    if pod.namespace and (pod.labels is not None or pod.node == node.name)
                ],
                policies=[policy for policy in self.policies if audited or not is_audited(policy)],
                node_addresses=(*node.addresses, *node.unlisted),
                grants=self.grants,
                refused=self.refused,
            )
            for node in self.nodes
            for audited in (False, True)
        }


@dataclass(frozen=True)
class Reader:
    world: World
    facts: Facts
    audited: bool
    matching: Matching

    def end(self, direction: str, packet: Packet, at: str | None) -> Verdict | None:
        near, far = packet.source, packet.destination
        if direction == "ingress":
            near, far = far, near
        pod = self._holder(near, host_network=not self.facts.host_network_pods_are_no_subjects)
        if pod is None or at not in (None, pod.node):
            return None
        if self._holder(far) is pod and self._exempt_from_itself(packet):
            return Verdict(True, "itself")
        if self._own_node_exempts(direction, pod, far):
            return Verdict(True, "own node")
        return self._ask(Question(direction, packet, pod, far, self._peer_at(far, pod.node)), self._tiers())

    def _holder(self, address: str, *, host_network: bool = False) -> Pod | None:
        """Who has an address in truth."""
        return next((p for p in self.world.pods if address in p.addresses and p.host_network <= host_network), None)

    def _exempt_from_itself(self, packet: Packet) -> bool:
        if packet.by_service:
            return not self.facts.own_services_are_subject
        return self.facts.own_addresses_are_not_subject

    def _own_node_exempts(self, direction: str, pod: Pod, far: str) -> bool:
        if direction == "egress":
            return not self.facts.egress_to_the_own_node_can_be_denied and self._is_own_node(pod, far)
        if not self.facts.only_the_own_node_gets_in and any(node.has(far) for node in self.world.nodes):
            return True
        return self.facts.the_own_node_gets_in and self._is_own_node(pod, far)

    def _is_own_node(self, pod: Pod, address: str) -> bool:
        return any(node.has(address) for node in self.world.nodes if node.name == pod.node)

    def _peer_at(self, address: str, node: str) -> Pod | None:
        """The pod that a node believes to be at an address, if it can be meant as one."""
        pod = self._holder(address, host_network=not self.facts.host_network_pods_are_no_peers)
        if pod is None or (pod.phase in ("Succeeded", "Failed") and self.facts.finished_pods_are_no_peers):
            return None
        if pod.node == node:
            return pod if pod.labels is not None or self.facts.unknown_labels_of_peers_are_closed_too else None
        if pod.labels is None:
            return None
        if any(address == claimed for claimed, _ in pod.annotated):
            granted = bool(pod.namespace) and self.world.seen_from(node).is_its(address, replace(pod, local=False))
            if granted and not self.facts.claimed_addresses_count_where_granted:
                return None
            if not granted and self.facts.claimed_addresses_count_only_where_granted:
                return None
        return pod

    # --- the tiers ----------------------------------------------------------------------------------------------

    def _tiers(self) -> tuple[str, ...]:
        if not self.facts.admin_goes_before_network_policy:
            return NETWORK_POLICY, ADMIN, BASELINE
        if not self.facts.network_policy_goes_before_baseline:
            return ADMIN, BASELINE, NETWORK_POLICY
        return ADMIN, NETWORK_POLICY, BASELINE

    def _ask(self, question: Question, tiers: tuple[str, ...]) -> Verdict:
        """The first rule that matches decides; nothing decides: allowed."""
        if not tiers:
            return Verdict(True)
        tier, below = tiers[0], tiers[1:]
        if tier == NETWORK_POLICY:
            return self._network_policy(question) or self._ask(question, below)
        isolated = False
        for policy in self._in_order(tier):
            meant = self._means(policy, question.pod)
            rules = self._rules(policy, question.direction)
            isolated |= meant is True and bool(rules)
            for number, rule in rules if meant is not False else ():
                action, matches = self.matching.rule(question, rule)
                sure = both(meant, matches)
                if sure is False:
                    continue
                by = (tier, (policy["metadata"]["name"],), number)
                if action == "Deny":
                    if sure or self.facts.a_deny_that_might_mean_the_pod_counts:
                        return Verdict(False, *by)
                elif action == "Accept":
                    if sure or not self.facts.an_accept_that_might_mean_the_pod_does_not:
                        return Verdict(True, *by) if self.facts.accept_is_final else self._ask(question, below)
                elif not self.facts.pass_skips_the_rules_after_it:
                    continue
                elif not self.facts.pass_skips_the_policies_after_it:
                    break
                else:
                    passed = self._passed(question, below, Verdict(False, *by))
                    if sure:
                        return passed
                    if self.facts.a_pass_that_might_mean_the_pod_is_taken_both_ways and not passed.allowed:
                        return passed
        if isolated and not self.facts.subjects_are_not_isolated:
            return Verdict(False, tier)
        return self._ask(question, below)

    def _passed(self, question: Question, below: tuple[str, ...], denied: Verdict) -> Verdict:
        if not self.facts.pass_is_no_accept:
            return replace(denied, allowed=True)
        if not self.facts.pass_in_baseline_allows and not below:
            return denied
        if not self.facts.pass_leads_to_network_policy:
            below = tuple(tier for tier in below if tier != NETWORK_POLICY)
        return self._ask(question, below)

    def _network_policy(self, question: Question) -> Verdict | None:
        """Final for a pod that it isolates in this direction."""
        packet, view = question.packet, self.world.seen_from(question.pod.node, audited=self.audited)
        pod = view.pod_at(packet.source if question.direction == "egress" else packet.destination)
        if pod is None:
            return None  # a container without a namespace
        ends = (packet.source, packet.destination, packet.protocol, packet.port)
        opinion = view.opinion(pod, question.direction.capitalize(), *ends)
        if opinion is None:
            other = "Ingress" if question.direction == "egress" else "Egress"
            if not self.facts.isolation_counts_per_direction and view.opinion(pod, other, *ends[1::-1], *ends[2:]):
                return Verdict(True, NETWORK_POLICY)
            return None
        if opinion.allowed and not self.facts.network_policy_is_final_for_what_it_allows:
            return None
        if not opinion.allowed and not self.facts.network_policy_is_final_for_what_it_denies:
            return None
        if not self.facts.network_policy_never_denies_the_own_node and self._is_own_node(question.pod, question.far):
            return None
        if not self.facts.network_policy_never_denies_oneself and self._holder(question.far) is question.pod:
            return None
        return Verdict(opinion.allowed, NETWORK_POLICY, opinion.policies)

    def _in_order(self, tier: str) -> list[Object]:
        """Priority, the lowest first, then name, byte by byte."""

        def order(policy: Object) -> Any:
            priority, name = self._place(policy)[1], policy["metadata"]["name"]
            priority = priority if self.facts.lower_priority_goes_first else -priority
            if not self.facts.ties_go_by_name:
                return priority, 0
            return priority, name.encode() if self.facts.names_compare_bytewise else as_people_count(name)

        in_force = (p for p in self.world.cluster_policies if self.audited or not self._does_nothing(p))
        return sorted((p for p in in_force if self._place(p)[0] == tier), key=order)

    def _does_nothing(self, policy: Object) -> bool:
        return self.facts.what_is_audited_does_nothing and is_audited(policy)

    def _unreadable(self, policy: Object) -> str | None:
        return self.world.refused_cluster.get(policy["metadata"]["name"])

    def _means(self, policy: Object, pod: Pod) -> Maybe:
        if self._unreadable(policy) == "subject":
            return not self.facts.an_unreadable_subject_means_nobody
        return self.matching.subject(policy["spec"]["subject"], pod)

    def _place(self, policy: Object) -> tuple[str, int]:
        unreadable = self._unreadable(policy)
        if unreadable == "place" or (unreadable and not self.facts.an_unreadable_policy_keeps_its_place):
            return ADMIN, -1
        return policy["spec"]["tier"], policy["spec"]["priority"]

    def _rules(self, policy: Object, direction: str) -> list[tuple[int | None, Object]]:
        written = policy["spec"].get(direction) or []
        if self._unreadable(policy) is None:
            numbered = list[tuple[int | None, Object]](enumerate(written))
            return numbered if self.facts.rules_go_in_order else numbered[::-1]
        if not self.facts.an_unreadable_policy_denies:
            return []
        both_ways = self.facts.an_unreadable_policy_denies_both_directions
        return [(None, DENY_ALL)] if both_ways or written else []


def is_audited(policy: Object) -> bool:
    return bool((policy["metadata"].get("annotations") or {}).get(AUDIT) == "true")


def as_people_count(name: str) -> list[tuple[int, str]]:
    """`p9` before `p10`: not how names compare here."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
