"""Random policies, namespaces and pods, as plain objects: small vocabularies, so that things meet.

Every form the API gives a field occurs: absent, null, empty, one, several.
"""

import ipaddress
from random import Random
from typing import Any

from evaluator import Cluster, Object, Subject

NAMESPACES = ("x", "y", "z")
Vocabulary = dict[str, tuple[str, ...]]
LABELS: Vocabulary = {"app": ("web", "db", "cache"), "tier": ("front", "back"), "odd": ("", "1")}
NAMESPACE_LABELS: Vocabulary = {"team": ("blue", "red"), "env": ("prod", "test")}
PORTS = (80, 81, 53, 8080)
"""what probes go to, and pods serve"""
NAMED = (
    ("http", 80, "TCP"),
    ("http", 8080, "TCP"),
    ("http", 80, "UDP"),
    ("dns", 53, "UDP"),
    ("dns", 53, "TCP"),
    ("assoc", 81, "SCTP"),
)
PORT_NAMES = ("http", "dns", "assoc", "nobodys")
PROTOCOLS = ("TCP", "UDP", "SCTP")


def labels(random: Random, vocabulary: Vocabulary = LABELS) -> dict[str, str]:
    return {key: random.choice(values) for key, values in vocabulary.items() if random.random() < 0.6}


def named_ports(random: Random) -> tuple[tuple[str, int, str], ...]:
    """A name occurs once per protocol, as the API server requires of a container."""
    found: dict[tuple[str, str], int] = {}
    for name, number, protocol in random.sample(NAMED, random.randint(0, 4)):
        found.setdefault((name, protocol), number)
    return tuple((name, number, protocol) for (name, protocol), number in found.items())


def cluster(random: Random) -> Cluster:
    """A dozen pods, on this node and on others, some on their host's network, some finished; one more node."""
    pods = [pod(random, number) for number in range(12)]
    here, there = ("198.18.0.1", "2001:db8:f::1"), ("198.18.0.2", "2001:db8:f::2")
    pods.append(Subject("x", "host-here", labels(random), here, host_network=True))
    pods.append(Subject("y", "host-there", labels(random), there, local=False, host_network=True))
    return Cluster(
        namespaces={name: labels(random, NAMESPACE_LABELS) for name in NAMESPACES},
        pods=pods,
        policies=[policy(random, f"p{number}", addresses_of(pods)) for number in range(random.randint(0, 5))],
        node_addresses=here,
        grants=grants(random),
    )


def grants(random: Random) -> tuple[tuple[str, str, Object | None], ...]:
    """Of extra and anycast addresses: none, some or all, to some namespaces or to all."""
    kinds = (("addresses", "203.0.113.0/{}", (24, 29)), ("anycast", "2001:db8:53::/{}", (64, 125)))
    return tuple(
        (kind, prefix.format(random.choice(lengths)), random.choice((None, selector(random, NAMESPACE_LABELS))))
        for kind, prefix, lengths in kinds
        if random.random() < 0.8
    )


def pod(random: Random, number: int) -> Subject:
    addresses = [f"192.0.2.{number + 1}", f"2001:db8:1::{number + 1:x}"]
    annotated = []
    if random.random() < 0.3:
        annotated.append((f"203.0.113.{number + 1}", "addresses"))
    if random.random() < 0.3:
        annotated.append((f"2001:db8:53::{number + 1:x}", "anycast"))
    return Subject(
        namespace=random.choice(NAMESPACES),
        name=f"pod{number}",
        labels=labels(random),
        addresses=(*addresses, *(address for address, _ in annotated)),
        ports=named_ports(random),
        local=random.random() < 0.7,
        phase=random.choices(("Running", "Pending", "Succeeded", "Failed"), (16, 2, 1, 1))[0],
        annotated=tuple(annotated),
    )


def addresses_of(pods: list[Subject]) -> list[str]:
    return [address for pod in pods for address in pod.addresses]


# --- policies ---------------------------------------------------------------------------------------------------


def policy(random: Random, name: str, addresses: list[str]) -> Object:
    spec: Object = {"podSelector": selector(random, LABELS)}
    if random.random() < 0.1:
        spec["podSelector"] = random.choice([None, {}])
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        if random.random() < 0.6:
            spec[direction] = [_rule(random, peers, addresses) for _ in range(random.randint(0, 2))]
        elif random.random() < 0.3:
            spec[direction] = None
    if random.random() < 0.7:
        spec["policyTypes"] = random.choice([["Ingress"], ["Egress"], ["Ingress", "Egress"], []])
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": random.choice(NAMESPACES)},
        "spec": spec,
    }


def broken(random: Random, good: Object) -> tuple[Object, str]:
    """With a mistake that is refused, and what the mistake makes unreadable of whom it isolates, and where."""
    obj: Object = {**good, "metadata": dict(good["metadata"]), "spec": dict(good["spec"])}
    spec = obj["spec"]
    where = random.choice(("selector", "types", "", "", ""))
    if where == "selector":
        spec["podSelector"] = random.choice(("all", {"matchExpressions": [{"key": "app", "operator": "Like"}]}))
    elif where == "types":
        spec["policyTypes"] = random.choice(("Ingress", ["Ingress", "Sideways"]))
    elif random.random() < 0.5:
        obj["metadata"]["annotations"] = {"flock.fritzlab.net/strict": "yes"}
    else:
        mistakes: list[Object] = [
            {"from": [{"ipBlock": {"cidr": "010.9.0.0/16"}}]},
            {"ports": [{"port": 90, "endPort": 80}]},
            {"ports": [{"port": 80, "protocol": "QUIC"}]},
            {"from": [{"podSelector": {"matchExpressions": [{"key": "app", "operator": "Like"}]}}]},
        ]
        spec["ingress"] = [*(spec.get("ingress") or []), random.choice(mistakes)]
    return obj, where


def _rule(random: Random, peers: str, addresses: list[str]) -> Object:
    rule: Object = {}
    if random.random() < 0.8:
        rule[peers] = [_peer(random, addresses) for _ in range(random.choice((0, 1, 1, 1, 2, 3)))]
    elif random.random() < 0.3:
        rule[peers] = None
    if random.random() < 0.6:
        rule["ports"] = [_port(random) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    elif random.random() < 0.3:
        rule["ports"] = None
    return rule


def _peer(random: Random, addresses: list[str]) -> Object:
    kind = random.random()
    if kind < 0.3:
        return {"ipBlock": _block(random, addresses)}
    if kind < 0.55:
        return {"podSelector": selector(random, LABELS)}
    if kind < 0.75:
        return {"namespaceSelector": selector(random, NAMESPACE_LABELS), "podSelector": random.choice([None, {}])}
    if kind < 0.8:
        return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": random.choice(NAMESPACES)}}}
    return {"namespaceSelector": selector(random, NAMESPACE_LABELS), "podSelector": selector(random, LABELS)}


def _block(random: Random, addresses: list[str]) -> Object:
    inside = random.choice(addresses)
    bits = 128 if ":" in inside else 32
    length = bits - random.choice((0, 1, 2, 3, 4, 8, bits))
    block: Object = {"cidr": _network(inside, length)}
    if random.random() < 0.5:
        family = [a for a in addresses if (":" in a) == (":" in inside)]
        holes = [_network(inside, min(bits, length + random.randint(1, 3)))] if length < bits else []
        holes += [_network(random.choice(family), bits - random.choice((0, 1, 2))) for _ in range(random.randint(0, 2))]
        within = [hole for hole in holes if _contains(block["cidr"], hole)]
        block["except"] = within or random.choice([[], None])
    return block


def _network(address: str, length: int) -> str:
    return str(ipaddress.ip_network(f"{address}/{length}", strict=False))


def _contains(outer: str, inner: str) -> bool:
    """The API requires exceptions to lie strictly within their block."""
    wide, narrow = ipaddress.ip_network(outer), ipaddress.ip_network(inner)
    return narrow != wide and narrow.subnet_of(wide)  # type: ignore[arg-type]


def _port(random: Random) -> Object:
    entry: Object = {}
    if random.random() < 0.75:
        entry["protocol"] = random.choice(PROTOCOLS)
    elif random.random() < 0.3:
        entry["protocol"] = None
    kind = random.random()
    if kind < 0.4:
        entry["port"] = random.choice(PORTS)
    elif kind < 0.6:
        entry["port"] = random.choice(PORT_NAMES)
    elif kind < 0.8:
        entry["port"] = random.choice((1, 53, 60, 80))
        entry["endPort"] = random.choice((80, 81, 8079, 8080, 65535))
    return entry


def selector(random: Random, vocabulary: Vocabulary) -> Object:
    """Empty (all) now and then."""
    found: Object = {}
    keys = list(vocabulary)
    if random.random() < 0.5:
        key = random.choice(keys)
        found["matchLabels"] = {key: random.choice(vocabulary[key])}
    if random.random() < 0.5:
        found["matchExpressions"] = [_expression(random, vocabulary) for _ in range(random.choice((0, 1, 1, 2)))]
    return found


def _expression(random: Random, vocabulary: Vocabulary) -> dict[str, Any]:
    key = random.choice([*vocabulary, "never"])
    operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    values = vocabulary.get(key, ("any",))
    if operator in ("Exists", "DoesNotExist"):
        return {"key": key, "operator": operator}
    return {"key": key, "operator": operator, "values": random.sample(values, random.randint(1, len(values)))}


# --- probes -----------------------------------------------------------------------------------------------------

OUTSIDE = ("198.51.100.9", "2001:db8:ff::9")


def probe(random: Random, addresses: list[str]) -> tuple[str, str, str, int | None]:
    """(source, destination, protocol, port) of one family."""
    source = random.choice([*addresses, *OUTSIDE])
    destination = random.choice([a for a in (*addresses, *OUTSIDE) if (":" in a) == (":" in source)])
    protocol = random.choices((*PROTOCOLS, "ICMP"), (4, 3, 2, 1))[0]
    return source, destination, protocol, None if protocol == "ICMP" else random.choice((*PORTS, 79, 82, 1, 65535))
