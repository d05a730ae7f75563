"""A real cluster whose labels and policies of all tiers change, and the world it is then, as the facts see it."""

from random import Random

from evaluator import Object
from inhabiting import own_addresses, subject
from realcluster import RealCluster
from tiers_evaluator import World
from tiers_matching import Node, Pod
from tiers_worlds import NAMES, NODE_LABELS, cluster_policy
from worlds import NAMESPACE_LABELS, NAMESPACES, labels, policy


def redecorate(cluster: RealCluster, random: Random, before: list[Object]) -> list[Object]:
    """Other labels and policies; of the cluster's policies one goes, one changes its place, others come."""
    for name in NAMESPACES:
        cluster.namespaces[name] = {}
        cluster.namespace(name, **labels(random, NAMESPACE_LABELS))
    for key in cluster.pods:
        cluster.label_pod(key, labels(random))
    for number, node in enumerate(cluster.nodes):
        cluster.node_labels[node.name] = labels(random, NODE_LABELS)
        cluster.set_node(node.name, cluster.node_labels[node.name], addresses_of(number))
    addresses = [a for seat in cluster.prober.seats.values() for a in seat.addresses.values()]
    cluster.set_policies([policy(random, f"p{number}", addresses) for number in range(random.randint(0, 3))])
    kept = {obj["metadata"]["name"]: obj for obj in before[1:]}
    if kept:
        moved = random.choice(list(kept.values()))
        moved["spec"]["priority"] = random.choice((0, 7, 1000))
        moved["spec"]["tier"] = random.choice(("Admin", "Baseline"))
    for name in random.sample(NAMES, random.randint(1, 4)):
        kept[name] = cluster_policy(random, name, addresses)
    above = list(kept.values())
    cluster.set_cluster_policies(above)
    return above


def addresses_of(number: int) -> tuple[str, ...]:
    return tuple(address for link in own_addresses(number) for address in link.values())


def world(cluster: RealCluster, at: int) -> World:
    """As one node sees it."""
    homes = {node: node.name for node in cluster.nodes}
    return World(
        namespaces=cluster.namespaces,
        pods=[pod(cluster, key, homes[cluster.home(key)]) for key in cluster.pods],
        nodes=[Node(n.name, cluster.node_labels[n.name], addresses_of(i)) for i, n in enumerate(cluster.nodes)],
        policies=list(cluster.policies.values()),
        cluster_policies=list(cluster.cluster_policies.values()),
        grants=tuple(("addresses", prefix, None) for prefix in cluster.grants[at + 1]),
    )


def pod(cluster: RealCluster, key: str, node: str) -> Pod:
    known = subject(cluster, key, local=False)
    return Pod(
        namespace=known.namespace,
        name=known.name,
        labels=known.labels,
        addresses=known.addresses,
        ports=known.ports,
        annotated=known.annotated,
        node=node,
    )
