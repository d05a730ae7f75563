"""Whatever happens in whatever order: what was kept up step by step is what one gets from scratch."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from policy_world import Model, addresses, plain, policy

from flock.core.policy.compiled import Change, GroupId, NamedPort, PolicyKey, everything
from flock.core.policy.index import PolicyIndex
from flock.core.policy.podfacts import Local, LocalPod, PodFacts, Ports
from flock.core.policy.reading import PeerSelector
from flock.core.selectors import LabelSelector
from thoroughness import examples

# Few of everything, so that what happens concerns what happened before.
NAMESPACES, NAMES, INTERFACES, UIDS = ("x", "y"), ("a", "b"), ("flock1", "flock2"), ("", "1", "2")
LABELS: tuple[dict[str, str], ...] = ({}, {"k": "u"}, {"k": "v"}, {"l": "v"}, {"k": "u", "l": "v"})
ADDRESSES = (addresses("10.0.0.1"), addresses("10.0.0.1", "2001:db8::1"), addresses("2001:db8::2"))
HTTP, DNS = NamedPort("http", "TCP"), NamedPort("dns", "UDP")
PORTS: tuple[Ports, ...] = ((), ((HTTP, 80),), ((HTTP, 81), (DNS, 53)))
SELECTORS: tuple[dict[str, Any], ...] = (
    {},
    {"matchLabels": {"k": "u"}},
    {"matchLabels": {"k": "u", "l": "v"}},
    {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v", "u"]}]},
    {"matchExpressions": [{"key": "k", "operator": "NotIn", "values": ["u"]}]},
    {"matchExpressions": [{"key": "l", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "l", "operator": "DoesNotExist"}]},
)
WRONG = {"podSelector": {"matchExpressions": [{"key": "k", "operator": "Nonsense"}]}}
RULE_PORTS: tuple[list[Any], ...] = ([], [{"port": 80}], [{"port": "http"}], [{"port": "dns", "protocol": "UDP"}])
TYPES: tuple[list[str], ...] = ([], ["Ingress"], ["Egress"], ["Ingress", "Egress"])


def some_peer(random: Random) -> dict[str, Any]:
    kind = random.randrange(5)
    if kind == 0:
        return {"ipBlock": {"cidr": "10.0.0.0/8"}}
    peer = {"podSelector": random.choice(SELECTORS)}
    return peer if kind == 1 else {**peer, "namespaceSelector": random.choice(SELECTORS)}


def some_rules(random: Random, peers: str) -> list[dict[str, Any]]:
    return [
        {peers: [some_peer(random) for _ in range(random.randrange(3))], "ports": random.choice(RULE_PORTS)}
        for _ in range(random.randrange(3))
    ]


def some_spec(random: Random) -> dict[str, Any]:
    if random.randrange(12) == 0:
        return WRONG
    return {
        "podSelector": random.choice((*SELECTORS, {}, {}, {})),
        "ingress": some_rules(random, "from"),
        "egress": some_rules(random, "to"),
        "policyTypes": random.choice(TYPES),
    }


class World:
    """The objects as they are now, beside the index that saw them come and go."""

    def __init__(self) -> None:
        self.index = PolicyIndex()
        self.model = Model()
        self.policies: dict[PolicyKey, Mapping[str, Any]] = {}  # the last good version of each, else the last
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.pods: dict[tuple[str, str], PodFacts] = {}
        self.locals: dict[str, LocalPod] = {}

    def set_policy(self, random: Random) -> None:
        key = (random.choice(NAMESPACES), random.choice(NAMES))
        obj = policy(some_spec(random), namespace=key[0], name=key[1])
        self.index.set_policy(obj)
        if key in self.index.problems:
            assert "Nonsense" in self.index.problems[key]
        if obj["spec"] != WRONG or self.policies.get(key, obj)["spec"] == WRONG:
            self.policies[key] = obj

    def drop_policy(self, random: Random) -> None:
        key = (random.choice(NAMESPACES), random.choice(NAMES))
        self.index.drop_policy(key)
        self.policies.pop(key, None)

    def set_namespace(self, random: Random) -> None:
        name, labels = random.choice(NAMESPACES), random.choice(LABELS)
        self.index.set_namespace(name, labels)
        self.namespaces[name] = labels

    def drop_namespace(self, random: Random) -> None:
        name = random.choice(NAMESPACES)
        self.index.drop_namespace(name)
        self.namespaces.pop(name, None)

    def set_pod(self, random: Random) -> None:
        facts = PodFacts(
            namespace=random.choice(NAMESPACES),
            name=random.choice(NAMES),
            uid=random.choice(UIDS),
            labels=dict(random.choice(LABELS)),
            addresses=random.choice(ADDRESSES),
            ports=random.choice(PORTS),
            host_network=random.randrange(6) == 0,
            phase=random.choice(("", "Running", "Running", "Failed")),
        )
        self.index.set_pod(facts)
        self.pods[facts.namespace, facts.name] = facts

    def drop_pod(self, random: Random) -> None:
        key = (random.choice(NAMESPACES), random.choice(NAMES))
        self.index.drop_pod(key)
        self.pods.pop(key, None)

    def set_local(self, random: Random) -> None:
        pod = LocalPod(
            interface=random.choice(INTERFACES),
            container_id="sandbox",
            namespace=random.choice((*NAMESPACES, *NAMESPACES, "")),
            name=random.choice(NAMES),
            uid=random.choice(UIDS),
            labels=random.choice((*LABELS, None)),
            addresses=random.choice(ADDRESSES),
            ports=random.choice(PORTS),
        )
        self.index.set_local(pod)
        self.locals[pod.interface] = pod

    def drop_local(self, random: Random) -> None:
        interface = random.choice(INTERFACES)
        self.index.drop_local(interface)
        self.locals.pop(interface, None)

    def commit(self) -> None:
        self.model.apply(self.index.commit())
        assert self.index.is_settled and self.index.commit() == Change()
        assert plain(self.model) == plain(self.index.compiled)
        full = Model()
        full.apply(everything(self.index.compiled))
        assert plain(full) == plain(self.model)
        assert plain(self.from_scratch().compiled) == plain(self.model)
        self.check_by_hand()

    def from_scratch(self) -> PolicyIndex:
        """Another order of events on purpose: policies first."""
        index = PolicyIndex()
        for obj in self.policies.values():
            index.set_policy(obj)
        for pod in self.locals.values():
            index.set_local(pod)
        for facts in self.pods.values():
            index.set_pod(facts)
        for name, labels in self.namespaces.items():
            index.set_namespace(name, labels)
        index.commit()
        return index

    def check_by_hand(self) -> None:
        """Groups and selected policies once more, by trying every selector on every pod."""
        selectors = {g: s for parsed in self.index.policies.values() for g, s in parsed.groups.items()}
        for group, members in self.model.groups.items():
            selector = selectors[group]
            expected = {
                address
                for pod in self.index.pods.values()
                if pod.takes_part and self.chosen(group, selector, pod.namespace, pod.labels)
                for address in self.peer_addresses(pod)
            }
            for local in self.index.locals.values():
                if self.counts(local) and self.chosen(group, selector, local.pod.namespace, local.labels or {}):
                    expected.update(local.pod.addresses)
            assert members == expected
        for interface, subject in self.model.subjects.items():
            local = self.index.locals[interface]
            if local.labels is None:
                continue
            selecting = {
                key
                for key, parsed in self.index.policies.items()
                if key[0] == local.pod.namespace and parsed.selector.fits(local.labels)
            }
            named = {*(subject.verdicts.ingress or ()), *(subject.verdicts.egress or ())}
            assert named == selecting

    @staticmethod
    def counts(local: Local) -> bool:
        return local.labels is not None and local.takes_part and local.pod.namespace != ""

    def chosen(self, group: GroupId, selector: PeerSelector, namespace: str, labels: Mapping[str, str]) -> bool:
        there: LabelSelector | None = selector.namespaces
        own = {**self.namespaces.get(namespace, {}), "kubernetes.io/metadata.name": namespace}
        in_scope = namespace == group.namespace if there is None else there.fits(own)
        return in_scope and selector.pods.fits(labels)

    def peer_addresses(self, pod: PodFacts) -> tuple[Any, ...]:
        """A pod that is here counts with the store's addresses, not with its object's."""
        for local in self.locals.values():
            same = not local.uid or not pod.uid or local.uid == pod.uid
            if (local.namespace, local.name) == (pod.namespace, pod.name) and same:
                return ()
        return pod.addresses


# More that comes than goes, so that there is something to go.
EVENTS = (
    *(World.set_policy, World.set_pod, World.set_local, World.set_namespace) * 2,
    *(World.drop_policy, World.drop_pod, World.drop_local, World.drop_namespace),
)
SEEDS = st.integers(0, 2**32).map(Random)


class Cluster(RuleBasedStateMachine):
    @initialize(batch=st.integers(1, 3), seed=SEEDS)
    def begin(self, batch: int, seed: Random) -> None:
        """Not empty: most of what can go wrong needs a policy, a pod it selects here and peers."""
        self.world = World()
        self.batch = batch
        self.events = 0
        for event in (World.set_policy, World.set_pod, World.set_local, World.set_namespace):
            for _ in range(3):
                event(self.world, seed)

    @rule(event=st.sampled_from(EVENTS), seed=SEEDS)
    def happens(self, event: Any, seed: Random) -> None:
        event(self.world, seed)

    @invariant()
    def commit_every_few_events(self) -> None:
        self.events += 1
        if self.events % self.batch == 0:
            self.world.commit()


Cluster.TestCase.settings = settings(max_examples=examples(50), stateful_step_count=30)
TestIncrementalEqualsFromScratch = Cluster.TestCase


@pytest.mark.parametrize("seed", range(20))
def test_a_long_random_walk_ends_where_a_fresh_start_does(seed: int) -> None:
    world, random = World(), Random(seed)
    for _ in range(500):
        random.choice(EVENTS)(world, random)
        if random.randrange(2):
            world.commit()
    world.commit()
