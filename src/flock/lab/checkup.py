"""`flockctl check lab`: the ground is a lab.  Its pods are attached as any other, in a namespace of their own.

What a killed check left is found by that namespace and removed by the next one; two at once are kept apart by a lock.
"""

import fcntl
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from random import randrange

import msgspec

from flock.core.annotations import ANYCAST
from flock.core.checkup import (
    ASKED,
    ASKING,
    NAMESPACE,
    SUBJECT,
    Asker,
    Look,
    Place,
    Probe,
    Question,
    Reply,
    Row,
    by_family,
    node_rows,
    policy,
    skipped,
)
from flock.core.errors import FieldError
from flock.core.spareaddress import spare_addresses
from flock.edge.examining import REPLICA
from flock.edge.nodelook import look_at
from flock.lab.errors import LabError
from flock.lab.fabric import Lab
from flock.lab.home import write_object
from flock.lab.nodes import Node
from flock.lab.pods import PodRecord

PROBE = [sys.executable, "-m", "flock.edge.probe"]
SERVES = 120.0  # seconds; a pod of a check that was killed answers no longer
LABELS = {"kubernetes.io/metadata.name": NAMESPACE}
_POLICY_FILE = "flock-check-policy"


class LabGround:
    def __init__(self, lab: Lab, *, nodes: Sequence[str]) -> None:
        if lab.record.plain:
            raise LabError(f"lab {lab.name} is plain: without agents there are no pods to check with")
        self.places: Sequence[Place] = ()
        self.anycast: Mapping[str, str] | str = "no node's agent says what may be announced"
        self._replicas: tuple[str, ...] = ()
        self._lab = lab
        self._nodes = [lab.node(name) for name in nodes]
        self._lock = open(lab.home.path / "check.lock", "w")  # noqa: SIM115 - held until `clean`
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LabError(f"lab {lab.name} is being checked already") from None

    def prepare(self) -> list[Row]:
        self._remove_pods()
        with ThreadPoolExecutor(len(self._nodes)) as threads:
            looked = dict(zip(self._nodes, threads.map(_look_at, self._nodes), strict=True))
            write_object(self._lab.home.manifests, _POLICY_FILE, policy(NAMESPACE))
            usable = [node for node, look in looked.items() if not look.away]
            self._spare({node.name: looked[node] for node in usable})
            started = dict(zip(usable, threads.map(self._start_pods, usable), strict=True))
        self.places = [place for place in started.values() if isinstance(place, Place)]
        rows = []
        for node, look in looked.items():
            outcome = started.get(node, look.away)
            attach = outcome if isinstance(outcome, str) else ""
            rows += node_rows(node.name, look, attach=attach, command=partial(self._flockctl, node.name))
        return rows

    def more(self) -> tuple[list[Question], list[Row]]:
        kinds = {"pod to Service": "Services", "names": "DNS", "host ports": "chained portmap"}
        return [], [skipped(check, f"a lab has no {what}") for check, what in kinds.items()]

    def withdraw(self, node: str) -> None:
        self._lab.pods.set_ready(f"{NAMESPACE}/{REPLICA}-{node}", False)

    def ask(self, asker: Asker, probes: Sequence[Probe]) -> Sequence[Reply]:
        host = self._lab.host(f"{NAMESPACE}/{asker.pod}-{asker.node}" if asker.pod else asker.node)
        said = host.run([*PROBE, "ask"], stdin=msgspec.json.encode(probes).decode())
        return msgspec.json.decode(said, type=list[Reply])

    def owner(self, address: str) -> str:
        for place in self.places:
            if any(address in pod.values() for pod in place.pods.values()):
                return f"a pod of {place.node}"
        # a pod's gateway is the node it is on, and may be first on a way
        return self._gateways.get(address) or self._lab.owner(address)

    @property
    def _gateways(self) -> dict[str, str]:
        return {
            ip["gateway"]: pod.node
            for pod in self._lab.pods
            for ip in (pod.result or {}).get("ips", ())
            if not ip.get("gateway", "fe80").startswith("fe80")
        }

    def look(self, node: str, command: Sequence[str]) -> str:
        if command[0] == "flockctl":
            return self._flockctl(node, *command[1:])
        return f"flockctl lab exec --dir {self._lab.home.path} {node} -- {' '.join(command)}"

    def stop(self) -> None:
        """Nobody waits for more than some seconds in a lab."""

    def clean(self) -> None:
        self._remove_pods()
        self._lock.close()

    # --- inside -------------------------------------------------------------------------------------------------

    def _flockctl(self, node: str, *words: str) -> str:
        return f"flockctl --run-dir {self._lab.node(node).run_dir} {' '.join(words)}"

    def _spare(self, looks: Mapping[str, Look]) -> None:
        """Choose the nodes of the replicas, and what they carry."""
        first = dict(list(looks.items())[:2])
        taken = {address for pod in self._lab.pods for address in pod.anycast}
        found = spare_addresses([look.spec for look in first.values()], labels=LABELS, taken=taken, draw=randrange)
        self.anycast = found or f"spec.anycast.allowed grants namespace {NAMESPACE} nothing on {' and '.join(first)}"
        if len(first) < 2:
            self.anycast = "it takes two nodes with pods"
        self._replicas = tuple(first) if not isinstance(self.anycast, str) else ()

    def _start_pods(self, node: Node) -> Place | str:
        """The node's place, or why there is none."""
        carried = "" if isinstance(self.anycast, str) else ",".join(self.anycast.values())
        names = (ASKING, ASKED, REPLICA) if node.name in self._replicas else (ASKING, ASKED)
        try:
            pods = {}
            for name in names:
                annotations = {ANYCAST: carried} if name == REPLICA else {}
                labels = SUBJECT if name == ASKED else {}
                pod = self._lab.pods.add(
                    f"{name}-{node.name}",
                    node=node.name,
                    namespace=NAMESPACE,
                    labels=labels,
                    annotations=annotations,
                    ready=True,
                )
                command = [*PROBE, "serve", pod.name, "--for", str(SERVES)]
                self._lab.pods.host(pod).spawn(_role(pod.name), command)
                pods[name] = by_family(pod.addresses)
            return Place(node.name, pods)
        except (LabError, FieldError) as error:
            return error.msg

    def _remove_pods(self) -> None:
        """Also of a node that is dead: its agent, when it is back, sees that they are gone."""
        pods = [pod for pod in self._lab.pods if pod.namespace == NAMESPACE]
        with ThreadPoolExecutor(max(1, len(pods))) as threads:
            list(threads.map(self._remove, pods))
        for name in (_POLICY_FILE, f"00-namespace-{NAMESPACE}"):
            (self._lab.home.manifests / f"{name}.json").unlink(missing_ok=True)
        for unfinished in self._lab.home.path.rglob(f".*{NAMESPACE}*.tmp"):  # a killed one was writing it
            unfinished.unlink(missing_ok=True)

    def _remove(self, pod: PodRecord) -> None:
        with suppress(LabError):
            self._lab.pods.delete(pod.key)
        self._lab.pods.forget(pod)
        for trace in self._lab.home.of(pod.node).glob(f"{_role(pod.name)}.*"):
            trace.unlink(missing_ok=True)


def _look_at(node: Node) -> Look:
    return look_at(node.run_dir, tables=lambda: node.host.run(["nft", "list", "tables"]))


def _role(pod: str) -> str:
    return f"check.{pod}"
