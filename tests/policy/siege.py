"""Pods under fire: whoever speaks speaks all the time, and taps in the namespaces see every packet that comes in."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hammer import Tap

from harness import Node, cni_outcome

NODE_CONFIG: dict[str, Any] = {
    "apiVersion": "flock.fritzlab.net/v1alpha1",
    "kind": "NodeConfig",
    "metadata": {"name": "n1"},
    "spec": {"cidr6": ["2001:db8:1::/64"], "cidr4": ["10.0.0.0/22"]},
}


def addresses(number: int) -> tuple[str, str]:
    return f"2001:db8:1::1:{number:x}", f"10.0.3.{number}"


def targets(*numbers: int) -> list[tuple[str, int]]:
    return [(address, 80) for number in numbers for address in addresses(number)]


def describe(node: Node, name: str, number: int, *, namespace: str, role: str) -> None:
    """A pod with addresses that are known before it exists."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {"role": role},
        "annotations": {"flock.fritzlab.net/addresses": ",".join(addresses(number))},
    }
    node.write(f"pod-{name}", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata})


def start(node: Node, name: str, *, namespace: str) -> Any:
    return node.cni_start("ADD", name, args=f"K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}", wait=30)


def finish(process: Any) -> Any:
    out, err = process.communicate(timeout=60)
    return cni_outcome(process.returncode, out, err)


def add(node: Node, name: str, number: int, *, namespace: str, role: str) -> None:
    describe(node, name, number, namespace=namespace, role=role)
    node.namespace(name)
    finish(start(node, name, namespace=namespace))


@contextlib.contextmanager
def taps(node: Node, *names: str) -> Iterator[dict[str, Tap]]:
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(contextlib.closing(Tap(node.path(name)))) for name in names}


class Heard:
    """What came into the namespaces."""

    def __init__(self, taps: dict[str, Tap]) -> None:
        self._taps = taps
        self._friends: list[int] = []

    def intruders(self) -> dict[str, set[str]]:
        """What came in since the last call that should not have, by namespace."""
        found: dict[str, set[str]] = {}
        for name, tap in self._taps.items():
            for payload, number in tap.seen():
                if payload != "friend":
                    found.setdefault(name, set()).add(payload)
                elif name != "friend":  # itself it sees them again in ICMP errors, as nobody listens
                    self._friends.append(number)
        return found

    def lost(self) -> list[int]:
        """Rounds of which not both families' packets of the friend arrived; the first and the last may be cut."""
        count = Counter(self._friends)
        assert len(count) > 100, "the friend spoke all the time"
        return [number for number in range(min(count) + 1, max(count)) if count[number] != 2]
