"""What a policy puts into the kernel of a node, and how much a policy and a namespace may.

Sets are dearest: the kernel and `nft` look for each by walking all of them, so a thousand take a tenth of a second to
make and four thousand more than one.  What is beyond a bound is closed: it isolates and allows nothing.  Only the
namespace that asks for too much is worse off.
"""

from collections import Counter
from collections.abc import Mapping

from flock.core.policy.compiled import CompiledPolicy, PolicyKey
from flock.core.policy.rosters import Audience, audiences

POD_POLICIES = 2000  # that select one pod; the rest, by name, allow it nothing.  Each is a jump in every class it is in
POLICY_SETS = 512  # 256 different selectors; real policies have a few
NAMESPACE_SETS = 4096  # two thousand different selectors; the largest namespaces we know of have hundreds
NAMESPACE_LINES = 32768  # rules, and blocks and ports in them
# Addresses of pods that selectors mean, each counted for each of them: every pod of a large cluster twice, in both
# families, and in a small one enough for dozens of selectors that mean everybody.  10,000 take a tenth of a second.
POLICY_MEMBERS = 16384
MEMBERS_PER_POD = 4
NAMESPACE_POLICIES = 2  # so many times that for all of a namespace, where equal selectors count once


def sets_of(audience: Audience) -> int:
    """One by interface for this node's own pods, else one for each family."""
    return 1 if audience[0] is None else 2


def sets(policy: CompiledPolicy) -> int:
    """At most, and without going through peers times names, of which there may be too many to do so."""
    groups = {group for rules in (policy.ingress, policy.egress) for rule in rules or () for group in rule.peers.groups}
    own = {port for rule in policy.ingress or () for port in rule.named}
    pairs = sum(max(len(rule.peers.groups), 1) * len(rule.named) for rule in policy.egress or ())
    return 2 * len(groups) + len(own) + 2 * pairs


def lines(policy: CompiledPolicy) -> int:
    """Of its chains, and one for each of these."""
    rules = [rule for rules in (policy.ingress, policy.egress) for rule in rules or ()]
    chains = (policy.ingress is not None) + (policy.egress is not None)
    return chains + sum(2 * len(r.peers.groups) + len(r.peers.blocks) + len(r.ports) + len(r.named) + 1 for r in rules)


def effort(policy: CompiledPolicy) -> int:
    """To read it and put it into force, in sets: as long as one takes, ten lines do."""
    return sets(policy) + lines(policy) // 10


class Budgets:
    """What the policies in use come to, by namespace, and why some of them do not fit."""

    def __init__(self) -> None:
        self.problems: dict[PolicyKey, str] = {}
        self._sets: dict[str, Counter[Audience]] = {}
        self._spent: Counter[str] = Counter()  # sets
        self._lines: Counter[str] = Counter()
        self._members: dict[str, Counter[Audience]] = {}  # as of when they were taken up

    def take_up(self, policy: CompiledPolicy) -> bool:
        """Whether there is room for the policy; then it counts until it is put down."""
        namespace, used = policy.key[0], self._sets.setdefault(policy.key[0], Counter())
        wanted = audiences(policy)
        more = sum(sets_of(audience) for audience in wanted if not used[audience])
        if self._spent[namespace] + more > NAMESPACE_SETS:
            self.refuse(policy.key, f"the selectors and named ports of its namespace's policies, {NAMESPACE_SETS} sets")
            return False
        if self._lines[namespace] + lines(policy) > NAMESPACE_LINES:
            self.refuse(policy.key, f"the rules of its namespace's policies, {NAMESPACE_LINES} in all")
            return False
        self.problems.pop(policy.key, None)
        self._spent[namespace] += more
        self._lines[namespace] += lines(policy)
        used.update(wanted)
        return True

    def hold(self, key: PolicyKey, sizes: Mapping[Audience, int], *, pods: int, anew: bool = False) -> bool:
        """Whether there is room for the members of what a policy that was taken up needs.  `pods`: all that are known.
        `anew`: whatever was counted before."""
        most = max(POLICY_MEMBERS, MEMBERS_PER_POD * pods)
        of_namespace = self._members.setdefault(key[0], Counter())
        for audience, size in sizes.items():
            if anew or audience not in of_namespace:
                of_namespace[audience] = size
        if sum(sizes.values()) <= most and of_namespace.total() <= NAMESPACE_POLICIES * most:
            return True
        self.refuse(key, f"the addresses selectors mean: {most}, or {NAMESPACE_POLICIES} times that for a namespace")
        return False

    def put_down(self, policy: CompiledPolicy | None) -> None:
        if policy is None or policy.closed:
            return
        namespace = policy.key[0]
        used = self._sets[namespace]
        used.subtract(audiences(policy))
        for audience in [audience for audience, count in used.items() if count <= 0]:
            self._spent[namespace] -= sets_of(audience)
            self._members.get(namespace, Counter()).pop(audience, None)
            del used[audience]
        self._lines[namespace] -= lines(policy)

    def refuse(self, key: PolicyKey, what: str) -> None:
        self.problems[key] = f"spec: no room on this node for {what}"

    def forget(self, key: PolicyKey) -> None:
        self.problems.pop(key, None)
