"""A small cluster and short words for policies in it, so that worked examples fit on a line.

shop  (team blue)   web on n1, serving http (80 and 8080/TCP) and dns (53/TCP, 53/UDP), and db on n2
bank  (team red)    ledger on n1
watch (no labels)   prom on n2
kube  (no labels)   proxy, on the network of n1
n1 (zone a) and n2 (zone b), each with an address that its status does not list; `new`, on n1, whose labels nobody
knows yet, in shop; `bare`, on n1, without a namespace; `old`, in shop on n2, finished; `out`, outside
"""

from typing import Any

from evaluator import Object
from tiers_evaluator import ADMIN, AUDIT, BASELINE, Judgement, Verdict, World
from tiers_matching import Node, Packet, Pod

HTTP = (("http", 80, "TCP"), ("http", 8080, "TCP"), ("dns", 53, "TCP"), ("dns", 53, "UDP"))
NODES = [
    Node("n1", {"zone": "a"}, ("10.9.0.1", "fd00:9::1"), unlisted=("10.8.0.1", "fd00:8::1")),
    Node("n2", {"zone": "b"}, ("10.9.0.2", "fd00:9::2"), unlisted=("10.8.0.2", "fd00:8::2")),
]


def _pod(key: str, number: int, node: str, *, labels: dict[str, str] | None, **more: Any) -> Pod:
    namespace, name = key.split("/")
    addresses = (f"10.0.0.{number}", f"fd00::{number}")
    return Pod(namespace=namespace, name=name, labels=labels, addresses=addresses, node=node, **more)


PODS = [
    _pod("shop/web", 1, "n1", labels={"app": "web"}, ports=HTTP),
    _pod("shop/db", 2, "n2", labels={"app": "db"}, ports=(("http", 81, "TCP"),)),
    _pod("bank/ledger", 3, "n1", labels={"app": "ledger"}),
    _pod("watch/prom", 4, "n2", labels={"app": "prom"}),
    _pod("shop/new", 5, "n1", labels=None),
    _pod("/bare", 6, "n1", labels={}),
    _pod("shop/old", 7, "n2", labels={"app": "db"}, phase="Succeeded"),
    Pod("kube", "proxy", {"app": "proxy"}, NODES[0].addresses, node="n1", host_network=True),
]
NAMESPACES = {"shop": {"team": "blue"}, "bank": {"team": "red"}, "watch": {}, "kube": {}}
PLACES = {pod.name: pod.addresses for pod in PODS} | {node.name: node.addresses for node in NODES}
PLACES |= {f"{node.name}+": node.unlisted for node in NODES} | {"out": ("192.0.2.9", "2001:db8::9")}

# --- peers and subjects -------------------------------------------------------------------------------------------

EVERYONE: Object = {"namespaces": {}}
DOMAINS: Object = {"domainNames": ["*.example.org"]}
NODES_ALL: Object = {"nodes": {}}
ANYWHERE: Object = {"networks": ["0.0.0.0/0", "::/0"]}


def of(namespace: str) -> Object:
    return {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}


def app(name: str, **pods: Any) -> Object:
    return {"pods": {"podSelector": {"matchLabels": {"app": name}}, **pods}}


def networks(*cidrs: str) -> Object:
    return {"networks": [*cidrs]}


def zone(name: str) -> Object:
    return {"nodes": {"matchLabels": {"zone": name}}}


# --- protocols and rules ------------------------------------------------------------------------------------------


def tcp(number: int, last: int | None = None) -> Object:
    return {
        "tcp": {"destinationPort": {"number": number} if last is None else {"range": {"start": number, "end": last}}}
    }


def named(name: str) -> Object:
    return {"destinationNamedPort": name}


ALL_TCP: Object = {"tcp": {}}


def _rule(action: str, peers: tuple[Object, ...], on: list[Object] | None) -> Object:
    return {"action": action, "peers": [*peers], **({} if on is None else {"protocols": on})}


def accept(*peers: Object, on: list[Object] | None = None) -> Object:
    return _rule("Accept", peers, on)


def deny(*peers: Object, on: list[Object] | None = None) -> Object:
    return _rule("Deny", peers, on)


def skip(*peers: Object, on: list[Object] | None = None) -> Object:
    return _rule("Pass", peers, on)


# --- policies -----------------------------------------------------------------------------------------------------


def _cluster_policy(tier: str, name: str, priority: int, subject: Object, rules: dict[str, Any]) -> Object:
    spec: Object = {"tier": tier, "priority": priority, "subject": subject}
    for word, direction, field in (("out", "egress", "to"), ("into", "ingress", "from")):
        for rule in rules.get(word, ()):
            written = {field if key == "peers" else key: value for key, value in rule.items()}
            spec.setdefault(direction, []).append(written)
    annotations = {AUDIT: "true"} if rules.get("audit") else {}
    return {"kind": "ClusterNetworkPolicy", "metadata": {"name": name, "annotations": annotations}, "spec": spec}


def admin(name: str, priority: int = 5, subject: Object = EVERYONE, **rules: Any) -> Object:
    """`out`, `into`: its rules; `audit`."""
    return _cluster_policy(ADMIN, name, priority, subject, rules)


def baseline(name: str, priority: int = 5, subject: Object = EVERYONE, **rules: Any) -> Object:
    return _cluster_policy(BASELINE, name, priority, subject, rules)


def namespaced(namespace: str, *types: str, **spec: Any) -> Object:
    """A NetworkPolicy `n` for all pods of a namespace."""
    spec = {"podSelector": {}, "policyTypes": [*types], **spec}
    return {"kind": "NetworkPolicy", "metadata": {"name": "n", "namespace": namespace}, "spec": spec}


# --- asking -------------------------------------------------------------------------------------------------------


def cluster(policies: list[Object], unreadable: dict[str, str]) -> World:
    return World(
        namespaces=NAMESPACES,
        pods=PODS,
        nodes=NODES,
        policies=[p for p in policies if p["kind"] == "NetworkPolicy"],
        cluster_policies=[p for p in policies if p["kind"] == "ClusterNetworkPolicy"],
        refused_cluster=unreadable,
    )


def packets(words: str) -> list[Packet]:
    """`web > db`, `web > db ICMP`, `web > db UDP 53`, `web > web by service`: TCP to port 80, if nothing else is said,
    in both families."""
    source, _, destination, *how = words.removesuffix(" by service").split()
    protocol, port = how[0] if how else "TCP", int(how[1]) if how[1:] else 80
    return [
        Packet(one, other, protocol, None if protocol in ("ICMP", "GRE") else port, words.endswith(" by service"))
        for one, other in zip(PLACES[source], PLACES[destination], strict=True)
    ]


def said(judgement: Judgement) -> str:
    """`Admin a/0 denies, -`: at the source, at the destination; `-` where there is nobody to ask."""
    return ", ".join(_verdict(end) for end in (judgement.egress, judgement.ingress))


def _verdict(verdict: Verdict | None) -> str:
    if verdict is None:
        return "-"
    if not verdict.tier:
        return "free"
    rule = "" if verdict.rule is None else f"/{verdict.rule}"
    by = f" {'+'.join(verdict.policies)}{rule}" if verdict.policies else ""
    return f"{verdict.tier}{by} {'allows' if verdict.allowed else 'denies'}"
