"""The kernel against the evaluator of the tiers: random policies of all three on real pods, edited in between, and real
packets, to and from nodes as well."""

from pathlib import Path
from random import Random

import pytest
from evaluator import Object
from inhabiting import cell, inhabit, packet
from realcluster import RealCluster
from redecorating import redecorate, world
from tiers_matching import Packet
from worlds import PORTS

from thoroughness import slowly

ROUNDS = 13
CELLS = 120  # of one round


@pytest.mark.timeout(600)
@pytest.mark.parametrize("nodes", [1, *slowly(2)])
def test_random_packets_fare_in_the_kernel_as_the_facts_say(nodes: int, tmp_path: Path) -> None:
    random = Random(10 + nodes)
    cells = denied = 0
    with RealCluster(tmp_path, nodes=nodes, ports=PORTS) as cluster:
        places = inhabit(cluster, random)
        above: list[Object] = []
        for _ in range(ROUNDS):
            above = redecorate(cluster, random, above)
            views = {node.name: world(cluster, at) for at, node in enumerate(cluster.nodes)}
            cluster.settle()
            chosen = [cell(random, places) for _ in range(CELLS)]
            expected = []
            for asked in chosen:
                sent = Packet(*packet(cluster, asked))
                if all(view.judge(sent, at=name).allowed for name, view in views.items()):
                    expected.append(asked)
            cluster.assert_reached(chosen, expected=expected, what=[*cluster.policies.values(), *above])
            cells, denied = cells + len(chosen), denied + len(chosen) - len(expected)
    assert cells * 2 >= 3_000
    assert cells // 10 < denied < cells * 9 // 10, "both answers occur often"
