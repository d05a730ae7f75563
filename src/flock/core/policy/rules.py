"""A policy's rules as lines of an nft chain, and the classes pods are judged by.

The same rules come in two views.  Usually a packet is judged as the first of its connection: the peer of an ingress
rule is the source, the port the destination's.  Where a connection is to be judged again and only its answers are seen,
the rules are read backwards: the peer of an ingress rule is where the answer goes, the port where it comes from.

Peers are matched once and ports once: where a rule has several of both, each peer jumps to a chain with the ports, so
that a policy comes to as many lines as it has entries, and never to their product.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Literal, NamedTuple

from flock.core.policy import crowds, names
from flock.core.policy.compiled import Address, CompiledPolicy, Direction, PolicyKey, PortRange, Rule, named_audiences
from flock.core.policy.crowds import Together
from flock.core.policy.dropping import ITSELF, logged_drop

Kind = Literal["ingress", "egress", "ingress-replies", "egress-replies"]
FEW = 4  # lines that may stay together where a chain for the ports would only be one jump more
REPLIES: dict[Direction, Kind] = {"ingress": "ingress-replies", "egress": "egress-replies"}


class View(NamedTuple):
    """Which fields of a packet a rule means."""

    direction: Direction
    peer: str  # address of the other side
    server: str  # address of the side that was connected to
    own: str  # the interface of the subject
    port: str


VIEWS: dict[Kind, View] = {
    "ingress": View("ingress", peer="saddr", server="daddr", own="oifname", port="dport"),
    "egress": View("egress", peer="daddr", server="daddr", own="iifname", port="dport"),
    "ingress-replies": View("ingress", peer="daddr", server="saddr", own="iifname", port="sport"),
    "egress-replies": View("egress", peer="saddr", server="saddr", own="oifname", port="sport"),
}


class Class(NamedTuple):
    """Pods that are isolated by the same policies are judged by one chain."""

    kind: Kind
    policies: tuple[PolicyKey, ...]

    @property
    def chain(self) -> str:
        return names.class_chain(self.kind, self.policies)

    @property
    def is_crowd(self) -> bool:
        return len(self.policies) > crowds.MANY

    @property
    def comment(self) -> str:
        return names.policies_text(self.policies, names.LONGEST_COMMENT)

    def lines(self, together: Together | None = None) -> list[str]:
        """`together`: what policies say that are not asked one by one."""
        view = VIEWS[self.kind]
        direction, asked = view.direction, self.policies if together is None else together.apart
        shared = [line for rule in (together.rules if together else ()) for line in _multiplied(rule, view)]
        jumps = [f"jump {names.policy_chain(self.kind, policy)}" for policy in asked]
        return [
            ITSELF,
            *(f"{line} accept".lstrip() for line in shared),
            *jumps,
            *logged_drop(names.log_prefix(direction, self.policies), f"{direction}-drops"),
        ]


def policy_chains(policy: CompiledPolicy | None, kind: Kind, key: PolicyKey) -> dict[str, list[str]]:
    """The policy's chain, which is first, and those of its rules that have one for their ports."""
    view, chain = VIEWS[kind], names.policy_chain(kind, key)
    found: dict[str, list[str]] = {chain: []}
    for position, rule in enumerate(getattr(policy, view.direction) or ()):
        comment = f'comment "{view.direction} rule {position}"'
        peers, ports = list(_peers(rule, view.peer)), list(_port_matches(rule, view))
        if min(len(peers), len(ports)) > 1 and len(peers) * len(ports) > FEW:
            found[f"{chain}/{position}"] = [f"{port} accept {comment}" for port in ports]
            found[chain] += [f"{peer} jump {chain}/{position} {comment}" for peer in peers]
        else:
            found[chain] += [f"{match} accept {comment}".lstrip() for match in _multiplied(rule, view)]
        found[chain] += [f"{match} accept {comment}" for match in _named_destinations(rule, view)]
    return found


def _multiplied(rule: Rule, view: View) -> Iterator[str]:
    for peer in _peers(rule, view.peer):
        for port in _port_matches(rule, view):
            yield " ".join(filter(None, (peer, port)))


def _port_matches(rule: Rule, view: View) -> Iterator[str]:
    if rule.any_port:
        yield ""
    yield from _ports(rule.ports, view.port)
    for port in rule.named if view.direction == "ingress" else ():
        yield f"{view.own} . {port.protocol.lower()} {view.port} @{names.port_set(None, port, 0)}"


def _named_destinations(rule: Rule, view: View) -> Iterator[str]:
    """Peer and port at once."""
    for group, port in named_audiences(rule, "egress") if view.direction == "egress" else ():
        for ip, version in (("ip6", 6), ("ip", 4)):
            where = f"{ip} {view.server} . {port.protocol.lower()} {view.port}"
            yield f"{where} @{names.port_set(group, port, version)}"


def _peers(rule: Rule, field: str) -> Iterator[str]:
    if rule.peers.anywhere:
        yield ""
        return
    for group in rule.peers.groups:
        yield f"ip6 {field} @{names.group_set(group, 6)}"
        yield f"ip {field} @{names.group_set(group, 4)}"
    for ip, version in (("ip6", 6), ("ip", 4)):
        blocks = [block for block in rule.peers.blocks if block.version == version]
        if any(block.is_everything for block in blocks):
            yield f"meta nfproto ipv{version}"
        elif blocks:
            yield f"{ip} {field} {{ {', '.join(map(str, blocks))} }}"


def _ports(ranges: tuple[PortRange, ...], field: str) -> Iterator[str]:
    for protocol, group in groupby(ranges, lambda r: r.protocol.lower()):
        numbers = [(r.first, r.last) for r in group]
        if (0, 65535) in numbers:
            yield f"meta l4proto {protocol}"
        else:
            texts = [f"{first}" if first == last else f"{first}-{last}" for first, last in numbers]
            yield f"{protocol} {field} {{ {', '.join(texts)} }}"


def version_of(address: Address | str) -> int:
    """0 for an interface."""
    return 0 if isinstance(address, str) else address.version
