"""Which addresses count as those of a pod that is not attached here.

Policies let peers in by address, so an address that anybody could claim would be a way through every policy that means
its pods.  A tenant cannot write `status.podIPs`, so these count.  Annotations it can write at any time: of them count
those that this node's configuration grants the pod's namespace, in the number an ADD takes.  So a grant, a namespace's
labels and a pod each decide about addresses, and whoever changes is asked for the pods to look at again.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from itertools import islice

from flock.core.annotations import ADDRESSES, ANYCAST, MAX_ENTRIES, list_items
from flock.core.errors import AnnotationError
from flock.core.facts import Network, NodeFacts
from flock.core.model import NO_MAP, Pod
from flock.core.nodeconfig import Kind, NodeConfig, grants, right
from flock.core.policy.compiled import Address
from flock.core.policy.podfacts import PodFacts, pod_facts
from flock.core.reserved import reserved

PodKey = tuple[str, str]  # namespace, name
KINDS: tuple[tuple[str, Kind], ...] = ((ADDRESSES, "addresses"), (ANYCAST, "anycast"))


class Vouching:
    def __init__(self) -> None:
        self._config: NodeConfig | None = None
        self._node = NodeFacts(node="")
        self._own: frozenset[Address] = frozenset()
        self._forbidden: tuple[Network, ...] = ()
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._annotated: dict[str, set[str]] = {}  # pods that ask for addresses, by namespace

    def configure(self, config: NodeConfig | None, node: NodeFacts) -> Iterable[PodKey]:
        """Returns the pods to look at again."""
        if config is self._config and node is self._node:
            return ()
        self._config, self._node, self._own = config, node, node.own
        self._forbidden = node.forbidden
        return [(namespace, name) for namespace, names in self._annotated.items() for name in names]

    def set_namespace(self, name: str, labels: Mapping[str, str]) -> Iterable[PodKey]:
        """Returns the pods to look at again."""
        if labels == self._namespaces.get(name, NO_MAP):
            return ()
        self._namespaces[name] = labels
        return [(name, pod) for pod in self._annotated.get(name, ())]

    def drop_namespace(self, name: str) -> Iterable[PodKey]:
        again = self.set_namespace(name, NO_MAP)
        self._namespaces.pop(name, None)
        return again

    def facts(self, pod: Pod) -> PodFacts:
        """A pod without podIPs has not been attached, and what its annotations ask for has not been granted."""
        self.forget(pod.key)
        if any(name in pod.annotations for name, _ in KINDS):
            self._annotated.setdefault(pod.metadata.namespace, set()).add(pod.metadata.name)
        given = [*self._given(pod)]
        return pod_facts(pod, addresses=tuple(dict.fromkeys((*given, *self._granted(pod)))) if given else ())

    def forget(self, key: PodKey) -> None:
        namespace, name = key
        names = self._annotated.get(namespace)
        if names is not None:
            names.discard(name)
            if not names:
                del self._annotated[namespace]

    def _given(self, pod: Pod) -> Iterator[Address]:
        for entry in islice(pod.status.pod_ips or (), MAX_ENTRIES):
            address = _address(entry.ip)
            if address is not None and not reserved(address) and address not in self._own:
                yield address

    def _granted(self, pod: Pod) -> Iterator[Address]:
        labels = self._namespaces.get(pod.metadata.namespace, NO_MAP)
        for annotation, kind in KINDS:
            try:
                items = list_items(annotation, pod.annotations.get(annotation, ""))
            except AnnotationError:
                continue
            if len(items) > MAX_ENTRIES:
                continue  # its ADD was refused
            for address in map(_address, items):
                if address is not None and self._grants(kind, address, labels):
                    yield address

    def _grants(self, kind: Kind, address: Address, labels: Mapping[str, str]) -> bool:
        """By an entry of the configuration: what else is inside this node's aggregates is for pods attached here."""
        config = self._config
        if config is None or not grants(config, kind=kind, address=address, namespace_labels=labels):
            return False  # nearly always, and at once
        return right(config, kind=kind, address=address, namespace_labels=labels, forbidden=self._forbidden).granted


def _address(text: str) -> Address | None:
    """None for what is no address: its own node has refused it."""
    try:
        return None if "%" in text else ip_address(text.strip())
    except ValueError:
        return None
