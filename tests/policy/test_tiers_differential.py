"""The compiled form of both tiers and NetworkPolicy together, against an evaluator that shares no code with it."""

from dataclasses import replace
from ipaddress import ip_address
from random import Random
from typing import Any

import msgspec
import pytest
from tiers_evaluator import World
from tiers_facts import RIGHT
from tiers_matching import Node, Packet, Pod
from tiers_worlds import Happening, change, packet, world
from told import config, manifest

from flock.core import model
from flock.core.facts import NodeFacts
from flock.core.policy.compiled import as_audited
from flock.core.policy.index import PolicyIndex
from flock.core.policy.judging import Explanation, Party, evaluate
from flock.core.policy.podfacts import LocalPod
from flock.core.policy.vouching import Vouching
from thoroughness import slowly

STATES, PACKETS = 3, 120  # of a world, of a state
# Of a pod whose object nobody has seen, a port name means nothing.
OURS = replace(RIGHT, unknown_port_names_might_match=False)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("worlds", [28, *slowly(280)])
def test_random_packets_are_judged_as_the_facts_say(worlds: int) -> None:
    cells = denied = decided = cut = 0
    for seed in range(worlds):
        random = Random(seed)
        now = world(random)
        node = Filtering(now)
        for state in range(STATES):
            node.index.commit()
            for _ in range(PACKETS):
                cell = packet(random, now)
                wanted = now.judge(cell, at="here", facts=OURS)
                answer = node.judge(now, cell)
                allowed = answer.verdict == "allow"
                if is_in_doubt(now, cell):
                    assert wanted.allowed or not allowed, (seed, state, cell, str(answer), wanted)
                else:
                    assert allowed == wanted.allowed, (seed, state, cell, str(answer), wanted)
                if cells % 4 == 0 and not is_in_doubt(now, cell):
                    would = node.judge(now, cell, audited=True).verdict == "allow"
                    assert would == now.judge(cell, at="here", facts=OURS, audited=True).allowed, (seed, state, cell)
                    cut += allowed and not would
                cells, denied = cells + 1, denied + (not allowed)
                decided += bool(answer.egress.decided_by or answer.ingress.decided_by)
            now, happenings = change(random, now)
            for happening in happenings:
                node.hear(happening, now)
    assert cells // 10 < denied and decided > cells // 10 and cut > cells // 1000


def is_in_doubt(now: World, cell: Packet) -> bool:
    """An end has labels nobody knows: closed is right there, and whether it had to be depends on them."""
    return any(p.labels is None and {cell.source, cell.destination} & set(p.addresses) for p in now.pods)


class Filtering:
    """The node `here`, told of the world as its sources would."""

    def __init__(self, now: World) -> None:
        self.index, self.vouching = PolicyIndex(), Vouching()
        self.vouching.configure(config(now.seen_from("here")), NodeFacts(node="here"))
        for name, labels in now.namespaces.items():
            self.namespace(name, labels, now)
        for pod in now.pods:
            self.pod(pod)
        for node in now.nodes:
            self.node(node)
        for obj in now.policies:
            self.index.set_policy(obj)
        for obj in now.cluster_policies:
            self.index.set_cluster_policy(obj)

    def hear(self, happening: Happening, now: World) -> None:
        told: Any = happening.told
        match happening.kind:
            case "pod":
                self.pod(told)
            case "namespace":
                self.namespace(told["metadata"]["name"], told["metadata"].get("labels") or {}, now)
            case "node":
                self.node(told)
            case "policy":
                self.index.set_policy(told)
            case "no policy":
                self.index.drop_policy((told["metadata"]["namespace"], told["metadata"]["name"]))
            case "cluster policy":
                self.index.set_cluster_policy(told)
            case "no cluster policy":
                self.index.drop_cluster_policy(("", told["metadata"]["name"]))
            case other:
                raise AssertionError(other)

    def namespace(self, name: str, labels: dict[str, str], now: World) -> None:
        self.index.set_namespace(name, labels)
        again = {*self.vouching.set_namespace(name, labels)}
        for pod in now.pods:
            if (pod.namespace, pod.name) in again:
                self.pod(pod)

    def node(self, node: Node) -> None:
        self.index.set_node(node.name, node.labels, tuple(map(ip_address, node.addresses)))

    def pod(self, pod: Pod) -> None:
        if pod.labels is not None and pod.namespace:
            self.index.set_pod(self.vouching.facts(msgspec.convert(manifest(pod), model.Pod)))
        if pod.node == "here" and not pod.host_network:
            self.index.set_local(
                LocalPod(
                    interface=f"flock-{pod.name}",
                    container_id=pod.name,
                    namespace=pod.namespace,
                    name=pod.name if pod.namespace else "",
                    labels=None if pod.namespace else {},
                    addresses=tuple(map(ip_address, pod.addresses)),
                )
            )

    def judge(self, now: World, cell: Packet, *, audited: bool = False) -> Explanation:
        (here,) = (node for node in now.nodes if node.name == "here")
        source, destination = self._party(now, cell.source), self._party(now, cell.destination)
        compiled = self.index.compiled
        return evaluate(
            (as_audited(compiled, (source.interface, destination.interface)) if audited else None) or compiled,
            source=source,
            destination=destination,
            protocol=cell.protocol,
            port=cell.port,
            node_addresses=tuple(map(ip_address, (*here.addresses, *here.unlisted))),
            service=cell.by_service,
        )

    def _party(self, now: World, address: str) -> Party:
        for pod in now.pods:
            if address in pod.addresses and pod.node == "here" and not pod.host_network:
                return Party(address=address, interface=f"flock-{pod.name}")
        return Party(address=address)
