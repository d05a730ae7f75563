"""Pods' whole lives: what the agent spends on one, from the scheduler's word to the last a kubelet writes.

An API server is played (that of the tests), with pods as long as real ones and the events a kubelet makes of a pod's
life; the executable is run for ADD and DEL as a runtime does.  One step at a time, so that no two events come in one
turn of the agent's loop, which would make them cheaper.  What counts is the agent's CPU, which a busy machine hardly
bends.
"""

import dataclasses
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from contenders import Flock, node_config
from large import IP4, IP6, pod_of, status_of, usual_policies
from launching import HERE, BenchError, Command, Run
from measuring import Bench, Outcome, Table, Verdict, median, show
from scale import cpu_ns
from world import Pod

sys.path.insert(0, str(HERE.parent / "tests"))

from apiserver import ApiServer

LIMIT = 10.0  # milliseconds of CPU for a life
STEP = 0.01  # seconds between what happens: ten lives a second
AT_ONCE = 10  # lives side by side
CALM = 2.0  # seconds, before a round and at its end
ROUNDS = 3
ALL, EVENTS, VERBS = "events and verbs", "events alone", "verbs alone"
PLAIN, POLICIES = "without policies", "five policies, an anycast pod beside"
ADDRESS = "2001:db8:53::53"
ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
NOTHING: Mapping[str, str] = {}
ANYCAST = {"flock.fritzlab.net/anycast": ADDRESS}
SPACE = "bench"  # the namespace of all pods here
ENDED = "2026-01-01T00:09:05Z"

Object = dict[str, Any]
Step = Callable[[], None]


class Lives:
    name = "lives"
    title = "Pods' whole lives: the agent's CPU"

    def run(self, bench: Bench) -> Outcome:
        raw: dict[str, dict[str, list[float]]] = {PLAIN: {}, POLICIES: {}}
        for node in bench.enter(lambda: _Node(bench, "plain")):
            self._measure(node, raw[PLAIN], (ALL, EVENTS, VERBS))
            node.server.stop()
        for node in bench.enter(lambda: _Node(bench, "policies")):
            node.server.put(*usual_policies(SPACE))
            beside = _Life(node, anycast=True)
            for step in beside.steps_up(ALL):
                step()
            self._measure(node, raw[POLICIES], (ALL,))
            node.server.stop()
        return Outcome([_table(raw)], _verdicts(raw), raw)

    def _measure(self, node: "_Node", found: dict[str, list[float]], parts: Sequence[str]) -> None:
        _live(node, ALL, count=10)
        for _ in range(ROUNDS):
            for part in parts:
                time.sleep(CALM)
                count, before = node.bench.effort.lives, cpu_ns(node.pid)
                _live(node, part, count=count)
                found.setdefault(part, []).append((cpu_ns(node.pid) - before) / count / 1e6)


def _live(node: "_Node", part: str, *, count: int) -> None:
    """So many lives, some of them side by side, step by step in turn."""
    under_way: deque[Iterator[Step]] = deque()
    for _ in range(count):
        while len(under_way) >= AT_ONCE:
            _take_turn(under_way)
        under_way.append(_Life(node).steps(part))
    while under_way:
        _take_turn(under_way)
    time.sleep(CALM)  # what the agent does soon after belongs to it


def _take_turn(under_way: deque[Iterator[Step]]) -> None:
    life = under_way.popleft()
    step = next(life, None)
    if step is not None:
        began = time.monotonic()
        step()
        time.sleep(max(0.0, began + STEP - time.monotonic()))
        under_way.append(life)


class _Life:
    """One pod's, as the API server and a runtime see it."""

    def __init__(self, node: "_Node", *, anycast: bool = False) -> None:
        self._node = node
        (self._pod,) = node.bench.world.pods(1)
        self._annotations = ANYCAST if anycast else {}
        self._added: Run | None = None

    def steps(self, part: str) -> Iterator[Step]:
        yield from self.steps_up(part)
        if part != VERBS:
            yield lambda: self._tell(ready="True", going=True)
        if part != EVENTS:
            yield self._delete
        if part != VERBS:
            yield lambda: self._tell(ready="False", going=True, over=True)
            yield lambda: self._tell(ready="False", going=True, over=True, sandbox=False)
            yield lambda: self._node.server.delete("Pod", self._pod.name, self._pod.namespace)
        self._node.bench.world.recycle([self._pod])

    def steps_up(self, part: str) -> Iterator[Step]:
        if part != VERBS:
            yield self._scheduled
            yield lambda: self._tell(ready="False", made=False)
        if part != EVENTS:
            yield self._add
        if part != VERBS:
            yield lambda: self._tell(ready="False")
            yield lambda: self._tell(ready="True")

    # --- what a runtime does ---

    def _add(self) -> None:
        self._added = self._node.execute(self._node.add(self._pod, self._annotations))

    def _delete(self) -> None:
        assert self._added is not None
        self._node.execute(self._node.delete(self._pod, self._added))

    # --- what the scheduler and the kubelet write ---

    def _scheduled(self) -> None:
        self._put({"phase": "Pending", "conditions": [_condition("PodScheduled", "True")], "qosClass": "Burstable"})

    def _tell(
        self, *, ready: str, made: bool = True, going: bool = False, over: bool = False, sandbox: bool = True
    ) -> None:
        """`made`: its sandbox is, and its container runs.  `going`: it was told to end, `over`: its containers have."""
        status = status_of([{"ip": IP6}, {"ip": IP4}], ready=ready)
        (container,) = status["containerStatuses"]
        if not made:
            status = {key: value for key, value in status.items() if key not in ("podIP", "podIPs")}
            status["phase"], container["state"] = "Pending", {"waiting": {"reason": "ContainerCreating"}}
        if over:
            status["phase"] = "Succeeded"
            container["state"] = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": ENDED}}
        has_sandbox = "True" if made and sandbox else "False"
        status["conditions"].append(_condition("PodReadyToStartContainers", has_sandbox))
        self._put(status, going=going)

    def _put(self, status: Object, *, going: bool = False) -> None:
        pod = pod_of("True")
        pod["metadata"] |= {"name": self._pod.name, "namespace": self._pod.namespace, "uid": self._pod.uid}
        pod["metadata"]["annotations"] |= self._annotations
        if going:
            pod["metadata"] |= {"deletionTimestamp": ENDED, "deletionGracePeriodSeconds": 30}
        pod["spec"]["nodeName"] = self._node.name
        self._node.server.put({**pod, "status": status})


class _Node(Flock):
    """An agent beside its API server, whose whole cluster is this node."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench, self.name = bench, name
        self.server: ApiServer
        kubeconfig = bench.world.scratch / f"{name}.kubeconfig"
        self._kubeconfig = kubeconfig
        super().__init__(bench.world, node=name, source=["--kubeconfig", kubeconfig])

    def start(self) -> None:
        self.server = ApiServer(namespace=self.node, bookmarks=60.0)
        self.server.start()
        config = node_config(self.name)
        config["spec"]["anycast"] = {"allowed": [{"prefixes": [f"{ADDRESS}/128"]}]}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
        self.server.put(config, node, namespace)
        self.server.kubeconfig(self._kubeconfig)
        super().start()

    def add(self, pod: Pod, annotations: Mapping[str, str] = NOTHING) -> Command:
        """As a runtime hands annotations over."""
        command = super().add(pod)
        assert command.stdin is not None
        told = {ANNOTATIONS: {**command.stdin["runtimeConfig"][ANNOTATIONS], **annotations}}
        return dataclasses.replace(command, stdin={**command.stdin, "runtimeConfig": told})

    def execute(self, command: Command) -> Run:
        (run,) = self.bench.launcher.sequential([command])
        if run.failed:
            raise BenchError(f"{command.env['CNI_COMMAND']} failed: {run.output.strip()[:300]}")
        return run


def _condition(kind: str, status: str) -> Object:
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": ENDED}


def _table(raw: dict[str, dict[str, list[float]]]) -> Table:
    rows = [
        [node, part, ", ".join(show(value) for value in sorted(values)), show(median(values))]
        for node, parts in raw.items()
        for part, values in parts.items()
    ]
    return Table(["node", "a life is", "agent CPU ms, each round", "middle"], rows)


def _verdicts(raw: dict[str, dict[str, list[float]]]) -> Sequence[Verdict]:
    return [
        Verdict(f"agent CPU for a pod's life, {node}", median(parts.get(ALL, [])), LIMIT, unit=" ms")
        for node, parts in raw.items()
    ]
