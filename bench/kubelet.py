"""Pods that a kubelet runs, in a cluster of `make e2e` with one node: what the agent spends on a life, and how long
ADDs take when a hundred pods start at once, beside the reference plugins on the same node.

The reference takes its turns by a configuration that comes first in the node's directory; the agent stays, and what it
spends on pods that are not its own is told.  Both lists chain the same plugins; of both the first is timed
(`timed.c`).  Every pod that was made is quite gone, its sandbox too, before anything is counted or another's turn
begins: a runtime asks whoever is configured then to take its network away.
"""

import json
import socket
import struct
import subprocess
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contenders import reference_conflist
from controlplane import (
    CNI_CONFIGURATION,
    CNI_PROGRAMS,
    TOOLBOX,
    Cluster,
    Failed,
    deploy_flock,
    eventually,
    image,
    is_built,
    is_true,
    is_well,
)
from flock.edge.conflist import NAME as CONFLIST
from flock.lab.errors import LabError
from launching import BenchError, build
from measuring import Bench, Outcome, Table, Verdict, ratio, show
from scale import cpu_ns
from timed import NOTES, Call, Cost, Summary, read_calls, stand_in, succeeded
from world import undisturbed

FLOCK, REFERENCE = "flock", "reference IPv4"
PLUGINS = {FLOCK: "flock", REFERENCE: "ptp"}
FIRST = CNI_CONFIGURATION / "00-reference.conflist"
# What kubelets allow themselves since 1.27; at five requests a second, as before, a hundred pods' states take minutes.
SETTINGS = {"kubeAPIQPS": 50, "kubeAPIBurst": 100}
LIFE_LIMIT, ADD_LIMIT = 10.0, 1.0  # milliseconds of CPU; flock's time of the reference's
GAP, AGE = 1.0, 10.0  # seconds between lives, and of a life, as far as it is ours to say
WARM = 3  # pods before those that are timed
SETTLE = 2.0  # seconds for a runtime to read its configuration
PATIENCE, PAUSE = 600.0, 1.0  # seconds; a busy machine starts a pod or two in one
SINGLE, AT_ONCE, OTHERS = "one after the other", "at once", "at once, the reference's"
LABEL = "bench=pod"
_WAIT = "trap 'exit 0' TERM; sleep 100000 & wait"

Object = dict[str, Any]


class Kubelet:
    name = "kubelet"
    title = "Pods that a kubelet runs: the agent's CPU, and ADDs of many at once"

    def run(self, bench: Bench) -> Outcome:
        if not is_built():
            raise BenchError("no Kubernetes: `make e2e` builds it, once")
        found = _Found()
        try:
            with _node() as node:
                self._measure(bench, node, found)
        except (BenchError, Failed, LabError, subprocess.SubprocessError, OSError, RuntimeError) as problem:
            bench.complain(f"{self.name}: {problem}")  # what was found before holds
        return Outcome([_cpu_table(found), _add_table(found)], _verdicts(found), found.raw())

    def _measure(self, bench: Bench, node: "_Node", found: "_Found") -> None:
        effort = bench.effort
        for contender in (REFERENCE, FLOCK):
            node.give_to(contender)
            node.burst(contender, WARM)
        found.quiet.append(node.quiet(effort.kubelet_quiet))
        with node.counted(effort.kubelet_lives) as cost:
            node.live(effort.kubelet_lives)
        found.spent[SINGLE] = [cost]
        for number in range(effort.kubelet_rounds):
            turns = (FLOCK, REFERENCE) if number % 2 else (REFERENCE, FLOCK)
            for contender in turns:
                node.give_to(contender)
                with node.counted(effort.kubelet_pods) as cost:
                    found.adds.setdefault(contender, []).append(node.burst(contender, effort.kubelet_pods))
                found.spent.setdefault(AT_ONCE if contender == FLOCK else OTHERS, []).append(cost)
        node.give_to(FLOCK)
        found.quiet.append(node.quiet(effort.kubelet_quiet))


class _Found:
    def __init__(self) -> None:
        self.quiet: list[Cost] = []
        self.spent: dict[str, list[Cost]] = {}
        self.adds: dict[str, list[list[Call]]] = {}

    @property
    def quiet_rate(self) -> float:
        return sum(cost.rate for cost in self.quiet) / len(self.quiet)

    def life(self, kind: str) -> float | None:
        """Milliseconds of CPU, of all there were."""
        costs = self.spent.get(kind)
        return Cost.of_all(costs).of_a_life(quiet=self.quiet_rate) if costs and self.quiet else None

    def adds_of(self, contender: str) -> Summary | None:
        """Of all there were: their elapsed time means nothing."""
        calls = [call for calls in self.adds.get(contender, ()) for call in calls]
        return Summary.of(calls) if calls else None

    def raw(self) -> Object:
        return {
            "quiet": [asdict(cost) for cost in self.quiet],
            "spent": {kind: [asdict(cost) for cost in costs] for kind, costs in self.spent.items()},
            "add_ms": {who: [[call.ms for call in calls] for calls in rounds] for who, rounds in self.adds.items()},
        }


@contextmanager
def _node() -> Iterator["_Node"]:
    """On which flock runs as deployed, ready, its plugin and the reference's timed."""
    _, archive = image.flock()
    cluster = Cluster(nodes=1, routers=1, images=[archive], kubelet=SETTINGS)
    with ExitStack() as stack:
        stack.enter_context(cluster)
        try:
            deploy_flock(cluster)
            cluster.wait_for_nodes()
            yield _Node(cluster)
        finally:
            with undisturbed():
                stack.close()


class _Node:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        ((self._name, self._node),) = cluster.nodes.items()
        self._made = 0
        eventually(lambda: is_well(cluster, self._name), what="the agent to be well", patience=PATIENCE)
        for plugin in PLUGINS.values():
            stand_in(build("timed"), self._node.path(CNI_PROGRAMS / plugin))
        self.pid = self._agent()

    def _agent(self) -> int:
        """The process that listens at the socket, whatever it is called where it runs."""
        path = self._node.path(Path("/run/flock/flock.sock"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            caller.connect(str(path))
            pid: int = struct.unpack("iII", caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return pid

    # --- the agent's CPU ---

    @contextmanager
    def counted(self, lives: int) -> Iterator[Cost]:
        """What it spends within; the pods that lived are gone at the end, and nothing of others was left before."""
        self.wait_until_gone()
        cost, cpu, began = Cost(lives), cpu_ns(self.pid), time.monotonic_ns()
        yield cost
        self.wait_until_gone()
        cost.cpu_ms, cost.seconds = (cpu_ns(self.pid) - cpu) / 1e6, (time.monotonic_ns() - began) / 1e9
        cost.calls = dict(Counter(call.verb for call in read_calls(self._node.path(NOTES), since=began)))
        if self._agent() != self.pid:
            raise Failed("the agent was started anew meanwhile")

    def quiet(self, seconds: float) -> Cost:
        with self.counted(0) as cost:
            time.sleep(seconds)
        return cost

    # --- whose turn it is ---

    def give_to(self, contender: str) -> None:
        """Pods from now on are this contender's; whose they were is seen by who is called for them."""
        self.wait_until_gone()
        if contender == FLOCK:
            self._node.path(FIRST).unlink(missing_ok=True)
        else:
            ours = json.loads(self._node.path(CNI_CONFIGURATION / CONFLIST).read_text())
            self._node.write(FIRST, json.dumps(reference_conflist(ours)))
        time.sleep(SETTLE)

    # --- pods ---

    def burst(self, contender: str, count: int) -> list[Call]:
        """So many at once; the ADDs that made them.  They are told to go when all are ready."""
        since = time.monotonic_ns()
        self._create(count)
        adds = self._adds(contender, count=count, since=since)
        self._wait_until_ready(count)
        self._plane("delete", "pods", f"--selector={LABEL}", "--wait=false")
        return adds

    def live(self, count: int) -> None:
        """So many lives, one begun after the other, each told to end at the same age."""
        under_way: deque[tuple[str, float]] = deque()
        begun = 0
        while begun < count or under_way:
            turn = time.monotonic()
            if begun < count:
                (name,) = self._create(1)
                under_way.append((name, turn))
                begun += 1
            while under_way and under_way[0][1] <= turn - AGE:
                self._plane("delete", "pod", under_way.popleft()[0], "--wait=false")
            time.sleep(max(0.0, turn + GAP - time.monotonic()))

    def _create(self, count: int) -> list[str]:
        names = [f"pod-{self._made + number}" for number in range(count)]
        self._made += count
        pods = {"apiVersion": "v1", "kind": "List", "items": [_pod(name) for name in names]}
        self._plane("create", "-f", "-", stdin=json.dumps(pods))
        return names

    def _adds(self, contender: str, *, count: int, since: int) -> list[Call]:
        """All that are wanted, read from the notes alone: whoever asked the API server would take their CPU."""
        notes, plugin = self._node.path(NOTES), PLUGINS[contender]

        def complete() -> list[Call]:
            calls = read_calls(notes, since=since)
            if stray := {call.plugin for call in calls if call.verb == "ADD"} - {plugin}:
                raise BenchError(f"{contender}: pods are {', '.join(stray)}'s")
            done = succeeded(calls, plugin=plugin, verb="ADD")
            if len(done) < count:
                raise Failed(f"{len(done)} of {count}, {sum(call.status != 0 for call in calls)} calls failed")
            return done

        return eventually(complete, what=f"{contender}: {count} ADDs", patience=PATIENCE, pause=PAUSE)

    def _wait_until_ready(self, count: int) -> None:
        ready = lambda: sum(is_true(pod, "Ready") for pod in self._cluster.pods(LABEL)) >= count  # noqa: E731
        eventually(ready, what=f"{count} ready pods", patience=PATIENCE, pause=PAUSE)

    def wait_until_gone(self) -> None:
        """This kubelet keeps a pod's object until its sandbox is garbage, up to 70 s."""
        gone = lambda: not self._cluster.pods(LABEL)  # noqa: E731
        eventually(gone, what="all pods to be gone", patience=PATIENCE, pause=PAUSE)

    def _plane(self, *words: str, stdin: str = "") -> None:
        self._cluster.plane.kubectl(*words, stdin=stdin, patience=PATIENCE)


def _pod(name: str) -> Object:
    key, value = LABEL.split("=")
    container = {"name": "main", "image": TOOLBOX, "command": ["/bin/sh", "-c", _WAIT]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {key: value}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
    }


def _cpu_table(found: _Found) -> Table:
    rows = [
        ["nothing, " + when, "0", "0", "0", show(cost.seconds), show(cost.rate / 10, " %"), "-"]
        for when, cost in zip(("before", "after"), found.quiet, strict=False)
    ]
    for kind, costs in found.spent.items():
        for cost in costs:
            life = show(cost.of_a_life(quiet=found.quiet_rate)) if found.quiet else "-"
            calls = [str(cost.calls.get(verb, 0)) for verb in ("ADD", "DEL")]
            rows.append([kind, str(cost.lives), *calls, show(cost.seconds), show(cost.rate / 10, " %"), life])
    return Table(["pods", "lives", "ADDs", "DELs", "seconds", "agent CPU", "more than quiet, ms a life"], rows)


def _add_table(found: _Found) -> Table:
    rows = [
        [who, str(s.count), show(s.p50), show(s.p95), show(s.total), show(s.elapsed / 1e3)]
        for who, rounds in found.adds.items()
        for s in map(Summary.of, rounds)
    ]
    return Table(["at once", "ADDs", "p50 ms", "p95", "sum", "first to last, s"], rows)


def _verdicts(found: _Found) -> list[Verdict]:
    return [
        *(
            Verdict(f"agent CPU for a life of pods a kubelet runs, {kind}", found.life(kind), LIFE_LIMIT, unit=" ms")
            for kind in (SINGLE, AT_ONCE)
        ),
        *(
            Verdict(f"ADD {shown} of pods at once, flock / {REFERENCE}", of, ADD_LIMIT)
            for shown, of in _ratios(found.adds_of(FLOCK), found.adds_of(REFERENCE)).items()
        ),
    ]


def _ratios(ours: Summary | None, theirs: Summary | None) -> dict[str, float | None]:
    if ours is None or theirs is None:
        return dict.fromkeys(("p50", "p95", "sum"))
    return {
        "p50": ratio(ours.p50, theirs.p50),
        "p95": ratio(ours.p95, theirs.p95),
        "sum": ratio(ours.total, theirs.total),
    }
