"""Which pods of other nodes policies of this node's pods mean, and by which watches these are followed."""

import random
from typing import Any

import pytest
from policy_world import labelled, local, pod, policy

from flock.core.kinds import ALL, Extent
from flock.core.policy.index import PolicyIndex
from flock.core.policy.reach import WATCHES, Reach, extents

HERE = {"app": "web"}


def index(*peers: dict[str, Any], selects: dict[str, Any] | None = None, **spec: Any) -> PolicyIndex:
    """A pod of shop here, and a policy of shop that lets these peers in."""
    found = PolicyIndex()
    for name, team in (("shop", "a"), ("bank", "a"), ("mail", "b")):
        found.set_namespace(name, {"team": team})
    found.set_local(local("shop/web", "192.0.2.1", labels=HERE))
    found.set_policy(
        policy({"podSelector": selects or {}, "ingress": [{"from": list(peers)}], **spec}, namespace="shop")
    )
    found.commit()
    return found


def of(*namespaces: str) -> Reach:
    return Reach(frozenset(namespaces))


@pytest.mark.parametrize(
    ("peer", "reach"),
    [
        ({"podSelector": {}}, of("shop")),
        ({"podSelector": labelled(app="db")}, of("shop")),
        ({"namespaceSelector": labelled(team="a")}, of("shop", "bank")),
        ({"namespaceSelector": labelled(team="a"), "podSelector": labelled(app="db")}, of("shop", "bank")),
        ({"namespaceSelector": labelled(team="nobody")}, of()),
        ({"namespaceSelector": {}, "podSelector": labelled(app="db")}, Reach(None, "app=db")),
        ({"namespaceSelector": {}}, Reach(None)),
    ],
)
def test_a_peer_reaches_into_the_namespaces_it_means(peer: dict[str, Any], reach: Reach) -> None:
    assert index(peer).reach == {reach}


def test_a_selector_that_demands_no_label_reaches_all_pods() -> None:
    without = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}
    assert index({"namespaceSelector": {}, "podSelector": without}).reach == {Reach(None)}


def test_a_named_port_towards_anybody_reaches_all_pods() -> None:
    assert index(policyTypes=["Egress"], egress=[{"ports": [{"port": "http"}]}], ingress=None).reach == {Reach(None)}


def test_blocks_and_policies_that_select_nobody_here_reach_nobody() -> None:
    assert not index({"ipBlock": {"cidr": "192.0.2.0/24"}}).reach
    assert not index({"podSelector": {}}, selects=labelled(app="other")).reach


def test_the_reach_follows_pods_labels_and_policies_and_is_the_same_value_until_it_changes() -> None:
    found = index({"namespaceSelector": labelled(team="a")})
    before = found.reach
    found.set_pod(pod("bank/db", "192.0.2.7", labels={"app": "db"}))
    found.commit()
    assert found.reach is before
    found.set_namespace("mail", {"team": "a"})
    assert found.reach == {of("shop", "bank", "mail")}
    found.drop_namespace("bank")
    found.drop_pod(("bank", "db"))
    assert found.reach == {of("shop", "mail")}
    found.drop_local("flock-shop-web")
    found.commit()
    assert not found.reach


def test_a_pod_whose_labels_nobody_knows_reaches_nobody_yet() -> None:
    """It is isolated by all of its namespace's policies and allowed nothing."""
    found = PolicyIndex()
    found.set_policy(policy({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]}, namespace="shop"))
    found.set_local(local("shop/web", "192.0.2.1", labels=None))
    found.commit()
    assert not found.reach


# --- by which watches ---


def test_namespaces_are_followed_as_a_whole_and_labels_everywhere() -> None:
    reaches = [of("shop", "bank"), of("shop"), Reach(None, "k8s-app=kube-dns")]
    assert extents(reaches, namespaces=100) == {Extent("shop"), Extent("bank"), Extent(labels="k8s-app=kube-dns")}
    assert extents([], namespaces=100) == set()


def test_everything_is_followed_as_one_where_that_is_meant_or_nearly() -> None:
    assert extents([Reach(None), of("shop")], namespaces=100) == {ALL}
    assert extents([of("shop", "bank")], namespaces=3) == {ALL}, "most of the namespaces"
    many = [of(*(f"ns{n}" for n in range(WATCHES)))]
    assert len(extents(many, namespaces=10_000)) == WATCHES
    assert extents([*many, of("one more")], namespaces=10_000) == {ALL}


def test_who_follows_everything_goes_on_until_clearly_less_is_needed() -> None:
    some = [of(*(f"ns{n}" for n in range(WATCHES * 4 // 5)))]
    assert extents(some, namespaces=10_000, before={ALL}) == {ALL}
    assert ALL not in extents(some, namespaces=10_000)
    few = [of(*(f"ns{n}" for n in range(WATCHES // 2)))]
    assert ALL not in extents(few, namespaces=10_000, before={ALL})


# --- nobody is left out ---


@pytest.mark.parametrize("seed", range(40))
def test_whoever_is_in_a_group_is_in_an_extent_that_is_followed(seed: int) -> None:
    dice = random.Random(seed)

    def some(key: str) -> dict[str, Any]:
        without = {"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["0"]}]}
        selectors: list[dict[str, Any]] = [{}, labelled(**{key: "0"}), labelled(**{key: "1"}), without]
        return dice.choice(selectors)

    found = PolicyIndex()
    for n in range(6):
        found.set_namespace(f"ns{n}", {"team": str(n % 3)})
        found.set_local(local(f"ns{n}/here", f"192.0.2.{n}", labels={"app": str(n % 2)}))
    members = {}
    for n in range(60):
        name, labels = f"ns{n % 6}/p{n}", {"app": str(n % 3), "tier": str(n % 2)}
        members[f"198.51.100.{n}"] = (f"ns{n % 6}", labels)
        found.set_pod(pod(name, f"198.51.100.{n}", labels=labels))
    for n in range(4):
        peers: list[dict[str, Any]] = [{"podSelector": some("tier"), "namespaceSelector": some("team")}]
        peers += [{"podSelector": some("tier")}]
        spec = {"podSelector": some("app"), "ingress": [{"from": dice.sample(peers, dice.randint(1, 2))}]}
        found.set_policy(policy(spec, name=f"p{n}", namespace=f"ns{dice.randrange(6)}"))
    found.commit()
    followed = extents(found.reach, namespaces=dice.choice([6, 1000]))
    for group in found.compiled.groups.values():
        for address in map(str, group):
            if address in members:
                namespace, labels = members[address]
                assert any(
                    extent.namespace in ("", namespace) and _fits(extent.labels, labels) for extent in followed
                ), (address, followed)


def _fits(selector: str, labels: dict[str, str]) -> bool:
    return not selector or selector in {f"{key}={value}" for key, value in labels.items()}
