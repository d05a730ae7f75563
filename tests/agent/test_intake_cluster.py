"""ClusterNetworkPolicies and Nodes from the cache into the index: what waits for whom, and what is closed meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flock.agent import outlook
from flock.agent.intake import Intake
from flock.agent.lastgood_policies import FILE
from flock.agent.outlook import Outlook
from flock.core.facts import NodeFacts
from flock.core.kinds import ALL, CLUSTER_NODES, CLUSTER_PODS, CLUSTER_POLICIES, KINDS, NAMESPACES, NODES, Extent
from flock.core.model import Metadata, Namespace, Node, NodeAddress, NodeStatus
from flock.core.naming import GATEWAY6
from flock.core.policy.index import PolicyIndex
from flock.core.policy.podfacts import LocalPod
from flock.edge.cache import Cache

ADDRESS = ip_address("192.0.2.1")


class Taking:
    """A pod of namespace `shop` here, and a cache that the test feeds, as an API server's feeder would."""

    def __init__(self, state: Path, *, manifests: bool = False) -> None:
        self.cache = Cache(node="n1")
        for kind in KINDS:
            if manifests or not kind.partial:
                self.cache.listed(kind)
        for name in ("shop", "bank", "till", *(f"other-{number}" for number in range(8))):
            self.cache.put(NAMESPACES, ("", name), Namespace(Metadata(name=name, labels={"team": name})))
        self.outlook = Outlook(self.cache)
        self.index = PolicyIndex(self.outlook.sees)
        believed: Any = SimpleNamespace(config=None, facts=NodeFacts(node="n1"))
        self.intake = Intake(
            self.cache, self.index, self.outlook, configured=believed, preparing=believed, state_dir=state
        )
        self.intake.take_everything()
        self.index.set_local(
            LocalPod(
                interface="flock1", container_id="c", namespace="shop", name="web", labels={}, addresses=(ADDRESS,)
            )
        )
        self.apply()

    def apply(self) -> None:
        """One transaction's worth, as `Policies` does it."""
        self.intake.take_changes()
        self.index.commit()
        self.intake.reach_out()

    def policy(self, name: str, *peers: dict[str, Any], **spec: Any) -> None:
        rules = [{"action": "Deny", "to": list(peers)}]
        subject = {"namespaces": {}}
        spec = {"tier": "Admin", "priority": 1, "subject": subject, "egress": rules if peers else [], **spec}
        self.cache.put(CLUSTER_POLICIES, ("", name), {"metadata": {"name": name}, "spec": spec})

    def denied(self) -> dict[str, set[str]]:
        """By policy in force, whom it denies: groups and blocks, or `*`."""
        self.apply()
        return {
            key[1]: {
                text
                for rule in policy.egress or ()
                for text in (
                    ["*"]
                    if rule.peers.anywhere
                    else [*(g.namespaces or g.namespace for g in rule.peers.groups), *map(str, rule.peers.blocks)]
                )
            }
            for key, policy in self.index.compiled.policies.items()
        }


def team(name: str) -> dict[str, Any]:
    return {"namespaces": {"matchLabels": {"team": name}}}


ANY_NODE: dict[str, Any] = {"nodes": {}}
NETWORK = {"networks": ["10.0.0.0/8"]}


def told(tmp_path: Path, story: Callable[[Taking], Awaitable[None]], **how: bool) -> None:
    async def run() -> None:
        await story(Taking(tmp_path, **how))

    asyncio.run(run())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[None]]:
    """Returns what waits until nobody waits any more."""
    monkeypatch.setattr(outlook, "PATIENCE", 0.1)
    return lambda: asyncio.sleep(0.11)


def test_a_policy_is_in_force_at_once_where_everything_is_known(tmp_path: Path) -> None:
    async def story(taking: Taking) -> None:
        taking.policy("guard", team("bank"), ANY_NODE)
        assert taking.denied() == {"guard": {"team=bank", "/nodes"}}
        assert not taking.outlook.awaited

    told(tmp_path, story, manifests=True)


def test_its_former_version_stays_until_the_peers_of_the_new_one_are_listed(tmp_path: Path) -> None:
    async def story(taking: Taking) -> None:
        taking.policy("guard", NETWORK)
        assert taking.denied() == {"guard": {"10.0.0.0/8"}}
        taking.policy("guard", team("bank"))
        assert taking.denied() == {"guard": {"10.0.0.0/8"}}
        assert set(taking.cache.needed(CLUSTER_PODS)) == {Extent("bank")}
        assert taking.outlook.awaited, "and an ADD waits for that"
        assert taking.intake.next_turn() is not None, "for it may not be listed in time"
        taking.cache.listed(CLUSTER_PODS, Extent("bank"))
        assert taking.denied() == {"guard": {"team=bank"}}
        assert taking.intake.next_turn() is None

    told(tmp_path, story)


def test_what_changed_after_it_waits_too_for_it_may_take_its_place(tmp_path: Path) -> None:
    async def story(taking: Taking) -> None:
        taking.policy("old", NETWORK)
        assert taking.denied() == {"old": {"10.0.0.0/8"}}
        taking.policy("new", team("bank"))
        taking.cache.drop(CLUSTER_POLICIES, ("", "old"))
        assert taking.denied() == {"old": {"10.0.0.0/8"}}
        taking.cache.listed(CLUSTER_PODS, Extent("bank"))
        assert taking.denied() == {"new": {"team=bank"}}

    told(tmp_path, story)


def test_several_that_wait_are_listed_at_once(tmp_path: Path) -> None:
    async def story(taking: Taking) -> None:
        taking.policy("a", team("bank"))
        taking.policy("b", team("till"), ANY_NODE)
        assert taking.denied() == {}
        assert set(taking.cache.needed(CLUSTER_PODS)) == {Extent("bank"), Extent("till")}
        assert set(taking.cache.needed(CLUSTER_NODES)) == {ALL}
        taking.cache.listed(CLUSTER_PODS, Extent("till"))
        taking.cache.listed(CLUSTER_NODES)
        assert taking.denied() == {}
        taking.cache.listed(CLUSTER_PODS, Extent("bank"))
        assert taking.denied() == {"a": {"team=bank"}, "b": {"team=till", "/nodes"}}

    told(tmp_path, story)


def test_what_cannot_be_listed_in_time_is_closed_until_it_is(
    tmp_path: Path, impatient: Callable[[], Awaitable[None]]
) -> None:
    async def story(taking: Taking) -> None:
        taking.policy("guard", team("bank"))
        assert taking.denied() == {}
        await impatient()
        assert taking.denied() == {"guard": {"*"}}
        assert not taking.outlook.awaited, "nobody waits for it any more"
        assert set(taking.cache.needed(CLUSTER_PODS)) == {Extent("bank")}, "but it is asked for"
        taking.cache.listed(CLUSTER_PODS, Extent("bank"))
        assert taking.denied() == {"guard": {"team=bank"}}

    told(tmp_path, story)


def test_a_namespace_that_comes_to_be_meant_is_waited_for_and_then_closed(
    tmp_path: Path, impatient: Callable[[], Awaitable[None]]
) -> None:
    async def story(taking: Taking) -> None:
        taking.policy("guard", team("bank"))
        taking.denied()
        taking.cache.listed(CLUSTER_PODS, Extent("bank"))
        assert taking.denied() == {"guard": {"team=bank"}}
        taking.cache.put(NAMESPACES, ("", "till"), Namespace(Metadata(name="till", labels={"team": "bank"})))
        assert taking.denied() == {"guard": {"team=bank"}}, "as if its new label came that much later"
        assert set(taking.cache.needed(CLUSTER_PODS)) == {Extent("bank"), Extent("till")}
        await impatient()
        assert taking.denied() == {"guard": {"*"}}
        taking.cache.listed(CLUSTER_PODS, Extent("till"))
        assert taking.denied() == {"guard": {"team=bank"}}

    told(tmp_path, story)


def test_nothing_is_listed_for_policies_without_a_subject_here(tmp_path: Path) -> None:
    async def story(taking: Taking) -> None:
        taking.policy("guard", team("bank"), ANY_NODE, subject=team("till"))
        assert taking.denied() == {}
        assert not taking.cache.needed(CLUSTER_PODS) and not taking.cache.needed(CLUSTER_NODES)
        taking.cache.drop(CLUSTER_POLICIES, ("", "guard"))
        taking.apply()
        assert not taking.index.cluster_policies

    told(tmp_path, story)


def test_nodes_are_peers_by_the_addresses_of_their_status_and_the_own_one_by_all(tmp_path: Path) -> None:
    def node(name: str, *addresses: str, **labels: str) -> Node:
        status = NodeStatus(addresses=tuple(NodeAddress(address) for address in addresses))
        return Node(Metadata(name=name, labels=labels), status=status)

    async def story(taking: Taking) -> None:
        taking.cache.put(NODES, ("", "n1"), node("n1", "192.0.2.11", role="db"))
        taking.cache.put(CLUSTER_NODES, ("", "n2"), node("n2", "192.0.2.12", "host.example", "fe80::1%eth0", role="db"))
        taking.cache.put(CLUSTER_NODES, ("", "n3"), node("n3", "192.0.2.13"))
        taking.policy("guard", {"nodes": {"matchLabels": {"role": "db"}}})
        taking.apply()
        assert members(taking) == {"192.0.2.11", "192.0.2.12", GATEWAY6}
        taking.cache.put(CLUSTER_NODES, ("", "n3"), node("n3", "192.0.2.13", role="db"))
        taking.cache.drop(CLUSTER_NODES, ("", "n2"))
        taking.apply()
        assert members(taking) == {"192.0.2.11", "192.0.2.13", GATEWAY6}

    def members(taking: Taking) -> set[str]:
        (group,) = taking.index.compiled.groups.values()
        return {str(address) for address in group}

    told(tmp_path, story, manifests=True)


def test_the_last_good_version_of_either_kind_outlives_a_restart(tmp_path: Path) -> None:
    async def first(taking: Taking) -> None:
        taking.policy("guard", NETWORK)
        taking.apply()
        taking.policy("guard", NETWORK, tier="None")
        assert taking.denied() == {"guard": {"10.0.0.0/8"}}
        await taking.intake.settle()
        assert "10.0.0.0/8" in (tmp_path / FILE).read_text()

    async def second(taking: Taking) -> None:
        taking.policy("guard", NETWORK, tier="None")
        assert taking.denied() == {"guard": {"10.0.0.0/8"}}
        assert "tier" in taking.index.problems["", "guard"]
        await taking.intake.settle()
        taking.policy("fresh", tier="None")
        assert taking.denied()["fresh"] == {"*"}, "one that never was good denies what its subject means"

    told(tmp_path, first, manifests=True)
    told(tmp_path, second, manifests=True)
