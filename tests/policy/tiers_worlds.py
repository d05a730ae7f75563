"""Random worlds with policies of all three tiers, what happens in them, and packets to ask about.

Small vocabularies, so that things meet: few priorities, so that names decide; few addresses and ports, so that rules
overlap.  Every form the API gives a field occurs, and some that it does not.  The same seed gives the same world.
"""

from dataclasses import dataclass, replace
from ipaddress import ip_network
from random import Random

import worlds
from evaluator import Object
from tiers_evaluator import ADMIN, AUDIT, BASELINE, World
from tiers_matching import Node, Packet, Pod
from worlds import LABELS, NAMESPACE_LABELS, NAMESPACES, OUTSIDE, PORTS, PROTOCOLS, selector

NAMES = ("p9", "p10", "p2", "p100", "p-1", "p.1", "pa")
PRIORITIES = (0, 7, 7, 7, 7, 7, 1000)
NODE_LABELS: worlds.Vocabulary = {"zone": ("a", "b"), "role": ("", "infra")}
NODES = ("here", "there", "far")
PROBED = (*PORTS, *PORTS, 79, 82, 8079, 65535)
PORT_NAMES = ("http", "dns", "http", "dns", "nobodys")


@dataclass(frozen=True)
class Happening:
    """What an index would be told."""

    kind: str
    """of `told`: pod, namespace, node, policy or cluster policy; "no policy", "no cluster policy": it is deleted"""
    told: Pod | Node | Object
    """a namespace as an object with its name and labels; a policy as it is, even if nobody can read it"""


def world(random: Random) -> World:
    """Nine pods on two nodes of three, one pod on each host's network, one that nobody has seen the object of, one
    container without a namespace."""
    nodes = [_node(random, number) for number in range(len(NODES))]
    pods = [_pod(random, number) for number in range(9)]
    pods += [_on_the_host(random, node, number) for number, node in enumerate(nodes)]
    pods.append(replace(_pod(random, 20), labels=None, ports=(), phase="Running", node="here"))
    pods.append(replace(_pod(random, 21), namespace="", labels={}, ports=(), node="here", annotated=()))
    made = World(
        namespaces={name: worlds.labels(random, NAMESPACE_LABELS) for name in NAMESPACES},
        pods=pods,
        nodes=nodes,
        grants=worlds.grants(random),
    )
    for _ in range(random.randint(0, 4)):
        made, _told = _policy(random, made)
    for _ in range(random.randint(2, 8)):
        made, _told = _cluster_policy(random, made)
    return made


def change(random: Random, before: World) -> tuple[World, list[Happening]]:
    """A few things happen, in this order."""
    found, happenings = before, []
    kinds = (_relabel, _relabel, _relabel_namespace, _relabel_node, _policy, _bad_policy, _no_policy)
    of_the_cluster = (_cluster_policy, _bad_cluster_policy, _edit, _edit, _edit, _no_cluster_policy)
    for _ in range(random.randint(1, 6)):
        found, told = random.choice((*kinds, *of_the_cluster))(random, found)
        happenings += told
    return found, happenings


def packet(random: Random, found: World) -> Packet:
    """At least one end is a pod; some go to their sender itself, or to or from its own node."""
    unlikely = [p for p in found.pods if p.host_network and random.random() < 0.1]
    pod = random.choice([*unlikely, *(p for p in found.pods if not p.host_network), *_unseen(found), *_unseen(found)])
    near = random.choice(pod.addresses)
    by_service = False
    match random.choices(("itself", "own node", "anybody"), (1, 2, 9))[0]:
        case "itself":
            far, by_service = random.choice(same_family(near, pod.addresses)), random.random() < 0.5
        case "own node":
            node = next(node for node in found.nodes if node.name == pod.node)
            far = random.choice(same_family(near, (*node.addresses, *node.unlisted)))
        case _:
            far = random.choice(same_family(near, [*_addresses(found), *OUTSIDE]))
    source, destination = (near, far) if random.random() < 0.55 else (far, near)
    protocol, port = _asked_for(random, next((p for p in found.pods if destination in p.addresses), None))
    return Packet(source, destination, protocol, port, by_service)


def _asked_for(random: Random, receiver: Pod | None) -> tuple[str, int | None]:
    """Often a port that has a name."""
    if receiver is not None and receiver.ports and random.random() < 0.4:
        _, port, protocol = random.choice(receiver.ports)
        return protocol, port
    protocol = random.choices((*PROTOCOLS, "ICMP", "GRE"), (5, 4, 3, 2, 1))[0]
    return protocol, random.choice(PROBED) if protocol in PROTOCOLS else None


def same_family(address: str, among: tuple[str, ...] | list[str]) -> list[str]:
    return [other for other in among if (":" in other) == (":" in address)]


def _unseen(found: World) -> list[Pod]:
    return [p for p in found.pods if p.labels is None]


def _addresses(found: World) -> list[str]:
    return [a for p in found.pods for a in p.addresses] + [a for n in found.nodes for a in n.unlisted]


# --- nodes and pods ---------------------------------------------------------------------------------------------


def _node(random: Random, number: int) -> Node:
    listed = (f"198.18.0.{number + 1}", f"2001:db8:f::{number + 1}")
    unlisted = (f"198.18.1.{number + 1}", f"2001:db8:f:1::{number + 1}")
    return Node(NODES[number], worlds.labels(random, NODE_LABELS), listed, unlisted)


def _pod(random: Random, number: int) -> Pod:
    made = worlds.pod(random, number)
    return Pod(
        namespace=made.namespace,
        name=made.name,
        labels=made.labels,
        addresses=made.addresses,
        ports=_ports(random),
        phase=made.phase,
        annotated=made.annotated,
        node="here" if made.local else "there",
    )


def _ports(random: Random) -> tuple[tuple[str, int, str], ...]:
    """Two containers of a pod may give one name to two ports."""
    some = [(name, random.choice(PORTS), random.choice(PROTOCOLS)) for name in ("http", "dns") for _ in range(3)]
    return tuple(dict.fromkeys(random.sample(some, random.randint(0, 6))))


def _on_the_host(random: Random, node: Node, number: int) -> Pod:
    return Pod(
        namespace=random.choice(NAMESPACES),
        name=f"host{number}",
        labels=worlds.labels(random),
        addresses=node.addresses,
        ports=_ports(random),
        host_network=True,
        node=node.name,
    )


# --- what happens -----------------------------------------------------------------------------------------------

Told = tuple[World, list[Happening]]


def _relabel(random: Random, found: World) -> Told:
    at = random.choice([n for n, pod in enumerate(found.pods) if pod.labels is not None and pod.namespace])
    pods = list(found.pods)
    phase = random.choice(("Running", "Running", "Running", pods[at].phase))
    pods[at] = replace(pods[at], labels=worlds.labels(random), ports=_ports(random), phase=phase)
    return replace(found, pods=pods), [Happening("pod", pods[at])]


def _relabel_namespace(random: Random, found: World) -> Told:
    name, labels = random.choice(NAMESPACES), worlds.labels(random, NAMESPACE_LABELS)
    told = Happening("namespace", {"metadata": {"name": name, "labels": labels}})
    return replace(found, namespaces={**found.namespaces, name: labels}), [told]


def _relabel_node(random: Random, found: World) -> Told:
    at, nodes = random.randrange(len(found.nodes)), list(found.nodes)
    nodes[at] = replace(nodes[at], labels=worlds.labels(random, NODE_LABELS))
    return replace(found, nodes=nodes), [Happening("node", nodes[at])]


def _policy(random: Random, found: World) -> Told:
    made = worlds.policy(random, f"n{random.randrange(6)}", _addresses(found))
    if random.random() < 0.08:
        made["metadata"]["annotations"] = {AUDIT: "true"}
    kept = [p for p in found.policies if _key(p) != _key(made)]
    refused = {key: what for key, what in found.refused.items() if key != _key(made)}
    return replace(found, policies=[*kept, made], refused=refused), [Happening("policy", made)]


def _bad_policy(random: Random, found: World) -> Told:
    """One that once could be read stays as it was."""
    made, unreadable = worlds.broken(random, worlds.policy(random, f"n{random.randrange(6)}", _addresses(found)))
    told = [Happening("policy", made)]
    kept = [p for p in found.policies if _key(p) != _key(made)]
    if len(kept) < len(found.policies) and _key(made) not in found.refused:
        return found, told
    return replace(found, policies=[*kept, made], refused={**found.refused, _key(made): unreadable}), told


def _key(policy: Object) -> tuple[str, str]:
    return policy["metadata"]["namespace"], policy["metadata"]["name"]


def _no_policy(random: Random, found: World) -> Told:
    if not found.policies:
        return found, []
    gone = random.choice(found.policies)
    kept = [p for p in found.policies if p is not gone]
    refused = {key: what for key, what in found.refused.items() if key != _key(gone)}
    return replace(found, policies=kept, refused=refused), [Happening("no policy", gone)]


def _cluster_policy(random: Random, found: World) -> Told:
    return _put(found, cluster_policy(random, random.choice(NAMES), _addresses(found)))


def _bad_cluster_policy(random: Random, found: World) -> Told:
    """One that once could be read stays as it was."""
    name = random.choice(NAMES)
    good = next((p for p in found.cluster_policies if p["metadata"]["name"] == name), None)
    made, unreadable = broken(random, cluster_policy(random, name, _addresses(found)))
    if good is not None and name not in found.refused_cluster:
        return found, [Happening("cluster policy", made)]
    put, told = _put(found, made)
    return replace(put, refused_cluster={**put.refused_cluster, name: unreadable}), told


def _edit(random: Random, found: World) -> Told:
    """One thing about a policy: priority, tier, an action, the subject, audit."""
    readable = [p for p in found.cluster_policies if p["metadata"]["name"] not in found.refused_cluster]
    if not readable:
        return found, []
    old = random.choice(readable)
    made: Object = {**old, "metadata": dict(old["metadata"]), "spec": dict(old["spec"])}
    spec = made["spec"]
    match random.choice(("priority", "tier", "action", "action", "subject", "audit")):
        case "priority":
            spec["priority"] = random.choice(PRIORITIES)
        case "tier":
            spec["tier"] = BASELINE if spec["tier"] == ADMIN else ADMIN
        case "action":
            for direction in ("ingress", "egress"):
                spec[direction] = [{**rule, "action": _action(random)} for rule in spec.get(direction) or []]
        case "subject":
            spec["subject"] = _chooser(random)
        case "audit":
            made["metadata"]["annotations"] = {} if made["metadata"].get("annotations") else {AUDIT: "true"}
    return _put(found, made)


def _no_cluster_policy(random: Random, found: World) -> Told:
    if not found.cluster_policies:
        return found, []
    gone = random.choice(found.cluster_policies)
    name = gone["metadata"]["name"]
    left = replace(
        found,
        cluster_policies=[p for p in found.cluster_policies if p is not gone],
        refused_cluster={n: what for n, what in found.refused_cluster.items() if n != name},
    )
    return left, [Happening("no cluster policy", gone)]


def _put(found: World, made: Object) -> Told:
    """One of that name keeps its age."""
    name, policies = made["metadata"]["name"], list(found.cluster_policies)
    at = next((n for n, p in enumerate(policies) if p["metadata"]["name"] == name), len(policies))
    policies[at : at + 1] = [made]
    refused = {n: what for n, what in found.refused_cluster.items() if n != name}
    return replace(found, cluster_policies=policies, refused_cluster=refused), [Happening("cluster policy", made)]


# --- policies of the cluster ------------------------------------------------------------------------------------


def cluster_policy(random: Random, name: str, addresses: list[str]) -> Object:
    spec: Object = {
        "tier": random.choice((ADMIN, BASELINE)),
        "priority": random.choice(PRIORITIES),
        "subject": _chooser(random),
    }
    for direction in ("ingress", "egress"):
        if random.random() < 0.75:
            spec[direction] = [_rule(random, direction, addresses) for _ in range(random.choice((0, 1, 2, 3, 4)))]
        elif random.random() < 0.3:
            spec[direction] = None
    metadata: Object = {"name": name}
    if random.random() < 0.08:
        metadata["annotations"] = {AUDIT: "true"}
    return {
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy",
        "metadata": metadata,
        "spec": spec,
    }


def _chooser(random: Random) -> Object:
    """A subject, or a peer by labels."""
    if random.random() < 0.4:
        return {"namespaces": random.choice(({}, {}, selector(random, NAMESPACE_LABELS)))}
    of_pods = random.choice(({}, selector(random, LABELS)))
    by_name = {"matchLabels": {"kubernetes.io/metadata.name": random.choice(NAMESPACES)}}
    chosen = random.choice((None, {}, selector(random, NAMESPACE_LABELS), by_name))
    pods: Object = {"podSelector": of_pods}
    if chosen is not None or random.random() < 0.3:
        pods["namespaceSelector"] = chosen
    return {"pods": pods}


def _action(random: Random) -> str:
    return random.choices(("Accept", "Deny", "Pass"), (4, 4, 3))[0]


def _rule(random: Random, direction: str, addresses: list[str]) -> Object:
    rule: Object = {"action": _action(random)}
    if random.random() < 0.5:
        rule["name"] = f"r{random.randrange(100)}"
    peers = [_peer(random, direction, addresses) for _ in range(random.choice((1, 1, 2, 3)))]
    rule["from" if direction == "ingress" else "to"] = peers
    if random.random() < 0.5:
        rule["protocols"] = [_protocol(random) for _ in range(random.choice((1, 1, 2, 3)))]
    elif random.random() < 0.2:
        rule["protocols"] = None
    return rule


def _peer(random: Random, direction: str, addresses: list[str]) -> Object:
    if random.random() < 0.025:
        return random.choice([{}, {"domainNames": ["*.example.org"]}, {"planets": {}}])
    if direction == "ingress" or random.random() < 0.45:
        return _chooser(random)
    if random.random() < 0.35:
        return {"nodes": random.choice(({}, selector(random, NODE_LABELS)))}
    return {"networks": [_network(random, addresses) for _ in range(random.choice((1, 1, 2)))]}


def _network(random: Random, addresses: list[str]) -> str:
    """Half of them with host bits as they come."""
    inside = random.choice([*addresses, *OUTSIDE])
    bits = 128 if ":" in inside else 32
    written = f"{inside}/{bits - random.choice((0, 1, 2, 4, 8, 16, bits))}"
    return written if random.random() < 0.5 else str(ip_network(written, strict=False))


def _protocol(random: Random) -> Object:
    if random.random() < 0.4:
        return {"destinationNamedPort": random.choice(PORT_NAMES)}
    protocol, form = random.choice(PROTOCOLS).lower(), random.random()
    if form < 0.15:
        return {protocol: random.choice(({}, {"destinationPort": None}))}
    if form < 0.55:
        return {protocol: {"destinationPort": {"number": random.choice(PORTS)}}}
    span = {"start": random.choice((1, 53, 60)), "end": random.choice((79, 80, 81, 8079, 8080, 65535))}
    return {protocol: {"destinationPort": {"range": span}}}


def broken(random: Random, good: Object) -> tuple[Object, str]:
    """With a mistake for which it is refused, and what cannot be read for it."""
    spec: Object = dict(good["spec"])
    what = random.choice(("subject", "place", "rules", "rules"))
    likes = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}
    if what == "subject":
        spec["subject"] = random.choice(({"namespaces": {}, "pods": {"podSelector": {}}}, {"namespaces": likes}))
    elif what == "place":
        spec |= random.choice(({"priority": 1001}, {"priority": -1}, {"priority": None}, {"tier": "Middle"}))
    else:
        everyone: list[Object] = [{"namespaces": {}}]
        span = {"tcp": {"destinationPort": {"range": {"start": 90, "end": 80}}}}
        mistakes: list[Object] = [
            {"action": "Allow", "to": everyone},
            {"action": "Accept", "to": []},
            {"action": "Accept", "to": [{"namespaces": likes}]},
            {"action": "Accept", "to": [{"networks": ["10.0.0.300/8"]}]},
            {"action": "Accept", "to": everyone, "name": "n" * 101},
            {"action": "Accept", "to": everyone, "protocols": [span]},
        ]
        spec["egress"] = [*(spec.get("egress") or []), random.choice(mistakes)]
    return {**good, "spec": spec}, what
