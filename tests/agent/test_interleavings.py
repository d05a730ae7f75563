"""Random interleavings of ADD, DEL, CHECK, GC and kill -9 over twenty containers.

In each round a handful of verbs run at once, often several for one container, and in some the agent is killed among
them and started again.  After each round invariants 1, 2, 5 and 6 are checked on kernel and store, and what a round
did not touch has to be as it was.  The seed is printed with a failure; FLOCK_SEED replays it.
"""

import os
import random
import time
from collections import defaultdict
from typing import Any

import pytest
from looking import addresses_of, collect, failure, outcome, settle

from harness import CniFailure, Node
from thoroughness import slowly

CONTAINERS = [f"c{number:02d}" for number in range(20)]
UNKNOWN_CONTAINER, DIFFERENCES = 3, 109


class Plan:
    """One round: verbs by container, what is to be collected, and when the agent is to die."""

    def __init__(self, rng: random.Random, attached: set[str]) -> None:
        self.verbs: list[tuple[str, str, dict[str, Any]]] = []
        busy = rng.sample(CONTAINERS, rng.randint(1, 4))
        for _ in range(rng.randint(2, 8)):
            verb = rng.choice(["ADD", "ADD", "DEL", "DEL", "CHECK"])
            how = {"netns": ""} if verb == "DEL" and rng.random() < 0.5 else {}
            self.verbs.append((verb, rng.choice(busy), how))
        idle = sorted(attached - set(busy))
        self.collected = set(rng.sample(idle, rng.randint(0, len(idle) // 2))) if rng.random() < 0.15 else set()
        if self.collected:
            valid = [{"containerID": c, "ifname": "eth0"} for c in CONTAINERS if c not in self.collected]
            self.verbs.append(("GC", "", {"cni.dev/valid-attachments": valid}))
        rng.shuffle(self.verbs)
        self.dies_after = rng.uniform(0, 0.06) if rng.random() < 0.25 else None
        self.touched = {container for _, container, _ in self.verbs if container}

    def asked(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for verb, container, _ in self.verbs:
            found[container].add(verb)
        return found

    def __repr__(self) -> str:
        verbs = " ".join(f"{verb}:{container}" for verb, container, _ in self.verbs)
        return f"{verbs} collected={sorted(self.collected)} dies_after={self.dies_after}"


def carry_out(node: Node, plan: Plan) -> None:
    started = [
        (verb, container, node.cni_start(verb, container, wait=120, **how)) for verb, container, how in plan.verbs
    ]
    if plan.dies_after is not None:
        time.sleep(plan.dies_after)
        node.kill()
        node.start()
    for verb, container, process in started:
        result = outcome(process)
        if isinstance(result, CniFailure):
            # CHECK beside ADD and DEL of the same container sees it come and go
            assert verb == "CHECK" and result.code in (UNKNOWN_CONTAINER, DIFFERENCES), f"{verb} {container}: {result}"


def judge(node: Node, plan: Plan, before: dict[str, Any]) -> None:
    settle(node)
    after = node.allocations()
    for container, verbs in plan.asked().items():
        if container and verbs <= {"ADD", "CHECK"} and "ADD" in verbs:
            assert container in after, f"{container} was added and is gone"
            if container in before:
                assert after[container] == before[container], f"{container} was changed by another ADD"
        elif container and verbs <= {"DEL", "CHECK"} and "DEL" in verbs:
            assert container not in after, f"{container} was deleted and is still there"
    assert not plan.collected & set(after), "GC left something"
    for container in set(before) - plan.touched - plan.collected:
        assert after.get(container) == before[container], f"{container} had nothing to do with it and changed"


@pytest.mark.timeout(600)  # fifty lives; on a busy machine they take their time
@pytest.mark.parametrize("rounds", [20, *slowly(200)])
def test_random_interleavings(node: Node, rounds: int) -> None:
    seed = int(os.environ.get("FLOCK_SEED", "20260"))
    rng = random.Random(seed)
    for container in CONTAINERS:
        node.namespace(container)
    for number in range(rounds):
        before = node.allocations()
        plan = Plan(rng, set(before))
        try:
            carry_out(node, plan)
            judge(node, plan, before)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, round {number}: {plan}\n{error}") from error
    for container, entry in node.allocations().items():
        assert node.ping(entry["ip6"]) and node.ping(entry["ip4"])
        node.cni("CHECK", container)
    collect(node)
    settle(node)
    assert not node.allocations()
    assert all(pool["used"] == 0 for pool in node.ask("status")["pools"])


@pytest.mark.parametrize("rounds", [8, *slowly(25)])
def test_a_small_pool_is_never_given_out_twice(node: Node, rounds: int) -> None:
    """Invariant 1 where it hurts: twelve containers fight for five IPv4 addresses, and the agent dies among them."""
    spec = {"cidr6": ["2001:db8:1::/64"], "cidr4": ["192.0.2.0/29"]}
    node.write("nodeconfig", {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig",
                              "metadata": {"name": "n1"}, "spec": spec})  # fmt: skip
    rng = random.Random(4)
    names = CONTAINERS[:12]
    for name in names:
        node.namespace(name)
    for number in range(rounds):
        started = [
            (verb, node.cni_start(verb, name, wait=30)) for name in names for verb in [rng.choice(["ADD", "DEL"])]
        ]
        if number % 5 == 0:
            time.sleep(rng.uniform(0, 0.03))
            node.kill()
            node.start()
        for verb, process in started:
            result = outcome(process)
            exhausted = isinstance(result, CniFailure) and verb == "ADD" and result.code == 104
            assert exhausted or not isinstance(result, CniFailure), result
        settle(node)
        assert len(node.allocations()) <= 5
    for name in names:
        node.cni("DEL", name)
    for name in names[:5]:
        assert addresses_of(node.cni("ADD", name))
    assert failure(node, "ADD", names[5]).code == 104
