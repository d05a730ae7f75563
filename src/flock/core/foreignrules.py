"""Does somebody else's packet filter drop what pods send or are sent?  Pure, over rules as the kernel keeps them.

Every base chain on a packet's way (before it is routed, where it is forwarded, after that) sees it, and one that drops
is enough: what another accepts does not help.  The first packet of a connection is walked through each, in the order of
hooks and priorities: to somebody beyond an uplink, from there, and between pods.  A rule that holds for all such
packets decides.  One that depends on more than is known of them (ports, single addresses) is passed over, since it
speaks of some packets and not of pods as such.  What is left is decided by the chain's last word or its policy.

Passed over, and remembered: a rule that accepts what pods exchange with some others, and names pods, was made by
somebody who thought of them, so that what drops the rest is meant; and one that nobody here understands leaves open
what becomes of the packet.  Either way nothing is claimed; the latter is said.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from flock.core.facts import Network
from flock.core.foreign.extensions import OTHERS, PUZZLE, RATE
from flock.core.foreign.matches import ENDING, Decide, Outcome, Rule, Sets, judged
from flock.core.foreign.packet import UNKNOWN, Link, Packet, Way, far, packet

DEEPEST = 16  # jumps; the kernel's own bound
STEPS = 4096  # rules that a packet is held against: chains may be jumped to again and again
HOOKS = ("prerouting", "forward", "postrouting")
VERSIONS = {"ip": (4,), "ip6": (6,), "inet": (4, 6)}


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """A base chain of somebody else."""

    family: str  # ip, ip6, inet
    table: str
    name: str
    drops: bool  # by policy
    hook: str = "forward"
    priority: int = 0

    def __str__(self) -> str:
        return f"{self.family} {self.table} {self.name}"


class Chapter(msgspec.Struct, frozen=True):
    """What there is to be read of one chain."""

    rules: tuple[Rule, ...] = ()
    whole: bool = True  # there are no more


class Table(msgspec.Struct, frozen=True):
    """How chains and sets of a table are read, by their names."""

    chapter: Callable[[str], Chapter]
    sets: Sets


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """`handle` of the rule that decides, 0 if it is the chain's policy; `where`: the chain that has it."""

    chain: Chain
    where: str
    handle: int
    sent: bool  # what pods send is dropped
    received: bool  # what they are sent is
    between: bool  # what pods of this node send each other is

    @property
    def whose(self) -> str:
        if self.chain.table == "firewalld":
            return "firewalld"
        return "iptables" if self.chain.table == "filter" and self.chain.family in ("ip", "ip6") else "nft"


class Unclear(msgspec.Struct, frozen=True, kw_only=True):
    """Whether this chain drops pods' packets depends on something that cannot be read."""

    chain: Chain
    where: str
    puzzle: str

    def __str__(self) -> str:
        return f"the chain {self.chain} may drop what pods send or are sent: {self.puzzle} (in {self.where})"


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """The same in words: the rule as `nft` or `iptables-save` has it, and whose chain that is."""

    whose: str  # nft, iptables, ufw, firewalld, iptables-legacy
    chain: str
    rule: str
    sent: bool = True
    received: bool = True
    between: bool = True
    hook: str = "forward"

    def __str__(self) -> str:
        if self.sent or self.received:
            which = "send or are sent" if self.sent and self.received else "send" if self.sent else "are sent"
        else:
            which = "of this node send each other"
        return f"the chain {self.chain} of {self.whose} drops what pods {which}: {self.rule}"

    def concerns(self, address: str, *, sent: bool, received: bool) -> bool:
        """A packet of that address' family that a pod of this node sends, or is sent, over a forwarding node."""
        other = "ip" if ":" in address else "ip6"
        drops = self.between if sent and received else (sent and self.sent) or (received and self.received)
        return not self.chain.startswith(f"{other} ") and drops


class _End(msgspec.Struct, frozen=True):
    """What became of a packet in one chain."""

    verdict: str  # accept, drop; empty at the chain's end
    where: str
    handle: int
    packet: Packet


class _Puzzle(msgspec.Struct, frozen=True):
    where: str
    what: str
    would: str  # accept, drop; empty: either


class _Walk:
    """One packet through one base chain."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._left = STEPS
        self.puzzles: list[_Puzzle] = []
        self.is_meant = False

    def through(self, name: str, asking: Packet, deeper: int = DEEPEST) -> _End:
        chapter = self._table.chapter(name)
        for rule in chapter.rules:
            self._left -= 1
            if self._left < 0 or not deeper:
                self.puzzles.append(_Puzzle(name, "more jumps than are followed", ""))
                break
            found = self._judged(rule, asking)
            if found.holds is False:
                continue
            verdict, target = (found.decided.verdict, found.decided.target) if found.decided else ("", "")
            asking = found.packet
            if found.holds is None and not self._counts(found, verdict, name):
                continue
            if verdict == "queue":
                self.puzzles.append(_Puzzle(name, "a program decides", ""))
            if verdict in ENDING:
                return _End("drop" if verdict == "drop" else "accept", name, rule.handle, asking)
            if verdict in ("jump", "goto"):
                inner = self.through(target, asking, deeper - 1)
                asking = inner.packet
                if inner.verdict:
                    return inner
            if verdict in ("return", "goto"):
                return _End("", name, 0, asking)
        if not chapter.whole:
            self.puzzles.append(_Puzzle(name, "it has more rules than are read", _kind(chapter)))
        return _End("", name, 0, asking)

    def _judged(self, rule: Rule, asking: Packet) -> Outcome:
        """A rule that holds for all the world but some holds; if it names pods, somebody thought of those."""
        found = judged(rule.steps, asking, self._table.sets)
        if found.holds is not None or OTHERS not in found.doubts or not found.doubts <= {OTHERS, RATE}:
            return found
        tried = [judged(rule.steps, one, self._table.sets) for one in far(asking)]
        certain = [one for one in tried if one.holds is not False and one.doubts <= {RATE}]
        if not tried or any(one.decided != tried[0].decided for one in tried) or len(certain) < len(tried):
            return found
        self.is_meant |= found.names_pods and tried[0].decided == Decide("drop")
        doubts = found.doubts - {OTHERS}
        return msgspec.structs.replace(found, holds=None if doubts else True, decided=tried[0].decided, doubts=doubts)

    def _counts(self, found: Outcome, verdict: str, name: str) -> bool:
        """It holds for some: if that is about how many, for those that come first, and whom it lets pass it does."""
        if found.doubts <= {RATE}:
            return verdict in ("accept", "return")
        if PUZZLE in found.doubts and verdict:
            self.puzzles.append(_Puzzle(name, found.puzzle, verdict if verdict in ("accept", "drop") else ""))
        self.is_meant |= found.names_pods and found.doubts <= {OTHERS, RATE} and verdict == "accept"
        return False


def _kind(chapter: Chapter) -> str:
    """What is not read is taken to be like what is: kube-proxy has a rule that drops for each Service."""
    decided = {step.verdict for rule in chapter.rules for step in rule.steps if isinstance(step, Decide)}
    return "drop" if decided == {"drop"} else ""


def dropped(
    chains: Iterable[Chain],
    tables: Mapping[tuple[str, str], Table],
    aggregates: Sequence[Network],
    uplinks: Mapping[int, Sequence[Link]],
) -> tuple[list[Dropped], list[Unclear]]:
    """By chain.  `uplinks` by version: what is dropped on one of them is; with none it is not known which it is."""
    order = sorted(chains, key=lambda chain: (HOOKS.index(chain.hook), chain.priority))
    tried = _Tried(tables)
    for network in aggregates:
        links = uplinks.get(network.version) or (UNKNOWN,)
        for way in Way:
            for link in links if way is not Way.BETWEEN else links[:1]:
                asking = packet(way, network, aggregates=aggregates, uplink=link)
                for chain in order:
                    if network.version in VERSIONS[chain.family]:
                        asking = tried.follow(chain, asking)
    found = [told for chain in order if (told := tried.told(chain)) is not None]
    dropping = {told.chain for told in found}
    return found, [told for chain, told in tried.unclear.items() if chain not in dropping]


class _Tried:
    """What became of all packets, by chain and way."""

    def __init__(self, tables: Mapping[tuple[str, str], Table]) -> None:
        self._tables = tables
        self._dropping: dict[tuple[Chain, Way], _End] = {}
        self.unclear: dict[Chain, Unclear] = {}

    def follow(self, chain: Chain, asking: Packet) -> Packet:
        """The packet as it leaves the chain, whatever that said: the next one is asked as well."""
        walk = _Walk(self._tables[chain.family, chain.table])
        end = walk.through(chain.name, asking.at(chain.hook))
        drops = end.verdict == "drop" or (not end.verdict and chain.drops)
        puzzle = next((puzzle for puzzle in walk.puzzles if puzzle.would != ("drop" if drops else "accept")), None)
        if puzzle is not None:
            self.unclear.setdefault(chain, Unclear(chain=chain, where=puzzle.where, puzzle=puzzle.what))
        if drops and puzzle is None and not walk.is_meant:
            self._dropping.setdefault((chain, asking.way), end)
        return msgspec.structs.replace(end.packet, names=asking.names, indexes=asking.indexes)

    def told(self, chain: Chain) -> Dropped | None:
        drops = {way: self._dropping.get((chain, way)) for way in Way}
        first = next((end for end in drops.values() if end is not None), None)
        if first is None:
            return None
        return Dropped(
            chain=chain,
            where=first.where if first.verdict else chain.name,
            handle=first.handle if first.verdict else 0,
            **{way.value: end is not None for way, end in drops.items()},
        )
