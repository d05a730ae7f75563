"""Invariant 3: no forbidden packet gets into or out of an isolated pod, whatever starts, dies or changes meanwhile.

Taps in the pods' namespaces see every packet from before the link exists.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import pytest
from hammer import Tap
from siege import NODE_CONFIG, Heard, add, besieging, start_under_fire, survives_kills

from harness import Node

PODS = 100
AT_ONCE = 10  # ADDs under way
KILLS = 50
UPDATES = 200


def policy(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "locked"}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}


FRIENDS = {"podSelector": {"matchLabels": {"role": "friend"}}}
DENY = policy("deny", {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})
VICTIMS: dict[str, Any] = {"podSelector": {"matchLabels": {"role": "victim"}}}
FRIENDLY = policy("friendly", {**VICTIMS, "ingress": [{"from": [FRIENDS]}]})


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """With a stranger outside the locked namespace, and policies in force that deny all to and from it."""
    with Node(tmp_path, config=NODE_CONFIG) as node:
        for name in ("locked", "outer"):
            node.write(f"namespace-{name}", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        node.write("deny", DENY)
        node.start()
        add(node, "stranger", 200, namespace="outer", role="stranger")
        yield node


def test_a_hundred_isolated_pods_start_under_fire_and_see_nothing(node: Node) -> None:
    names = [f"pod{number}" for number in range(1, PODS + 1)]
    start_under_fire(node, names, at_once=AT_ONCE, opened_by="deny")


@pytest.fixture
def besieged(node: Node) -> Iterator[tuple[Node, dict[str, Tap]]]:
    """Three victims, a friend who may speak to them, a stranger who may not, all speaking."""
    node.write("friendly", FRIENDLY)
    add(node, "friend", 100, namespace="locked", role="friend")
    for number in (1, 2, 3):
        add(node, f"victim{number}", number, namespace="locked", role="victim")
    node.write("speaks", policy("speaks", {**FRIENDS, "egress": [{}], "policyTypes": ["Egress"]}))
    with besieging(node) as seen:
        yield node, seen


def test_agents_are_killed_under_fire_and_nothing_forbidden_gets_through(besieged: tuple[Node, dict[str, Tap]]) -> None:
    """And what is allowed goes on as if nothing happened."""
    survives_kills(*besieged, kills=KILLS, random=Random(5))


def test_policies_are_updated_under_fire_and_only_what_they_allow_gets_through(
    besieged: tuple[Node, dict[str, Tap]],
) -> None:
    """Whatever the updates say beside it, the friend is always allowed and the stranger never."""
    node, seen = besieged
    random = Random(6)
    heard = Heard(seen)
    for number in range(UPDATES):
        update(node, random, number)
        sleep(0.01)
        assert heard.intruders() == {}
    assert heard.lost() == []


def update(node: Node, random: Random, number: int) -> None:
    others = [
        {"podSelector": {"matchLabels": {"role": random.choice(("nobody", "ghost"))}}},
        {"ipBlock": {"cidr": f"192.0.{random.randrange(3)}.0/24"}},
        {"namespaceSelector": {"matchLabels": {"team": str(number)}}},
    ]
    chosen = random.sample(others, random.randint(0, 3))
    match number % 4:
        case 0:
            node.write("friendly", policy("friendly", {**FRIENDLY["spec"], "ingress": [{"from": [FRIENDS, *chosen]}]}))
        case 1:
            rules = [{"from": chosen, "ports": [{"port": number + 1}]}] if chosen else []
            node.write("more", policy("more", {"podSelector": {}, "ingress": rules}))
        case 2:
            spec = {**VICTIMS, "policyTypes": ["Egress"]}
            if random.random() < 0.5:
                spec["egress"] = [{"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}]
            node.write("out", policy("out", spec))
        case 3:
            node.write("deny", DENY if number % 8 == 3 else policy("deny", {**DENY["spec"], "ingress": []}))
            (node.manifests / "more.json").unlink()
