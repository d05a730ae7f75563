"""The kernel against the independent evaluator: random policies on real pods made by our own ADD, and real packets.

SCTP goes as raw packets: this kernel may have no SCTP sockets.
"""

from pathlib import Path
from random import Random

import pytest
from evaluator import Cluster
from inhabiting import cell, inhabit, own_addresses, packet, subject
from realcluster import RealCluster
from worlds import NAMESPACE_LABELS, NAMESPACES, PORTS, labels, policy

from thoroughness import slowly

PODS = 10
ROUNDS = 12
CELLS = 120  # of one round


@pytest.mark.parametrize("nodes", [2, *slowly(1)])
def test_random_packets_fare_in_the_kernel_as_the_api_says(nodes: int, tmp_path: Path) -> None:
    random = Random(nodes)
    cells = denied = 0
    with RealCluster(tmp_path, nodes=nodes, ports=PORTS) as cluster:
        places = inhabit(cluster, random)
        for _ in range(ROUNDS):
            views = redecorate(cluster, random)
            cluster.settle()
            chosen = [cell(random, places) for _ in range(CELLS)]
            expected = [c for c in chosen if all(view.allows(*packet(cluster, c)) for view in views)]
            cluster.assert_reached(chosen, expected=expected, what=list(cluster.policies.values()))
            cells, denied = cells + len(chosen), denied + len(chosen) - len(expected)
    assert cells * 2 >= 2_000
    assert cells // 10 < denied < cells * 9 // 10, "both answers occur often"


def redecorate(cluster: RealCluster, random: Random) -> list[Cluster]:
    """New labels and policies; returns the cluster as each node sees it."""
    for name in NAMESPACES:
        cluster.namespaces[name] = {}
        cluster.namespace(name, **labels(random, NAMESPACE_LABELS))
    for key in cluster.pods:
        cluster.label_pod(key, labels(random))
    addresses = [a for seat in cluster.prober.seats.values() for a in seat.addresses.values()]
    made = [policy(random, f"p{number}", addresses) for number in range(random.randint(2, 6))]
    cluster.set_policies(made)
    return [
        Cluster(
            namespaces=cluster.namespaces,
            pods=[subject(cluster, key, local=cluster.home(key) is node) for key in cluster.pods],
            policies=made,
            node_addresses=tuple(a for link in own_addresses(number) for a in link.values()),
            grants=tuple(("addresses", prefix, None) for prefix in cluster.grants[number + 1]),
        )
        for number, node in enumerate(cluster.nodes)
    ]
