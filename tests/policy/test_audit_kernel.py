"""What audited policies tell against what they do once they are enforced: random policies of all tiers on real pods,
and real packets, first with some of them audited and then without the annotation."""

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from evaluator import Object
from inhabiting import cell, inhabit, packet
from probing import Cell
from realcluster import RealCluster
from redecorating import redecorate, world
from tiers_evaluator import AUDIT
from tiers_matching import Packet
from worlds import PORTS

from harness import Node, eventually

SLOW = pytest.mark.slow
CELLS = 20  # of one round: as many as a place may tell at once
Told = Counter[tuple[str, str, str, int]]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("nodes", "rounds"), [(1, 4), pytest.param(1, 40, marks=SLOW), pytest.param(2, 30, marks=SLOW)]
)
def test_audit_tells_exactly_the_connections_an_enforced_twin_drops(nodes: int, rounds: int, tmp_path: Path) -> None:
    random = Random(100 + nodes + rounds)
    cut = passed = 0
    with RealCluster(tmp_path, nodes=nodes, ports=PORTS) as cluster:
        places = inhabit(cluster, random)
        above: list[Object] = []
        heard = [Listening(node) for node in cluster.nodes]
        for _ in range(rounds):
            above = redecorate(cluster, random, above)
            annotate(cluster, random)
            cluster.settle()
            cells = list({cell(random, places): None for _ in range(CELLS)})
            views = Views(cluster)
            allowed = [asked for asked in cells if views.allow(asked)]
            cluster.assert_reached(cells, expected=allowed, what=decorations(cluster))
            for listening in heard:
                listening.expect(views.cut_off(cells, at=listening.name), what=decorations(cluster))
            would_go = [asked for asked in allowed if views.allow(asked, audited=True)]
            annotate(cluster, None)
            cluster.settle()
            survived = cluster.prober.reached(allowed, expected=would_go)
            told = {key for listening in heard for key in listening.last}
            asked_for = {as_told(cluster, asked): asked for asked in allowed}
            assert told & asked_for.keys() == {key for key, asked in asked_for.items() if asked not in survived}
            cut, passed = cut + len(allowed) - len(survived), passed + len(survived)
    assert cut > rounds // 2 and passed > rounds, "both occur often"


class Views:
    """What the nodes make of packets."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._views = {node.name: world(cluster, at) for at, node in enumerate(cluster.nodes)}

    def allow(self, asked: Cell, *, audited: bool = False) -> bool:
        return all(self._allows(asked, at, audited=audited) for at in self._views)

    def cut_off(self, cells: list[Cell], *, at: str) -> Told:
        """What passes this node and would not, whatever becomes of it at the next; if it comes that far."""
        return Told(
            as_told(self._cluster, asked)
            for asked in cells
            if self._allows(asked, at)
            and not self._allows(asked, at, audited=True)
            and ((home := self._home(asked)) in (None, at) or self._allows(asked, home))
        )

    def _allows(self, asked: Cell, at: str | None, *, audited: bool = False) -> bool:
        assert at is not None
        return self._views[at].judge(Packet(*packet(self._cluster, asked)), at=at, audited=audited).allowed

    def _home(self, asked: Cell) -> str | None:
        """The node whose pod sends it."""
        return self._cluster.home(asked.source.rstrip("+")).name if "/" in asked.source else None


def annotate(cluster: RealCluster, random: Random | None) -> None:
    """Some policies are audited; without a choice, none is."""
    for policies in (cluster.policies, cluster.cluster_policies):
        for obj in policies.values():
            audited = random is not None and random.random() < 0.5
            obj["metadata"]["annotations"] = {AUDIT: "true"} if audited else {}
    cluster.set_policies(list(cluster.policies.values()))
    cluster.set_cluster_policies(list(cluster.cluster_policies.values()))


def decorations(cluster: RealCluster) -> str:
    return json.dumps([*cluster.policies.values(), *cluster.cluster_policies.values()])


def as_told(cluster: RealCluster, asked: Cell) -> tuple[str, str, str, int]:
    source, destination, protocol, port = packet(cluster, asked)
    return source, destination, "ICMPv6" if protocol == "ICMP" and ":" in source else protocol, port or 0


class Listening:
    """To what the agent of a node tells of audited policies."""

    def __init__(self, node: Node) -> None:
        self.name, self._node, self._cursor, self.last = node.name, node, "", Told()

    def expect(self, wanted: Told, *, what: str) -> None:
        """These connections, once each, and no others."""
        self.last = Told()

        def heard() -> bool:
            answer = self._node.rpc({"op": "policy.audit", "args": self._cursor})["result"]
            self._cursor = answer["cursor"]
            for row in answer["happened"]:
                assert row["policies"], row
                self.last[row["source"], row["destination"], row["protocol"], row["port"]] += 1
            return self.last >= wanted

        eventually(heard, what=f"{wanted} told, by {what}")
        assert self.last == wanted, what
