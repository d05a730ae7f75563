"""The NetworkPolicies there are, and which of them select a pod of this node.

There may be thousands, of which a pod meets those of its namespace; pods and policies are found by the labels they have
and demand (`labels`).
"""

from collections.abc import Iterable, Iterator, Mapping, Set

from flock.core.policy.compiled import PolicyKey
from flock.core.policy.labels import Effort, Labels, Objects, Selectors
from flock.core.policy.parse import ParsedPolicy
from flock.core.policy.podfacts import Local
from flock.core.policy.versions import Versions


class NetworkPolicies(Versions[ParsedPolicy]):
    def __init__(self, effort: Effort) -> None:
        super().__init__()
        self._effort = effort
        self._selectors: dict[str, Selectors[PolicyKey]] = {}  # by namespace

    def of(self, namespace: str) -> Iterable[PolicyKey]:
        return self._selectors.get(namespace, ())

    def selecting(self, namespace: str, labels: Labels) -> Iterable[PolicyKey]:
        selectors = self._selectors.get(namespace)
        return selectors.fitting(labels) if selectors else ()

    def _replaced(self, key: PolicyKey, old: ParsedPolicy | None, new: ParsedPolicy | None) -> None:
        selectors = self._selectors.setdefault(key[0], Selectors(self._effort))
        if old is not None:
            selectors.remove(key)
        if new is not None:
            selectors.add(key, new.selector)
        if not len(selectors):
            del self._selectors[key[0]]

    def select(
        self,
        key: PolicyKey,
        old: ParsedPolicy | None,
        pods: Mapping[str, Local],
        *,
        inhabitants: Set[str],
        labelled: Objects[str],
    ) -> Iterator[str]:
        """The interfaces of pods that the policy selects as it is, or did as it was (`old`); each knows afterwards.
        `inhabitants`: of its namespace, `labelled`: all of them by label."""
        new = self.policies.get(key)
        for interface in _candidates(old, inhabitants, labelled):
            if key in pods[interface].selected_by:
                pods[interface].selected_by.discard(key)
                yield interface
        for interface in _candidates(new, inhabitants, labelled):
            local = pods[interface]
            if new is not None and local.labels is not None and self._effort.fits(new.selector, local.labels):
                local.selected_by.add(key)
                yield interface
        yield from (interface for interface in inhabitants if pods[interface].labels is None)


def _candidates(policy: ParsedPolicy | None, inhabitants: Set[str], labelled: Objects[str]) -> Iterable[str]:
    """Pods of this node the policy's selector may fit."""
    if policy is None:
        return ()
    found = labelled.candidates(policy.selector, among=len(inhabitants))
    return inhabitants if found is None else [interface for interface in found if interface in inhabitants]
