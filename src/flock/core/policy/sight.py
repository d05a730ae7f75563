"""What a ClusterNetworkPolicy does while it is not known whom it means: closed is never wrong.  Pure.

Peers elsewhere are listed when policies of pods here come to mean them, and a listing may fail.  A NetworkPolicy, and
an Accept, only let in: who is not known is not let in yet.  But a Deny that misses somebody is open, and so may be a
Pass, behind which a lower tier denies.  So where such a rule has peers that are not seen, and are waited for no more,
it denies everybody, in the protocols it is about.  It keeps its groups, so that they go on being asked for.
"""

from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from flock.core.policy.cluster import ParsedClusterPolicy
from flock.core.policy.compiled import DIRECTIONS, CompiledPolicy, GroupId, PolicyKey, Rule
from flock.core.policy.compiled import Peers as RulePeers
from flock.core.policy.peers import Peers
from flock.core.policy.reach import Reach


class Sight:
    """`sees`: are all peers within that reach known, or will soon be?"""

    def __init__(self, peers: Peers, sees: Callable[[Reach], bool]) -> None:
        self.unseen: dict[PolicyKey, frozenset[GroupId]] = {}  # what policies in use do not see of whom they mean
        self._peers, self._sees = peers, sees
        self._reach: frozenset[Reach] = frozenset()  # as of the last look
        self._changed = False
        self._in_use = False  # some policy looks at all

    def change(self) -> None:
        """`sees` may answer otherwise from now on."""
        self._changed = True

    @property
    def is_settled(self) -> bool:
        """Would a look, with no policy touched, show what the last one did?"""
        return not self._changed and (not self._in_use or self._reach is self._peers.reach)

    def look(self, policies: Iterable[ParsedClusterPolicy], touched: Collection[PolicyKey]) -> set[PolicyKey]:
        """Of the policies in use, those that see otherwise than before.  `touched`: others than these look only when
        peers came into reach or into sight."""
        policies = list(policies)
        self._in_use = bool(policies or self.unseen)
        if not self._in_use:
            self._changed = False  # a policy that comes into use is touched, and looks
            return set()
        anew = self._changed or self._reach is not self._peers.reach
        self._reach, self._changed, before = self._peers.reach, False, self.unseen
        self.unseen = {}
        for policy in policies:
            look = anew or policy.key in touched
            if missed := self._missed(policy) if look else before.get(policy.key):
                self.unseen[policy.key] = missed
        return {key for key in before.keys() | self.unseen.keys() if before.get(key) != self.unseen.get(key)}

    def shut(self, policy: ParsedClusterPolicy) -> ParsedClusterPolicy:
        """As it is in force."""
        unseen = self.unseen.get(policy.key)
        return replace(policy, compiled=shut(policy.compiled, unseen)) if unseen else policy

    def _missed(self, policy: ParsedClusterPolicy) -> frozenset[GroupId]:
        groups = {group for rule in _deciding(policy.compiled) for group in rule.peers.groups}
        return frozenset(g for g in groups if not self._sees(self._peers.reach_of(g, policy.groups[g])))


def shut(policy: CompiledPolicy, unseen: Collection[GroupId]) -> CompiledPolicy:
    """What it denies or passes on by such groups, it denies to everybody."""
    rules = {direction: _shut(policy.rules(direction), unseen) for direction in DIRECTIONS}
    return replace(policy, **rules)


def _deciding(policy: CompiledPolicy) -> Iterable[Rule]:
    return (rule for d in DIRECTIONS for rule in policy.rules(d) or () if rule.action != "Accept")


def _shut(rules: tuple[Rule, ...] | None, unseen: Collection[GroupId]) -> tuple[Rule, ...] | None:
    return rules and tuple(_shut_rule(rule) if _misses(rule, unseen) else rule for rule in rules)


def _misses(rule: Rule, unseen: Collection[GroupId]) -> bool:
    return rule.action != "Accept" and not set(unseen).isdisjoint(rule.peers.groups)


def _shut_rule(rule: Rule) -> Rule:
    """A port by name is another one on every pod, and with the pods that is not known either."""
    everybody = replace(rule, action="Deny", peers=RulePeers(anywhere=True, groups=rule.peers.groups))
    return replace(everybody, any_port=True, ports=(), named=()) if rule.named else everybody
