"""The kernel against the independent evaluator: random policies on real pods made by our own ADD, and real packets.

SCTP goes as raw packets: this kernel may have no SCTP sockets.
"""

from pathlib import Path
from random import Random

import pytest
from evaluator import Cluster, Subject
from probing import Cell, Seat
from realcluster import RealCluster
from worlds import NAMESPACE_LABELS, NAMESPACES, PORTS, PROTOCOLS, labels, named_ports, policy

PODS = 10
ROUNDS = 12
CELLS = 120  # of one round


@pytest.mark.parametrize("nodes", [1, 2])
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


def inhabit(cluster: RealCluster, random: Random) -> list[str]:
    """Pods, some of them with extra addresses, the host outside and the nodes themselves."""
    for name in NAMESPACES:
        cluster.namespace(name)
    for number in range(PODS):
        key = f"{random.choice(NAMESPACES)}/pod{number}"
        at = number % len(cluster.nodes)
        pairs = [
            {4: f"10.0.{at + 1}.{number + 100}", 6: f"2001:db8:{at + 1}::e:{number}"},
            {4: f"10.1.{at + 1}.{number + 1}", 6: f"2001:db8:e{at + 1}::{number + 1}"},
        ]
        cluster.add(key, labels(random), ports=named_ports(random), node=at, addresses=pairs if number % 3 == 0 else ())
    for number, node in enumerate(cluster.nodes):
        before, after = own_addresses(number)
        towards_others = before if node is cluster.nodes[-1] else after
        cluster.prober.add(node.name, Seat(f"/run/netns/{node.netns}", towards_others, PORTS))
    return list(cluster.prober.seats)


def own_addresses(number: int) -> tuple[dict[int, str], dict[int, str]]:
    """A node is the second on the link before it and the first on the one after it."""
    before, after = number, number + 1
    return {4: f"172.31.{before}.2", 6: f"2001:db8:f{before}::2"}, {4: f"172.31.{after}.1", 6: f"2001:db8:f{after}::1"}


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


def subject(cluster: RealCluster, key: str, *, local: bool) -> Subject:
    obj, seats = cluster.pods[key], cluster.prober.seats
    ports = obj["spec"]["containers"][0]["ports"]
    addresses = tuple(a for name in (key, f"{key}+") if name in seats for a in seats[name].addresses.values())
    given = {entry["ip"] for entry in obj["status"]["podIPs"]}
    return Subject(
        namespace=obj["metadata"]["namespace"],
        name=obj["metadata"]["name"],
        labels=obj["metadata"]["labels"],
        addresses=addresses,
        ports=tuple((p["name"], p["containerPort"], p["protocol"]) for p in ports),
        local=local,
        annotated=tuple((a, "addresses") for a in addresses if a not in given),
    )


def cell(random: Random, places: list[str]) -> Cell:
    """At least one end is a pod."""
    source, destination = random.choice([p for p in places if "/" in p]), random.choice(places)
    if random.random() < 0.5:
        source, destination = destination, source
    protocol = random.choices((*PROTOCOLS, "ICMP"), (4, 3, 2, 1))[0]
    port = None if protocol == "ICMP" else random.choice(PORTS)
    return Cell(source, destination, random.choice((4, 6)), protocol, port)


def packet(cluster: RealCluster, cell: Cell) -> tuple[str, str, str, int | None]:
    source, destination = (cluster.address(name, cell.family) for name in (cell.source, cell.destination))
    return source, destination, cell.protocol, cell.port
