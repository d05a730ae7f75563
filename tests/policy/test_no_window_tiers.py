"""No forbidden packet gets through whatever starts, dies or changes meanwhile, where policies of the cluster decide: a
pod that nobody may reach because an Admin policy denies it, and what a Baseline policy denies to whom no NetworkPolicy
isolates."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import pytest
from hammer import Tap
from siege import NODE_CONFIG, Heard, add, besieging, start_under_fire, survives_kills

from harness import Node
from thoroughness import slowly

PODS = 60
AT_ONCE = 10  # ADDs under way
KILLS = 30
UPDATES = 150
LOCKED = {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": "locked"}}}
OUTER = {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": "outer"}}}
FRIENDS = {"pods": {"podSelector": {"matchLabels": {"role": "friend"}}}}
EVERYBODY = {"networks": ["::/0", "0.0.0.0/0"]}


def cluster_policy(name: str, *, tier: str, priority: int, subject: Any = LOCKED, **rules: Any) -> dict[str, Any]:
    spec = {"tier": tier, "priority": priority, "subject": subject, **rules}
    return {
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def guard(tier: str, priority: int) -> dict[str, Any]:
    """Friends come in, and speak; nobody else does either."""
    return cluster_policy(
        "guard",
        tier=tier,
        priority=priority,
        ingress=[{"action": "Accept", "from": [FRIENDS]}, {"action": "Deny", "from": [LOCKED, OUTER]}],
        egress=[{"action": "Deny", "to": [OUTER, EVERYBODY]}],
    )


SPEAKS = cluster_policy(
    "speaks", tier="Admin", priority=0, subject=FRIENDS, egress=[{"action": "Accept", "to": [EVERYBODY]}]
)


@pytest.fixture(params=["Admin", *slowly("Baseline")])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    """With a stranger outside the locked namespace."""
    with Node(tmp_path, config=NODE_CONFIG) as node:
        for name in ("locked", "outer"):
            node.write(f"namespace-{name}", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        node.write("guard", guard(request.param, 500))
        node.write("speaks", SPEAKS)
        node.start()
        add(node, "stranger", 200, namespace="outer", role="stranger")
        yield node


def test_pods_start_under_fire_and_see_nothing(node: Node) -> None:
    names = [f"pod{number}" for number in range(1, PODS + 1)]
    start_under_fire(node, names, at_once=AT_ONCE, opened_by="guard")


@pytest.fixture
def besieged(node: Node) -> Iterator[tuple[Node, dict[str, Tap]]]:
    """Three victims, a friend who may speak to them, a stranger who may not, all speaking."""
    add(node, "friend", 100, namespace="locked", role="friend")
    for number in (1, 2, 3):
        add(node, f"victim{number}", number, namespace="locked", role="victim")
    with besieging(node) as seen:
        yield node, seen


@pytest.mark.slow
def test_agents_are_killed_under_fire_and_nothing_forbidden_gets_through(besieged: tuple[Node, dict[str, Tap]]) -> None:
    survives_kills(*besieged, kills=KILLS, random=Random(7))


def test_priorities_tiers_and_rules_change_under_fire_and_only_what_they_allow_gets_through(
    besieged: tuple[Node, dict[str, Tap]],
) -> None:
    """Whatever else is said beside it, the friend is always allowed and the stranger never."""
    node, seen = besieged
    random = Random(8)
    heard = Heard(seen)
    for number in range(UPDATES):
        update(node, random, number)
        sleep(0.01)
        assert heard.intruders() == {}
    assert heard.lost() == []


def update(node: Node, random: Random, number: int) -> None:
    ghosts = {"pods": {"podSelector": {"matchLabels": {"role": random.choice(("ghost", "nobody"))}}}}
    port = [{"udp": {"destinationPort": {"number": random.randrange(81, 99)}}}, {"tcp": {}}]
    match number % 5:
        case 0:
            node.write("guard", guard(random.choice(("Admin", "Baseline")), random.randrange(100, 1000)))
        case 1:  # of no consequence, before the guard or behind it, in either tier
            action = random.choice(("Accept", "Deny", "Pass"))
            rules = [{"action": action, "from": [ghosts, OUTER], "protocols": port}]
            tier, place = random.choice(("Admin", "Baseline")), random.randrange(1, 1000)
            node.write("more", cluster_policy("more", tier=tier, priority=place, ingress=rules))
        case 2:  # leaves the tier for what is decided below as well
            rules = [{"action": "Pass", "from": [ghosts]}]
            node.write("passing", cluster_policy("passing", tier="Admin", priority=1, ingress=rules))
        case 3:
            (node.manifests / "more.json").unlink(missing_ok=True)
        case 4:
            (node.manifests / "passing.json").unlink(missing_ok=True)
