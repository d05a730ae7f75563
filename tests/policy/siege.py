"""Pods under fire: whoever speaks speaks all the time, and taps in the namespaces see every packet that comes in."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from random import Random
from time import sleep
from typing import Any

from hammer import Tap, hammering, order

from harness import Node, cni_outcome, eventually

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


@contextlib.contextmanager
def besieging(node: Node) -> Iterator[dict[str, Tap]]:
    """Three victims, a friend and a stranger, all of whom are there, all speaking; until the friend comes through."""
    orders = [
        order(node.path("stranger"), "into-a-pod", *targets(1, 2, 3)),
        order(node.path("friend"), "friend", *targets(1)),
        order(node.path("victim1"), "out-of-a-pod", *targets(2, 3, 100, 200)),
    ]
    with taps(node, "stranger", "friend", "victim1", "victim2", "victim3") as seen, hammering(orders):
        eventually(lambda: seen["victim1"].seen(), what="the friend comes through")
        yield seen


def survives_kills(node: Node, seen: dict[str, Tap], *, kills: int, random: Random) -> None:
    """Nothing forbidden gets through while agents die at every stage of their start, and nothing that is allowed is
    lost."""
    heard = Heard(seen)
    for _ in range(kills):
        node.kill()
        node.start(wait=False)
        sleep(random.uniform(0, 0.3))
        assert heard.intruders() == {}
    node.kill()
    node.start()
    assert heard.intruders() == {}
    assert heard.lost() == []


def start_under_fire(node: Node, names: list[str], *, at_once: int, opened_by: str) -> None:
    """Pods of the locked namespace, numbered from 1, see nothing until the manifest that forbids it goes: it was that
    policy which kept others out, and nothing else."""
    for number, name in enumerate(names, 1):
        describe(node, name, number, namespace="locked", role="victim")
        node.namespace(name)
    orders = [order(node.path("stranger"), "into-a-pod", *targets(*range(1, len(names) + 1)))]
    orders += [order(node.path(name), "out-of-a-pod", *targets(200)) for name in names]
    with taps(node, "stranger", *names) as seen, hammering(orders):
        for first in range(0, len(names), at_once):
            for process in [start(node, name, namespace="locked") for name in names[first : first + at_once]]:
                finish(process)
        sleep(0.3)
        heard = Heard(seen)
        assert heard.intruders() == {}
        (node.manifests / f"{opened_by}.json").unlink()
        found: set[str] = set()

        def all_open() -> bool:
            found.update(heard.intruders())
            return found == {"stranger", *names}

        eventually(all_open, what="every pod can be reached once nothing forbids it")
