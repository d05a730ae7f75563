"""What becomes of a pod's flows in the node's table of connections when the pod goes: they do, and nobody waits."""

import pytest
from flooding import flood, flows, flows_of
from looking import addresses_of

from flock.edge.kernel.conntrack import Sweeper
from flock.edge.kernel.linkmessages import packed
from harness import Node, eventually
from namespaces import within

MANY = 30_000


@pytest.fixture
def pods(node: Node) -> dict[str, list[str]]:
    return {name: addresses_of(node.pod(name)) for name in ("a", "b", "target")}


def test_a_pods_flows_are_forgotten_and_others_are_not(node: Node, pods: dict[str, list[str]]) -> None:
    for name in ("a", "b"):
        for address in pods["target"]:
            flood(node, name, address, ports=300)
    assert [flows_of(node, address) for name in ("a", "b") for address in pods[name]] == [300] * 4
    node.cni("DEL", "a")
    eventually(lambda: not any(flows_of(node, address) for address in pods["a"]), what="flows of a are forgotten")
    assert [flows_of(node, address) for address in pods["b"]] == [300] * 2


def test_nobody_waits_until_a_pods_many_flows_are_forgotten(node: Node, pods: dict[str, list[str]]) -> None:
    flood(node, "a", pods["target"][1], ports=MANY)
    assert flows(node) >= MANY
    node.cni("DEL", "a")
    node.cni("DEL", "b")
    node.pod("c")
    assert flows(node) > MANY // 10, "calls were answered only when all of them were forgotten"
    eventually(lambda: flows(node) < MANY // 10, within=60, what="they are forgotten all the same")


def test_flows_of_an_address_that_is_somebodys_again_stay(node: Node, pods: dict[str, list[str]]) -> None:
    """Of two addresses that are to be forgotten, one comes back before its turn."""
    back, gone = pods["a"][1], pods["b"][1]
    for name in ("a", "b"):
        flood(node, name, pods["target"][1], ports=3000)

    def sweep() -> None:
        sweeper = Sweeper(sysctl="/proc/sys/net")
        sweeper.forget([packed(back), packed(gone)])
        sweeper.spare([packed(back)])
        eventually(lambda: flows_of(node, gone) == 0, what="the other's flows are forgotten")
        sweeper.close()

    within(f"/run/netns/{node.netns}", sweep)
    assert flows_of(node, back) > 2000, "but for those it had found by then"


def test_one_walk_is_for_all_that_went_since_the_last(node: Node, pods: dict[str, list[str]]) -> None:
    """A walk takes longer than all else that a pod's end costs: the first begins at once, the next gathers."""
    for name in ("a", "b"):
        for address in pods["target"]:
            flood(node, name, address, ports=50)

    def sweep() -> None:
        sweeper = Sweeper(sysctl="/proc/sys/net")
        for addresses in (pods["a"][:1], pods["a"][1:] + pods["b"]):
            for address in addresses:
                sweeper.forget([packed(address)])
            eventually(lambda gone=addresses: not any(flows_of(node, a) for a in gone), what="they are forgotten")
        sweeper.close()
        assert sweeper.walks == 2

    within(f"/run/netns/{node.netns}", sweep)
