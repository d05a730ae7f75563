"""The ClusterNetworkPolicies there are, and which of them have a pod of this node for a subject.

There are few of them, written by the cluster's administrator, so a pod that comes is compared with those whose selector
of namespaces fits, and one that changes with the pods of this node.  What their rules mean is for `inforce` and
`peers`, as with NetworkPolicies.
"""

from collections.abc import Callable, Iterable, Iterator

from flock.core.policy.cluster import ParsedClusterPolicy
from flock.core.policy.compiled import DIRECTIONS, PolicyKey
from flock.core.policy.labels import Effort, Labels, Selectors
from flock.core.policy.podfacts import Local
from flock.core.policy.reading import EVERYTHING, PeerSelector
from flock.core.policy.versions import Versions


class ClusterPolicies(Versions[ParsedClusterPolicy]):
    """`labels_of`: a namespace's."""

    def __init__(self, effort: Effort) -> None:
        super().__init__()
        self._effort = effort
        self._selectors: Selectors[PolicyKey] = Selectors(effort)  # of namespaces
        self._judging: dict[PolicyKey, object] = {}  # what of each decides whom it judges

    def _replaced(self, key: PolicyKey, old: ParsedClusterPolicy | None, new: ParsedClusterPolicy | None) -> None:
        if old is not None and old.subject is not None:
            self._selectors.remove(key)
        if new is not None and new.subject is not None:
            self._selectors.add(key, new.subject.namespaces or EVERYTHING)

    def subjects(self, key: PolicyKey, pods: Iterable[Local], labels_of: Callable[[str], Labels]) -> Iterator[str]:
        """The interfaces of pods that are judged by others than before, now that this one came, went or changed; each
        pod knows it afterwards.  Its rules and its place within the tier change nothing about that."""
        policy, before = self.policies.get(key), self._judging.pop(key, None)
        if policy is not None:
            says = tuple(policy.compiled.rules(direction) is not None for direction in DIRECTIONS)
            self._judging[key] = policy.subject, policy.compiled.tier, policy.compiled.audited, says
            if self._judging[key] == before:
                return
        subject = policy.subject if policy is not None else None
        for local in pods:
            is_subject = self.means(subject, local, labels_of)
            if is_subject or key in local.subject_of:
                (local.subject_of.add if is_subject else local.subject_of.discard)(key)
                yield local.pod.interface

    def means(self, subject: PeerSelector | None, local: Local, labels_of: Callable[[str], Labels]) -> bool:
        """Where the pod's labels are not known: it may."""
        return (
            subject is not None
            and bool(local.pod.namespace)
            and self._effort.fits(subject.namespaces or EVERYTHING, labels_of(local.pod.namespace))
            and (local.labels is None or self._effort.fits(subject.pods, local.labels))
        )

    def choose(self, pods: Iterable[Local], labels_of: Callable[[str], Labels]) -> Iterator[str]:
        """The interfaces of pods that are subjects of others than before; each knows of which afterwards.  A container
        without a namespace is nobody's subject."""
        for local in pods:
            fitting = self._selectors.fitting(labels_of(local.pod.namespace)) if local.pod.namespace else ()
            subject_of = {key for key in fitting if self._may_mean(key, local)}
            if subject_of != local.subject_of:
                local.subject_of = subject_of
                yield local.pod.interface

    def chooses_by_labels(self, namespace: Labels) -> bool:
        """Do the labels of a pod decide whether it is a subject, in a namespace with these?"""
        fitting = (self.policies[key].subject for key in self._selectors.fitting(namespace))
        return any(subject is not None and subject.pods != EVERYTHING for subject in fitting)

    def _may_mean(self, key: PolicyKey, local: Local) -> bool:
        """Where the pod's labels are not known: yes."""
        subject = self.policies[key].subject
        return subject is not None and (local.labels is None or self._effort.fits(subject.pods, local.labels))

    def doubtful(self, local: Local) -> set[PolicyKey]:
        """Of those it is a subject of as far as one can tell, those that depend on labels nobody knows."""
        if local.labels is not None:
            return set()
        return {key for key in local.subject_of if (chosen := self.policies[key].subject) and chosen.pods != EVERYTHING}
