"""Does somebody else's packet filter drop what pods send or are sent?  Pure, over rules as `nft -j` tells them.

Every base chain at the hook `forward` sees a pod's packet, and one that drops is enough: what another accepts does not
help.  A packet to begin a connection is walked through each, in both directions: a rule whose conditions all hold
decides; one that depends on what is not known here (ports, marks, extensions of iptables) is passed over, since it
speaks of some packets and not of pods as such.  What is left is decided by the chain's last word or its policy.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import ip_network
from typing import Any

import msgspec

from flock.core.facts import Network

DEEPEST = 16  # jumps; the kernel's own bound
PODS = "flock00000000"  # as the host's end of any pod's link may be called
Rules = Callable[[str], Sequence[dict[str, Any]]]  # of a chain, by its name
_SPEAKING = frozenset({"accept", "drop", "reject", "return", "jump", "goto"})


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """A base chain of somebody else at the hook `forward`."""

    family: str  # ip, ip6, inet
    table: str
    name: str
    drops: bool  # by policy

    def __str__(self) -> str:
        return f"{self.family} {self.table} {self.name}"


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """`handle` of the rule that decides, 0 if it is the chain's policy; `where`: the chain that has it."""

    chain: Chain
    where: str
    handle: int
    sent: bool  # what pods send is dropped
    received: bool  # what they are sent is

    @property
    def whose(self) -> str:
        if self.chain.table == "firewalld":
            return "firewalld"
        return "iptables" if self.chain.table == "filter" and self.chain.family in ("ip", "ip6") else "nft"


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """The same in words: the rule as `nft` or `iptables-save` has it, and whose chain that is."""

    whose: str  # nft, iptables, ufw, firewalld, iptables-legacy
    chain: str
    rule: str
    sent: bool = True
    received: bool = True

    def __str__(self) -> str:
        which = "send or are sent" if self.sent and self.received else "send" if self.sent else "are sent"
        return f"the chain {self.chain} of {self.whose} drops what pods {which}: {self.rule}"

    def concerns(self, address: str, *, sent: bool, received: bool) -> bool:
        """A packet of that address' family that a pod of this node sends, or is sent, over a forwarding node."""
        other = "ip" if ":" in address else "ip6"
        return not self.chain.startswith(f"{other} ") and ((sent and self.sent) or (received and self.received))


class _Packet(msgspec.Struct, frozen=True):
    from_pod: bool
    network: Network


def dropped(chain: Chain, rules: Rules, aggregates: Iterable[Network]) -> Dropped | None:
    """None if nothing there drops pods' packets as such."""
    versions = {"ip": (4,), "ip6": (6,), "inet": (4, 6)}[chain.family]
    found: dict[bool, tuple[str, int]] = {}
    for network in aggregates:
        for from_pod in (True, False):
            if network.version in versions and from_pod not in found:
                word = _walk(chain.name, rules, _Packet(from_pod, network), DEEPEST) or ("", chain.name, 0)
                if word[0] == "drop" or (not word[0] and chain.drops):
                    found[from_pod] = word[1:]
    if not found:
        return None
    where, handle = next(iter(found.values()))
    return Dropped(chain=chain, where=where, handle=handle, sent=True in found, received=False in found)


def _walk(chain: str, rules: Rules, packet: _Packet, left: int) -> tuple[str, str, int] | None:
    """The word of the rule that decides, its chain and its handle; None at the chain's end."""
    if not left:
        return None
    for rule in rules(chain):
        statements = rule.get("expr", ())
        if not all(_holds(statement, packet) for statement in statements):
            continue
        word, target = next(_words(statements), ("", ""))
        if word in ("accept", "drop", "reject"):
            return ("accept" if word == "accept" else "drop", chain, rule.get("handle", 0))
        if word in ("jump", "goto") and (decided := _walk(target, rules, packet, left - 1)):
            return decided
        if word in ("return", "goto"):
            return None
    return None


def _words(statements: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for statement in statements:
        for word in _SPEAKING & statement.keys():
            yield word, (statement[word] or {}).get("target", "") if word in ("jump", "goto") else ""


def _holds(statement: dict[str, Any], packet: _Packet) -> bool:
    """For this packet, for certain.  What only counts, logs or decides always does."""
    if "match" in statement:
        match = statement["match"]
        holds = _compare(match["left"], match["right"], packet)
        return holds is not None and holds != (match["op"] == "!=")
    return bool(statement.keys() & (_SPEAKING | {"counter", "log", "comment"}))


def _compare(left: Any, right: Any, packet: _Packet) -> bool | None:
    """None: it depends."""
    values = right["set"] if isinstance(right, dict) and "set" in right else right
    values = values if isinstance(values, list) else [values]
    kind, what = next(iter(left.items())) if isinstance(left, dict) and left else ("", {})
    key = what.get("key", "") if isinstance(what, dict) else ""
    if (kind, key) == ("ct", "state"):
        return "new" in values
    if (kind, key) == ("meta", "nfproto"):
        return f"ipv{packet.network.version}" in values
    if kind == "meta" and key in ("iifname", "oifname"):
        return _interface(values, is_pods=(key == "iifname") == packet.from_pod)
    if kind == "payload" and what.get("field") in ("saddr", "daddr"):
        if what.get("protocol") != ("ip6" if packet.network.version == 6 else "ip"):
            return False
        return _covered(values, packet.network) if (what["field"] == "saddr") == packet.from_pod else None
    return None


def _interface(names: list[Any], *, is_pods: bool) -> bool | None:
    """A name, or the beginning of names.  Of an uplink no more is known than that it is no pod's."""
    told = [name for name in names if isinstance(name, str)]
    of_pods = [name.endswith("*") and PODS.startswith(name[:-1]) for name in told]
    if is_pods:
        return any(of_pods)
    return False if told and all(of_pods) and "*" not in told else None


def _covered(values: list[Any], network: Network) -> bool | None:
    found = [prefix for value in values if (prefix := _network(value)) is not None]
    if any(prefix.version == network.version and network.subnet_of(prefix) for prefix in found):  # type: ignore[arg-type]
        return True
    return None if any(prefix.overlaps(network) for prefix in found) or len(found) < len(values) else False


def _network(value: Any) -> Network | None:
    try:
        if isinstance(value, dict) and "prefix" in value:
            return ip_network(f"{value['prefix']['addr']}/{value['prefix']['len']}", strict=False)
        return ip_network(value)
    except (ValueError, TypeError, KeyError):
        return None
