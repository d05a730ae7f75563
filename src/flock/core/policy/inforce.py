"""The policies that isolate a pod of this node, as they are in force: as they say, or closed where there is no room.

To find out that there is no room costs what the policy's selectors mean, and a namespace may have hundreds of such
policies.  So who was refused is remembered with the version that was, and tried again when its namespace gave room
back; after a few failures the others of that namespace are closed untried, and `again` names them, for their turn.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from flock.core.policy.budget import Budgets
from flock.core.policy.cluster import ParsedClusterPolicy
from flock.core.policy.compiled import ALL_PODS, CompiledPolicy, PolicyKey, closed_form
from flock.core.policy.parse import ParsedPolicy
from flock.core.policy.peers import Peers
from flock.core.policy.reading import EVERYTHING, PeerSelector
from flock.core.policy.rosters import Audience, Entry, Rosters, audiences

Parsed = ParsedPolicy | ParsedClusterPolicy
EVERY_POD = PeerSelector(EVERYTHING, EVERYTHING)
FAILURES = 2  # of a namespace in one commit: each has gone through up to as many members as a policy may have


class InForce:
    """`own_ports`: the entries this node's own pods have in such an audience."""

    def __init__(self, rosters: Rosters, peers: Peers, own_ports: Callable[[Audience], Iterable[Entry]]) -> None:
        self.policies: dict[PolicyKey, CompiledPolicy] = {}  # as of the last commit
        self.again: set[PolicyKey] = set()  # refused, and would be tried if that took no time
        self._rosters = rosters
        self._peers = peers
        self._own_ports = own_ports
        self._budgets = Budgets()
        self._refused: dict[PolicyKey, tuple[Parsed, str]] = {}  # which version, and why; in use or not
        self._failures: Counter[str] = Counter()  # by namespace, in this commit
        self._roomier: set[str] = set()  # namespaces of which something was put down in this commit
        self._grown = False  # groups may have more members than were counted

    @property
    def problems(self) -> dict[PolicyKey, str]:
        return self._budgets.problems

    @property
    def is_settled(self) -> bool:
        """Nothing is to be counted again with the next commit."""
        return not self._grown

    def forget(self, key: PolicyKey) -> None:
        """The policy is no more; it is put down with the next commit."""
        self._budgets.forget(key)
        self._refused.pop(key, None)
        self.again.discard(key)

    def try_again(self, key: PolicyKey) -> bool:
        """With the next commit.  False if there is nothing to try."""
        self.again.discard(key)
        return self._refused.pop(key, None) is not None

    def recount(self) -> None:
        """Members of groups became known who were not when policies were taken up: with the next commit."""
        self._grown = True

    def commit(
        self, touched: Collection[PolicyKey], wanted: Callable[[PolicyKey], Parsed | None], *, pods: int
    ) -> tuple[list[CompiledPolicy], list[PolicyKey]]:
        """Those that changed, and those no longer in use.  `wanted`: None if it is not to be.  `pods`: how many the
        cluster has."""
        before = {key: self.policies.get(key) for key in touched}
        for key in sorted(touched):
            self._change(key, wanted(key), pods)
        for key in sorted(key for key in self._refused if key[0] in self._roomier and key in self.policies):
            if self._failures[key[0]] >= FAILURES:
                self.again.add(key)
                continue
            before.setdefault(key, self.policies[key])
            policy, _ = self._refused.pop(key)
            self._change(key, policy, pods)
        if self._grown:
            self._grown = False
            for key, policy in sorted((key, found) for key in self.policies if (found := wanted(key)) is not None):
                old = self.policies[key]
                if not old.closed and not self._still_fits(policy, pods):
                    before.setdefault(key, old)
        self._failures.clear()
        self._roomier.clear()
        changed = [self.policies[key] for key in sorted(before) if self.policies.get(key) not in (None, before[key])]
        return changed, sorted(key for key, old in before.items() if old is not None and key not in self.policies)

    def _change(self, key: PolicyKey, policy: Parsed | None, pods: int) -> None:
        old = self.policies.get(key)
        if (policy.compiled if policy else None) == old:
            return
        known = self._refused.get(key)
        if old is not None and known is not None and known[0] is policy:
            return
        if old is not None and not old.closed:
            self._budgets.put_down(old)
            self._roomier.add(key[0])
        if policy is None:
            del self.policies[key]
            self._budgets.forget(key)
        else:
            self.policies[key] = self._take_up(policy, pods)
        for audience in audiences(old):
            self._rosters.release(audience)

    def _take_up(self, policy: Parsed, pods: int) -> CompiledPolicy:
        """With its groups; its closed form where that is more than this node has room for, or may be."""
        key = policy.key
        known = self._refused.pop(key, None)
        if known is not None and known[0] is policy:
            self._refuse_untried(policy, known[1])
        elif self._failures[key[0]] >= FAILURES:
            self._refuse_untried(policy, "spec: not tried yet, as others of its namespace have no room on this node")
        elif self._budgets.take_up(policy.compiled):
            if self._hold_all(policy, pods):
                return policy.compiled
            self._budgets.put_down(policy.compiled)
            self._failures[key[0]] += 1
        self._refused[key] = policy, self._budgets.problems[key]
        return closed_form(policy.compiled, self._budgets.problems[key])

    def _refuse_untried(self, policy: Parsed, reason: str) -> None:
        self._budgets.problems[policy.key] = reason
        self.again.add(policy.key)

    def _hold_all(self, policy: Parsed, pods: int) -> bool:
        held: dict[Audience, int] = {}
        for audience in audiences(policy.compiled):
            self._hold(audience, policy)
            held[audience] = self._rosters.size(audience)
            if not self._budgets.hold(policy.key, held, pods=pods):
                for other in held:
                    self._rosters.release(other)
                return False
        return True

    def _still_fits(self, policy: Parsed, pods: int) -> bool:
        key, needed = policy.key, audiences(policy.compiled)
        sizes = {audience: self._rosters.size(audience) for audience in needed}
        if self._budgets.hold(key, sizes, pods=pods, anew=True):
            return True
        self._budgets.put_down(policy.compiled)
        self._refused[key] = policy, self._budgets.problems[key]
        self.policies[key] = closed_form(policy.compiled, self._budgets.problems[key])
        for audience in needed:
            self._rosters.release(audience)
        return False

    def _hold(self, audience: Audience, policy: Parsed) -> None:
        group, port = audience
        if not self._rosters.hold(audience):
            return
        if group is None:
            self._rosters.add(audience, list(self._own_ports(audience)))
        else:
            self._peers.follow(group, port, {ALL_PODS: EVERY_POD, **policy.groups})
