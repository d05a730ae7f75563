"""Everything policies depend on, kept compiled: objects in one by one, `Change` out at each commit.

    set_policy, set_cluster_policy, set_namespace, set_node, set_pod, set_local, drop_...
        ──▶ (what is touched is noted) ──▶ commit() ──▶ Change

Which policies select a pod of this node is kept up with every event.  The rest waits for the commit: a subject that was
touched gets its verdicts anew, a policy comes into use (`inuse`) with the first subject it isolates and brings its
groups along (`peers`, `rosters`), and leaves with the last.  So an event costs what it changes, and policies of pods
elsewhere cost their parsing.

A pod of this node whose Pod object is known has that object's labels, ports and phase, and the addresses of the store;
it is then not counted a second time as a pod of the cluster.  Where nobody knows its labels yet, every policy of its
namespace isolates it and none allows it anything.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from flock.core.policy.cluster import ParsedClusterPolicy, read_cluster_policy
from flock.core.policy.compiled import NODES, TRIED, Address, Change, Compiled, Endpoint, PolicyKey, Subject
from flock.core.policy.crowds import Crowds
from flock.core.policy.inforce import InForce, Parsed
from flock.core.policy.labels import Effort, Labels, Objects
from flock.core.policy.parse import ParsedPolicy, read_policy
from flock.core.policy.peers import UNKNOWN, Peers
from flock.core.policy.podfacts import Local, LocalPod, PodFacts, same_pod
from flock.core.policy.reach import Reach
from flock.core.policy.rosters import Audience, Entry, Rosters
from flock.core.policy.selecting import NetworkPolicies
from flock.core.policy.sight import Sight
from flock.core.policy.subjects import Subjects
from flock.core.policy.tiers import ClusterPolicies
from flock.core.policy.verdicts import judged_pod

PodKey = tuple[str, str]  # namespace, name


class PolicyIndex:
    """`sees`: are all peers within that reach known, or will soon be (`sight`)?"""

    def __init__(self, sees: Callable[[Reach], bool] = lambda _: True) -> None:
        self.effort = Effort()
        self._owned = NetworkPolicies(self.effort)
        self._cluster = ClusterPolicies(self.effort)
        self._pods: dict[PodKey, PodFacts] = {}
        self._locals: dict[str, Local] = {}  # by interface
        self._interfaces: dict[PodKey, set[str]] = {}  # two for a moment, when a pod gets a new sandbox
        self._inhabitants: dict[str, set[str]] = {}  # interfaces by namespace
        self._labelled: Objects[str] = Objects()  # interfaces by label
        self._rosters = Rosters()
        self._peers = Peers(self._rosters, self.effort)
        self.sight = Sight(self._peers, sees)
        self._in_use = InForce(self._rosters, self._peers, self._own_entries)
        self._crowds = Crowds(self._rosters)
        self._touched_subjects: set[str] = set()
        self._touched_policies: set[PolicyKey] = set()
        self._subjects = Subjects(self._crowds)
        self._replaced: frozenset[PolicyKey] = frozenset()  # another version of these is being tried

    # --- what is known --------------------------------------------------------------------------------------

    @property
    def problems(self) -> Mapping[PolicyKey, str]:
        """Policies whose latest version is refused, and why.  In force is an older good one, else the closed form."""
        return {**self._owned.problems, **self._cluster.problems, **self._in_use.problems}

    def is_closed(self, key: PolicyKey) -> bool:
        """Is the policy in force, or would it be, only as its closed form?"""
        known = self._in_use.policies.get(key) or self.parsed(key).compiled
        return bool(known.closed)

    def parsed(self, key: PolicyKey) -> Parsed:
        """The version that counts."""
        return self.policies.get(key) or self._cluster.policies[key]

    @property
    def policies(self) -> Mapping[PolicyKey, ParsedPolicy]:
        return self._owned.policies

    @property
    def cluster_policies(self) -> Mapping[PolicyKey, ParsedClusterPolicy]:
        return self._cluster.policies

    @property
    def pods(self) -> Mapping[PodKey, PodFacts]:
        return self._pods

    @property
    def locals(self) -> Mapping[str, Local]:
        return self._locals

    def is_here(self, pod: PodKey) -> bool:
        return pod in self._interfaces

    @property
    def spent(self) -> int:
        """What events have cost so far: selectors compared, and members of groups that came and went."""
        return self.effort.comparisons + self._rosters.moves

    @property
    def reach(self) -> frozenset[Reach]:
        """Of the policies that isolate a pod of this node, as of the last commit."""
        return self._peers.reach

    def reach_of(self, cluster_policy: Mapping[str, Any]) -> frozenset[Reach]:
        """How far it would reach, were it taken; nowhere, where nobody here is its subject."""
        parsed = read_cluster_policy(cluster_policy)
        if not any(self._cluster.means(parsed.subject, pod, self._peers.labels_of) for pod in self._locals.values()):
            return frozenset()
        return frozenset(self._peers.reach_of(group, selector) for group, selector in parsed.groups.items())

    def needs_labels(self, namespace: str) -> bool:
        """Of a pod in that namespace, to know by which policies it is judged?"""
        return bool(self._owned.of(namespace)) or self._cluster.chooses_by_labels(self._peers.labels_of(namespace))

    @property
    def again(self) -> Collection[PolicyKey]:
        """Policies that are closed for want of room and may have it now: `try_again`, a few at a time."""
        return self._in_use.again

    @property
    def compiled(self) -> Compiled:
        """As of the last commit, for reading before the next event."""
        return Compiled(subjects=self._subjects.known, policies=self._in_use.policies, **self._rosters.members())

    # --- events ---------------------------------------------------------------------------------------------

    def set_policy(self, obj: Mapping[str, Any]) -> bool:
        """False if this version is refused; then an earlier good one stays in force, else its closed form is."""
        parsed = read_policy(obj)
        known = self.policies.get(parsed.key)
        if self._owned.take(parsed):
            self._select_again(parsed.key, known)
        return not parsed.compiled.closed

    def drop_policy(self, key: PolicyKey) -> None:
        known = self.policies.get(key)
        self._in_use.forget(key)
        if self._owned.drop(key):
            self._select_again(key, known)

    def set_cluster_policy(self, obj: Mapping[str, Any]) -> bool:
        """As `set_policy`."""
        parsed = read_cluster_policy(obj)
        if self._cluster.take(parsed, limits="; ".join(parsed.limits)):
            self._judge_again(parsed.key)
        return not parsed.compiled.closed

    def drop_cluster_policy(self, key: PolicyKey) -> None:
        self._in_use.forget(key)
        if self._cluster.drop(key):
            self._judge_again(key)

    def try_out(self, tried: Collection[PolicyKey]) -> None:
        """All policies that are tried and applied by nobody.  Were they in force, they would be in the place of those
        of their names."""
        self._replaced = frozenset((namespace, name.removesuffix(TRIED)) for namespace, name in tried)
        self._touched_subjects.update(self._locals)

    def try_again(self, key: PolicyKey) -> None:
        """If it is refused for want of room: with the next commit."""
        if self._in_use.try_again(key):
            self._touched_policies.add(key)

    def recount(self) -> None:
        """More pods of the cluster are known than when policies were taken up: with the next commit."""
        self._in_use.recount()

    def set_namespace(self, name: str, labels: Labels) -> None:
        self._peers.set_namespace(name, labels)
        self._choose_again(self._inhabitants.get(name, ()))

    def drop_namespace(self, name: str) -> None:
        self._peers.drop_namespace(name)
        self._choose_again(self._inhabitants.get(name, ()))

    def set_node(self, name: str, labels: Labels, addresses: tuple[Address, ...]) -> None:
        self._peers.set((NODES, name), namespace=NODES, labels=labels, addresses=addresses, ports=())

    def drop_node(self, name: str) -> None:
        self._peers.drop((NODES, name))

    def set_pod(self, pod: PodFacts) -> None:
        key = (pod.namespace, pod.name)
        if self._pods.get(key) != pod:
            self._pods[key] = pod
            self._refresh(key)

    def drop_pod(self, key: PodKey) -> None:
        if self._pods.pop(key, None) is not None:
            self._refresh(key)

    def set_local(self, pod: LocalPod) -> None:
        old = self._locals.get(pod.interface)
        if old is not None and old.pod != pod:
            self.drop_local(pod.interface)
        if old is None or old.pod != pod:
            key = (pod.namespace, pod.name)
            self._interfaces.setdefault(key, set()).add(pod.interface)
            self._settle_in(Local(pod, self._object(pod)))
            self._refresh(key)

    def drop_local(self, interface: str) -> None:
        if interface in self._locals:
            key = self._move_out(interface)
            self._interfaces[key].discard(interface)
            if not self._interfaces[key]:
                del self._interfaces[key]
            self._refresh(key)

    # --- policies -------------------------------------------------------------------------------------------

    def _select_again(self, key: PolicyKey, old: ParsedPolicy | None) -> None:
        """A NetworkPolicy has come, gone or changed."""
        self._touched_policies.add(key)
        inhabitants = self._inhabitants.get(key[0], set())
        self._touched_subjects.update(
            self._owned.select(key, old, self._locals, inhabitants=inhabitants, labelled=self._labelled)
        )

    def _judge_again(self, key: PolicyKey) -> None:
        """A ClusterNetworkPolicy has come, gone or changed."""
        self._touched_policies.add(key)
        self._touched_subjects.update(self._cluster.subjects(key, self._locals.values(), self._peers.labels_of))

    def _choose_again(self, interfaces: Iterable[str]) -> None:
        """The pods, or their namespace, have other labels."""
        pods = (self._locals[interface] for interface in interfaces)
        self._touched_subjects.update(self._cluster.choose(pods, self._peers.labels_of))

    # --- pods -----------------------------------------------------------------------------------------------

    def _refresh(self, key: PodKey) -> None:
        """The pod's object, or its being here, has changed."""
        facts = self._pods.get(key)
        is_here = False
        for interface in self._interfaces.get(key, ()):
            old = self._locals[interface]
            new = Local(old.pod, self._object(old.pod))
            is_here = is_here or (facts is not None and same_pod(old.pod, facts))
            if (new.labels, new.ports, new.takes_part) != (old.labels, old.ports, old.takes_part):
                self._move_out(interface)
                self._settle_in(new)
        if facts is None or is_here or not facts.takes_part or not facts.namespace:
            self._peers.drop(key)
        else:
            peer = self._peers.set(
                key, namespace=facts.namespace, labels=facts.labels, addresses=facts.addresses, ports=facts.ports
            )
            # Ten thousand pods have a few hundred sets of labels and ports between them: keep one copy of each.
            self._pods[key] = replace(facts, labels=peer.profile.labels, ports=peer.ports)

    def _object(self, pod: LocalPod) -> PodFacts | None:
        facts = self._pods.get((pod.namespace, pod.name))
        return facts if facts is not None and same_pod(pod, facts) else None

    def _settle_in(self, local: Local) -> None:
        pod, interface = local.pod, local.pod.interface
        self._locals[interface] = local
        self._touched_subjects.add(interface)
        self._inhabitants.setdefault(pod.namespace, set()).add(interface)
        for audience, entry in self._own_ports(local):
            self._rosters.add(audience, [entry])
        labels = UNKNOWN if local.labels is None else local.labels
        self._labelled.add(interface, labels)
        if local.labels is not None:
            local.selected_by.update(self._owned.selecting(pod.namespace, labels))
        if pod.namespace and local.takes_part:
            self._peers.set(
                interface, namespace=pod.namespace, labels=labels, addresses=pod.addresses, ports=local.ports
            )
        self._choose_again([interface])

    def _move_out(self, interface: str) -> PodKey:
        local = self._locals.pop(interface)
        self._touched_subjects.add(interface)
        namespace = local.pod.namespace
        self._inhabitants[namespace].discard(interface)
        if not self._inhabitants[namespace]:
            del self._inhabitants[namespace]
        for audience, entry in self._own_ports(local):
            self._rosters.remove(audience, [entry])
        self._labelled.remove(interface, UNKNOWN if local.labels is None else local.labels)
        self._peers.drop(interface)
        return namespace, local.pod.name

    def _own_ports(self, local: Local) -> Iterator[tuple[Audience, Endpoint]]:
        """The pod's named ports that some policy here uses."""
        for port, number in local.ports:
            if (None, port) in self._rosters:
                yield (None, port), (local.pod.interface, number)

    def _own_entries(self, audience: Audience) -> Iterator[Entry]:
        return (entry for local in self._locals.values() for own, entry in self._own_ports(local) if own == audience)

    # --- commit ---------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Has nothing come, since the last commit, that rules, or what is seen of the cluster, could go by?"""
        touched = self._touched_subjects or self._touched_policies
        return not touched and self._rosters.is_settled and self.sight.is_settled and self._in_use.is_settled

    def commit(self) -> Change:
        if self.is_settled:
            return Change()
        touched = ((interface, self._subject(interface)) for interface in sorted(self._touched_subjects))
        subjects, removed_subjects, judging = self._subjects.commit(touched)
        self._touched_subjects.clear()
        self._touched_policies |= judging
        above = (policy for key, policy in self._cluster.policies.items() if self._subjects.names(key))
        self._touched_policies |= self.sight.look(above, self._touched_policies)
        policies, removed_policies = self._in_use.commit(self._touched_policies, self._wanted, pods=len(self._pods))
        self._touched_policies.clear()
        self._crowds.commit(self._in_use.policies, [policy.key for policy in policies])
        settled = self._rosters.settle()
        for group, port in (*settled.removed, *settled.untold):
            if group is not None and not group.of:
                self._peers.forget(group, port)
        return Change(
            policies=tuple(policies),
            removed_policies=tuple(removed_policies),
            subjects=tuple(subjects),
            removed_subjects=tuple(removed_subjects),
            **settled.fields(),
        )

    def _subject(self, interface: str) -> Subject | None:
        local = self._locals.get(interface)
        if local is None:
            return None
        keys = local.selected_by if local.labels is not None else self._owned.of(local.pod.namespace)
        policies: list[Parsed] = [self.policies[key] for key in keys]
        policies += [self._cluster.policies[key] for key in local.subject_of]
        compiled = (policy.compiled for policy in policies)
        return judged_pod(local, compiled, doubtful=self._cluster.doubtful(local), replaced=self._replaced)

    def _wanted(self, key: PolicyKey) -> Parsed | None:
        if not self._subjects.names(key):
            return None
        return self.policies.get(key) or self.sight.shut(self._cluster.policies[key])
