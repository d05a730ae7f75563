"""What the policy tests share: short ways to write objects, and a strict model of whatever takes in Changes."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from flock.core.policy.compiled import (
    Address,
    Change,
    Compiled,
    CompiledPolicy,
    GroupId,
    NamedPort,
    PolicyKey,
    Subject,
    Verdicts,
)
from flock.core.policy.index import PolicyIndex
from flock.core.policy.podfacts import LocalPod, PodFacts, Ports
from flock.core.policy.rosters import audiences

HTTP = NamedPort("http", "TCP")


def policy(spec: Mapping[str, Any], *, name: str = "p", namespace: str = "x", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"namespace": namespace, "name": name, **metadata},
        "spec": dict(spec),
    }


def labelled(**labels: str) -> dict[str, Any]:
    return {"matchLabels": labels}


def addresses(*texts: str) -> tuple[Address, ...]:
    return tuple(map(ip_address, texts))


def pod(
    key: str, *texts: str, labels: Mapping[str, str] | None = None, ports: Ports = (), uid: str = "", **more: Any
) -> PodFacts:
    namespace, name = key.split("/")
    return PodFacts(
        namespace=namespace, name=name, uid=uid, labels=labels or {}, addresses=addresses(*texts), ports=ports, **more
    )


def local(
    key: str,
    *texts: str,
    labels: Mapping[str, str] | None = None,
    ports: Ports = (),
    uid: str = "",
    interface: str = "",
) -> LocalPod:
    """`labels` None: not known."""
    namespace, name = key.split("/")
    return LocalPod(
        interface=interface or f"flock-{namespace}-{name}",
        container_id=f"sandbox-of-{name}",
        namespace=namespace,
        name=name,
        uid=uid,
        labels=labels,
        addresses=addresses(*texts),
        ports=ports,
    )


class Model:
    """Adds Changes up, and is as strict about them as a kernel."""

    def __init__(self) -> None:
        self.subjects: dict[str, Subject] = {}
        self.policies: dict[PolicyKey, CompiledPolicy] = {}
        self.groups: dict[GroupId, set[Any]] = {}
        self.named: dict[tuple[GroupId | None, NamedPort], set[Any]] = {}

    def apply(self, change: Change) -> None:
        for group in change.removed_groups:
            del self.groups[group]
        for audience in change.removed_named:
            del self.named[audience]
        for dropped in change.dropped:
            self._take(self.groups[dropped.group], dropped.addresses)
        for gone in change.dropped_named:
            self._take(self.named[gone.group, gone.port], gone.endpoints)
        for added in change.added:
            self._put(self.groups.setdefault(added.group, set()), added.addresses)
        for joined in change.added_named:
            self._put(self.named.setdefault((joined.group, joined.port), set()), joined.endpoints)
        for key in change.removed_policies:
            del self.policies[key]
        self.policies.update({changed.key: changed for changed in change.policies})
        for interface in change.removed_subjects:
            del self.subjects[interface]
        self.subjects.update({subject.interface: subject for subject in change.subjects})
        self._check_references()

    @staticmethod
    def _take(present: set[Any], dropped: frozenset[Any]) -> None:
        assert dropped and dropped <= present
        present -= dropped

    @staticmethod
    def _put(present: set[Any], added: frozenset[Any]) -> None:
        assert not added & present
        present |= added

    def _check_references(self) -> None:
        """Whatever is referred to is there, and nothing else is."""
        verdicts = [subject.verdicts for subject in self.subjects.values()]
        assert {key for v in verdicts for key in (*(v.ingress or ()), *(v.egress or ()))} == set(self.policies)
        needed = {audience for compiled in self.policies.values() for audience in audiences(compiled)}
        assert {group for group, port in needed if port is None} == {group for group in self.groups if not group.of}
        for union in (group for group in self.groups if group.of):
            assert self.groups[union] == set().union(*(self.groups[group] for group in union.of))
        assert {audience for audience in needed if audience[1] is not None} == set(self.named)


def plain(state: Compiled | Model) -> tuple[Any, ...]:
    """Comparable, whatever kinds of mappings and sets are inside."""
    return (
        dict(state.subjects),
        dict(state.policies),
        {group: set(members) for group, members in state.groups.items()},
        {audience: set(endpoints) for audience, endpoints in state.named.items()},
    )


def parts(change: Change) -> set[str]:
    """Which parts of the change are not empty."""
    return {field for field in change.__struct_fields__ if getattr(change, field)}


NOTHING = Change()


class Node(PolicyIndex):
    """An index whose changes are added up and compared at every commit."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    def commit(self) -> Change:
        change = super().commit()
        self.model.apply(change)
        assert plain(self.model) == plain(self.compiled)
        assert super().commit() == NOTHING
        return change

    def verdicts(self, interface: str) -> Verdicts:
        self.commit()
        return self.compiled.subjects[interface].verdicts

    def members(self, group: GroupId) -> set[Any]:
        self.commit()
        return set(self.compiled.groups[group])
