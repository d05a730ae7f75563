"""Compiled rules in words, for people: what a rule is about, and who and what it lets through."""

from flock.core.policy.compiled import (
    NODES,
    TRIED,
    CompiledPolicy,
    Direction,
    GroupId,
    NamedPort,
    Peers,
    PortRange,
    Rule,
)

MAX_NAMED = 6  # blocks or ports spelled out; an exception may leave hundreds of networks


def policy_text(key: tuple[str, str]) -> str:
    """One that is tried has the name it will have."""
    return "/".join(filter(None, key)).removesuffix(TRIED)


def tier_rule_text(policy: CompiledPolicy, direction: Direction, number: int) -> str:
    """`Admin guard egress[0] "no metadata" (Deny to 169.254.0.0/16: everything)`"""
    rule = (policy.rules(direction) or ())[number]
    name = f' "{rule.name}"' if rule.name else ""
    where = f"{policy.tier} {policy_text(policy.key)} {direction}[{number}]{name}"
    return f"{where} ({rule.action} {rule_text(rule, direction)})"


def group_text(group: GroupId) -> str:
    if group.namespace == NODES:
        return f"nodes {group.pods}" if group.pods else "all nodes"
    pods = f"pods {group.pods}" if group.pods else "all pods"
    if group.namespace:
        return f"{pods} of namespace {group.namespace}"
    if group.namespaces:
        return f"{pods} of namespaces {group.namespaces}"
    return f"{pods} of all namespaces"


def peers_text(peers: Peers) -> str:
    if peers.anywhere:
        return "anywhere"
    return _listed([*map(group_text, peers.groups), *map(str, peers.blocks)]) or "nobody"


def ports_text(rule: Rule) -> str:
    return "everything" if rule.any_port else _listed([*map(_range_text, rule.ports), *map(_named_text, rule.named)])


def rule_text(rule: Rule, direction: Direction) -> str:
    return f"{'from' if direction == 'ingress' else 'to'} {peers_text(rule.peers)}: {ports_text(rule)}"


def _range_text(ports: PortRange) -> str:
    if (ports.first, ports.last) == (0, 65535):
        return f"all {ports.protocol}"
    numbers = str(ports.first) if ports.first == ports.last else f"{ports.first}-{ports.last}"
    return f"{numbers}/{ports.protocol}"


def _named_text(port: NamedPort) -> str:
    return f"{port.name}/{port.protocol}"


def _listed(texts: list[str]) -> str:
    more = len(texts) - MAX_NAMED
    return ", ".join(texts[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
