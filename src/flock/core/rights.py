"""What the configuration in force lets running pods have, remembered while nothing it depends on changes."""

from collections.abc import Mapping
from ipaddress import ip_address

from flock.core.facts import NodeFacts
from flock.core.model import NO_MAP, Allocation, Namespace
from flock.core.nodeconfig import Kind, NodeConfig, Right, right


class Rights:
    """What the configuration lets pods have, asked for each address at every change of any pod: answers are taken
    over from the one `before` while configuration, node and the namespace's labels are the same."""

    def __init__(
        self,
        config: NodeConfig | None,
        facts: NodeFacts,
        namespaces: Mapping[tuple[str, str], Namespace],
        *,
        before: "Rights | None" = None,
    ) -> None:
        self._config, self._facts, self._namespaces = config, facts, namespaces
        self._forbidden = facts.forbidden
        same = before is not None and before._config is config and before._facts is facts
        self._old = before._known if before is not None and same else {}
        self._known: dict[tuple[Kind, str, str], tuple[Mapping[str, str], Right]] = {}

    def of(self, allocation: Allocation, kind: Kind, address: str) -> Right:
        namespace = self._namespaces.get(("", allocation.namespace))
        labels = namespace.labels if namespace else NO_MAP
        key = (kind, address, allocation.namespace)
        known = self._known.get(key) or self._old.get(key)
        if known is None or known[0] != labels:
            known = (labels, self._ask(kind, address, labels))
        self._known[key] = known
        return known[1]

    def _ask(self, kind: Kind, address: str, labels: Mapping[str, str]) -> Right:
        if self._config is None:
            return Right(refusal="the node has no NodeConfig", ungranted=True)
        wanted = ip_address(address)
        return right(self._config, kind=kind, address=wanted, namespace_labels=labels, forbidden=self._forbidden)
