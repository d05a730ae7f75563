"""One node of a large cluster with a real API server: what its agent costs the server, and the node.

The agent's namespace reaches the server's by a cable of its own, whose counters tell the bytes.  Objects are put into
etcd directly, which is what makes a hundred thousand of them and their churn affordable beside what is measured; the
API server lists and watches them as always.
"""

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from contenders import Flock, node_config
from controlplane import PORT, SERVICE, Failed, Server, is_built, watched_server
from events import RuleEvents
from large import NAME, NODE, UID, Cluster, Kept
from launching import BenchError, Command
from measuring import Bench, Outcome, Table, Verdict, attach, show
from scale import cpu_ns, read_memory
from world import Pod

HERE_PODS, RATE = 100, 100  # pods on the node; changes of pods elsewhere, a second
START_PATIENCE, CALM, QUIET = 300.0, 3.0, 10.0  # seconds
RSS_LIMIT, CPU_LIMIT, START_LIMIT = 150.0, 10.0, 15.0  # MiB, percent of a core, seconds
USUAL, EVERYBODY = "usual policies", "one that allows all pods of the cluster"


class LargeCluster:
    name = "cluster"
    title = "One node of a large cluster"

    def run(self, bench: Bench) -> Outcome:
        pods, namespaces = bench.effort.large
        cluster = Cluster(pods=pods, namespaces=namespaces, here=HERE_PODS)
        raw: dict[str, Any] = {}
        if not is_built():
            raise BenchError("no API server: `make e2e` builds it, once")
        try:
            with watched_server() as server:
                self._measure(bench, server, cluster, raw)
        except (subprocess.SubprocessError, OSError, AssertionError) as problem:
            raise BenchError(f"no API server: {problem}") from problem
        return Outcome([_table(raw)], _verdicts(raw), raw)

    def _measure(self, bench: Bench, server: Server, cluster: Cluster, raw: dict[str, Any]) -> None:
        server.apply(node_config(NODE))
        kept = Kept(server, cluster)
        with _server_away(server):
            kept.fill()
        node = _Node(bench, server, cluster)
        attach(bench, [node] * HERE_PODS)
        for policies in (USUAL, EVERYBODY):
            if policies == EVERYBODY:
                kept.everybody_is_a_peer()
            try:
                raw[policies] = self._one(bench, node, kept)
            except BenchError as problem:
                bench.complain(f"{policies}: {problem}")

    def _one(self, bench: Bench, node: "_Node", kept: Kept) -> dict[str, float]:
        """A start with all that is there, some rest, and the churn."""
        time.sleep(CALM)
        node.kill()
        node.forget_the_cluster()
        found: dict[str, float] = {}
        events, began, before = RuleEvents(node.node), time.monotonic_ns(), node.received()
        node.start()
        found["start s"] = (events.wait(patience=START_PATIENCE) - began) / 1e9
        node.wait_until_ready()
        events.close()
        found["start MiB"] = (node.received() - before) / 2**20
        found["start CPU s"] = cpu_ns(node.pid) / 1e9
        time.sleep(CALM)
        found["RSS MiB"] = read_memory(node.pid)["rss"]
        quiet = _Cost.of(node)
        time.sleep(QUIET)
        found["quiet CPU %"], found["quiet kB/s"] = quiet.since(node)
        with kept.churn(rate=RATE) as churn:
            cost = _Cost.of(node)
            time.sleep(bench.effort.churn_seconds)
            found["churn CPU %"], found["churn kB/s"] = cost.since(node)
        found["changes/s"] = churn.done / bench.effort.churn_seconds
        found["churn RSS MiB"] = read_memory(node.pid)["rss"]
        found["watches"] = len(node.ask("status")["watches"])
        return found


@dataclass(frozen=True)
class _Cost:
    """What a node had used by a moment."""

    at: int
    cpu: int
    received: int

    @classmethod
    def of(cls, node: "_Node") -> "_Cost":
        return cls(time.monotonic_ns(), cpu_ns(node.pid), node.received())

    def since(self, node: "_Node") -> tuple[float, float]:
        """Percent of a core, and kB a second."""
        now = self.of(node)
        lasted = now.at - self.at
        return (now.cpu - self.cpu) / lasted * 100, (now.received - self.received) / lasted * 1e6


@dataclass(frozen=True)
class _ClusterPod(Pod):
    """A sandbox for one of the cluster's pods."""

    cluster: Cluster
    number: int

    @property
    def namespace(self) -> str:
        return self.cluster.namespace(self.number)

    @property
    def name(self) -> str:
        return self.cluster.words(self.number)[NAME]

    @property
    def uid(self) -> str:
        return self.cluster.words(self.number)[UID]


class _Node(Flock):
    """The agent at the API server, by a cable between their namespaces."""

    patience = START_PATIENCE

    def __init__(self, bench: Bench, server: Server, cluster: Cluster) -> None:
        self.cluster = cluster
        self._numbers = iter(sorted(cluster.here))
        self._server = server.netns.name
        self._is_connected = False
        source = ["--kubeconfig", server.kubeconfig, "--apiserver", f"https://{SERVICE}:{PORT}"]
        super().__init__(bench.world, node=NODE, source=source)

    def start(self) -> None:
        if not self._is_connected:
            self._is_connected = True
            for words in (
                f"link add api netns {self.node.name} type veth peer name node netns {self._server}",
                f"-n {self.node.name} link set api up",
                f"-n {self.node.name} address add 198.18.0.2/24 dev api",
                f"-n {self._server} link set node up",
                f"-n {self._server} address add 198.18.0.1/24 dev node",
                f"-n {self.node.name} route add {SERVICE} via 198.18.0.1",
            ):
                _ip(words)
        super().start()

    def forget_the_cluster(self) -> None:
        """An agent whose API server is slow would go on with what an earlier life knew."""
        (self._home / "state" / "cluster.json").unlink(missing_ok=True)

    def received(self) -> int:
        """Bytes from the API server so far."""
        (link,) = json.loads(_ip(f"-n {self.node.name} -s -j link show api"))
        return int(link["stats64"]["rx"]["bytes"])

    def expect(self, pods: Sequence[Pod]) -> None:
        """The API server tells of them."""

    def add(self, pod: Pod) -> Command:
        return super().add(_ClusterPod(pod.serial, pod.netns, self.cluster, next(self._numbers)))


def _ip(words: str) -> str:
    return subprocess.run(["ip", *words.split()], check=True, capture_output=True, text=True).stdout


@contextmanager
def _server_away(server: Server) -> Iterator[None]:
    """It would count every transaction of many objects as one change."""
    server.kill_api_server()
    yield
    try:
        server.start_api_server()
    except Failed:  # it reads all of it first
        server.place.wait("the API server", server.ready, role="kube-apiserver", patience=START_PATIENCE)


def _table(raw: dict[str, Any]) -> Table:
    columns = list(raw)
    rows = list(dict.fromkeys(row for found in raw.values() for row in found))
    return Table(["", *columns], [[row, *(show(raw[column].get(row)) for column in columns)] for row in rows])


def _verdicts(raw: dict[str, Any]) -> Sequence[Verdict]:
    found = []
    for policies, numbers in raw.items():
        found += [
            Verdict(
                f"agent RSS, both processes, beside churn, {policies}",
                numbers.get("churn RSS MiB"),
                RSS_LIMIT,
                unit=" MiB",
            ),
            Verdict(f"agent CPU beside churn, {policies}", numbers.get("churn CPU %"), CPU_LIMIT, unit=" %"),
            Verdict(f"agent started → in force, {policies}", numbers.get("start s"), START_LIMIT, unit=" s"),
        ]
    return found
