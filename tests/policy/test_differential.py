"""The compiled form against an evaluator that shares no code with it, in random worlds that also change."""

from dataclasses import replace
from ipaddress import ip_address
from random import Random
from typing import Any

import msgspec
import pytest
from evaluator import Cluster, Subject
from told import config, manifest
from worlds import addresses_of, broken, cluster, labels, named_ports, policy, probe

from flock.core.facts import NodeFacts
from flock.core.model import Pod
from flock.core.policy.index import PolicyIndex
from flock.core.policy.judging import Party, evaluate
from flock.core.policy.podfacts import LocalPod
from flock.core.policy.vouching import Vouching
from thoroughness import slowly

STATES = 3  # of one world: as made, and after changes
PROBES = 200  # of one state


@pytest.mark.parametrize("worlds", [10, *slowly(200)])
def test_random_packets_are_judged_as_the_api_says(worlds: int) -> None:
    cells = denied = 0
    for seed in range(worlds):
        random = Random(seed)
        world = cluster(random)
        index, vouching = PolicyIndex(), Vouching()
        vouching.configure(config(world), NodeFacts(node="here"))
        for name, found in world.namespaces.items():
            index.set_namespace(name, found)
            vouching.set_namespace(name, found)
        for pod in world.pods:
            put(index, vouching, pod)
        for obj in world.policies:
            index.set_policy(obj)
        for _ in range(STATES):
            index.commit()
            assert index.problems.keys() >= world.refused.keys()
            for _ in range(PROBES):
                cell = probe(random, addresses_of(world.pods))
                allowed = world.allows(*cell)
                assert compiled_allows(index, world, cell) == allowed, (seed, cell, world.policies)
                cells, denied = cells + 1, denied + (not allowed)
            world = change(random, world, index, vouching)
    assert cells // 10 < denied < cells * 9 // 10, "both answers occur often"


def compiled_allows(index: PolicyIndex, world: Cluster, cell: tuple[str, str, str, int | None]) -> bool:
    source, destination, protocol, port = cell
    answer = evaluate(
        index.compiled,
        source=party(world, source),
        destination=party(world, destination),
        protocol=protocol,
        port=port,
        node_addresses=tuple(ip_address(a) for a in world.node_addresses),
    )
    return answer.verdict == "allow"


def party(world: Cluster, address: str) -> Party:
    """A pod of this node is known by its interface, everything else by its address."""
    for pod in world.pods:
        if address in pod.addresses and pod.local and not pod.host_network:
            return Party(address=address, interface=interface(pod))
    return Party(address=address)


def interface(pod: Subject) -> str:
    return f"flock-{pod.name}"


def put(index: PolicyIndex, vouching: Vouching, pod: Subject) -> None:
    """The object as a source hands it over, and the allocation if the pod is here."""
    index.set_pod(vouching.facts(msgspec.convert(manifest(pod), Pod)))
    if pod.local and not pod.host_network:
        index.set_local(
            LocalPod(
                interface=interface(pod),
                container_id=pod.name,
                namespace=pod.namespace,
                name=pod.name,
                labels=None,
                addresses=tuple(ip_address(a) for a in pod.addresses),
            )
        )


def change(random: Random, world: Cluster, index: PolicyIndex, vouching: Vouching) -> Cluster:
    """A few things happen: the index hears of each, the evaluator sees the new world."""
    pods, policies, namespaces = list(world.pods), list(world.policies), dict(world.namespaces)
    refused = dict(world.refused)
    for _ in range(random.randint(1, 6)):
        match random.choice(("pod", "pod", "namespace", "policy", "bad policy", "no policy")):
            case "pod":
                at = random.randrange(len(pods))
                phase = random.choice(("Running", "Running", "Running", "Succeeded"))
                pods[at] = replace(pods[at], labels=labels(random), ports=named_ports(random), phase=phase)
                put(index, vouching, pods[at])
            case "namespace":
                name = random.choice(list(namespaces))
                namespaces[name] = labels(random, {"team": ("blue", "red"), "env": ("prod", "test")})
                index.set_namespace(name, namespaces[name])
                again = {*vouching.set_namespace(name, namespaces[name])}
                for pod in pods:
                    if (pod.namespace, pod.name) in again:
                        put(index, vouching, pod)
            case "policy":
                made = policy(random, f"p{random.randrange(6)}", addresses_of(pods))
                policies = [p for p in policies if key(p) != key(made)] + [made]
                refused.pop(key(made), None)
                index.set_policy(made)
            case "bad policy":
                made, unreadable = broken(random, policy(random, f"p{random.randrange(6)}", addresses_of(pods)))
                index.set_policy(made)
                if key(made) in refused or key(made) not in map(key, policies):  # else a good one stays in force
                    policies = [p for p in policies if key(p) != key(made)] + [made]
                    refused[key(made)] = unreadable
            case "no policy" if policies:
                gone = policies.pop(random.randrange(len(policies)))
                refused.pop(key(gone), None)
                index.drop_policy(key(gone))
    return replace(world, namespaces=namespaces, pods=pods, policies=policies, refused=refused)


def key(obj: dict[str, Any]) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]
