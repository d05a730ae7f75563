"""NetworkPolicy: how soon a change is in force on a full node of a large cluster, and what the rules cost.

`changes` uses pods attached by ADD and a cluster told by manifests; the kernel announces when a transaction is in
force, and a packet checks it.  `adding` compares ADDs of pods that a policy selects with ADDs of pods without one.
What rules cost packets is in `talking`.
"""

import itertools
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import Any

import clusters
import talking
from contenders import Contender, Flock, Floor
from events import RuleEvents, within
from measuring import (
    Attachment,
    Bench,
    Outcome,
    Table,
    Verdict,
    attach,
    in_turn,
    median,
    percentile,
    ratio,
    show,
    warm_up,
)
from scale import read_memory

FILL_AT_ONCE = 16
REST = 0.05  # seconds between changes
CALM = 1.5  # seconds until the agent has taken in what it was told and rests
PORT, PATIENCE = 9, 0.2  # of the packet that checks a change; a forbidden one is waited for this long
ONE, ALL, RULE, PEER = "a policy for one pod", "a policy for all pods", "a rule for all pods", "a peer's label"
PRIORITY = "a cluster policy's priority"
START, ANEW = "agent started → in force", "tables deleted → made anew"
OPEN, ISOLATED = "flock, no policy", "flock, isolated"
CHANGE_LIMIT, RSS_LIMIT = 50.0, 80.0  # ms, MiB: 75 with 110 local pods, of which there are 1000

Times = dict[str, list[float]]  # milliseconds


class PolicyChanges:
    name = "policy"
    title = "NetworkPolicy: changes on a full node, load, traffic, ADD"

    def run(self, bench: Bench) -> Outcome:
        rates = talking.measure(bench)
        added = _adding(bench)
        bench.world.clear()  # the kernel's part in an ADD grows with all namespaces together
        times: Times = {}
        rss = None
        for flock in bench.enter(lambda: _full_node(bench)):
            _change(bench, flock, times)
            rss = read_memory(flock.pid)["rss"]
            _load(bench, flock, times)
            _move(bench, flock, times)
        tables = [_change_table(times, bench), *talking.tables(rates), _add_table(added)]
        raw: dict[str, Any] = {"ms": times, "rss_mib": rss, "per_second": rates, "add_ms": added}
        return Outcome(tables, [*_verdicts(times, rss, bench), *talking.verdicts(rates, bench)], raw)


# --- changes ---


class _FullNode(Flock):
    """A node full of pods, all isolated by one policy and reached by one app, in a large cluster."""

    pods: list[Attachment]


def _full_node(bench: Bench) -> _FullNode:
    effort = bench.effort
    base = clusters.policy("base", selects=None, peers=[clusters.everywhere("app-1")])
    cluster = [*clusters.namespaces(), *clusters.cluster_pods(effort.cluster_pods), base]
    node = _FullNode(bench.world, node="flock-policy", objects=cluster)
    node.pods = attach(bench, [node] * effort.policy_pods, at_once=FILL_AT_ONCE)
    time.sleep(CALM)
    return node


def _change(bench: Bench, flock: _FullNode, times: Times) -> None:
    """From before the manifest is written to the new rules' being in force."""
    events = RuleEvents(flock.node)
    rounds = bench.effort.policy_changes
    everybody: list[clusters.Object] = [{"namespaceSelector": {}}]
    rule = [clusters.policy("rule", selects=None, peers=everybody, port=port) for port in (80, 443)]
    events.forget()
    flock.tell("rule", [rule[0]])
    events.wait(into="ingress")
    changing = bench.effort.cluster_pods  # one pod more, in a file of its own
    flock.tell("peer", [clusters.cluster_pod(changing, app="app-2")])
    events.wait()
    time.sleep(CALM)

    def timed(what: str, name: str, objects: Sequence[clusters.Object]) -> None:
        events.forget()
        asked = time.monotonic_ns()
        flock.tell(name, objects)
        into = "ingress" if what in (ONE, ALL) else ""  # where pods are judged by other policies
        times.setdefault(what, []).append((events.wait(into=into) - asked) / 1e6)
        time.sleep(REST)

    for number, packet in zip(range(rounds), itertools.cycle(_packets(flock)), strict=False):
        allowing = clusters.policy("one", selects={"pod": packet.target}, peers=[clusters.own("web")])
        timed(ONE, "one", [allowing])
        if not packet.passes():
            bench.complain(f"policy: {packet.target} was not reached although a policy in force allows it")
        timed(ONE, "one", [])
        if packet.passes():
            bench.complain(f"policy: {packet.target} was reached although no policy in force allows it")
        timed(RULE, "rule", [rule[(number + 1) % 2]])
        timed(PEER, "peer", [clusters.cluster_pod(changing, app=f"app-{1 + number % 2}")])
        if number % 4 == 0:  # the dearest by far
            timed(ALL, "all", [clusters.policy("all", selects={"app": "web"}, peers=everybody, port=8080)])
            timed(ALL, "all", [])
    events.close()


def _move(bench: Bench, flock: _FullNode, times: Times) -> None:
    """One of a hundred policies of the administrator, about all pods, gets another place."""
    events = RuleEvents(flock.node)
    flock.tell("tiers", [clusters.cluster_policy(n, priority=10 + n) for n in range(1, talking.CLUSTER_POLICIES)])
    flock.tell("place", [clusters.cluster_policy(0, priority=0)])
    events.wait(into="egress")
    time.sleep(CALM)
    for number in range(bench.effort.policy_changes):
        events.forget()
        asked = time.monotonic_ns()
        flock.tell("place", [clusters.cluster_policy(0, priority=(500, 0)[number % 2])])
        times.setdefault(PRIORITY, []).append((events.wait() - asked) / 1e6)
        time.sleep(REST)
    events.close()


class _Packet:
    """A datagram from one pod to another, both of this node; a new flow each time."""

    def __init__(self, sender: Attachment, receiver: Attachment) -> None:
        self.target = receiver.pod.name
        self._from = sender.pod.netns
        self._address = talking.address(receiver)
        with within(receiver.pod.netns):
            self._receiving = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self._receiving.settimeout(PATIENCE)
        self._receiving.bind((self._address, PORT))

    def passes(self) -> bool:
        with within(self._from):
            sending = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        with sending:
            sending.sendto(b"?", (self._address, PORT))
        try:
            return bool(self._receiving.recv(16))
        except TimeoutError:
            return False


def _packets(flock: _FullNode) -> list[_Packet]:
    return [_Packet(flock.pods[0], receiver) for receiver in flock.pods[1:5]]


def _load(bench: Bench, flock: _FullNode, times: Times) -> None:
    events = RuleEvents(flock.node)
    for _ in range(bench.effort.loads):
        flock.kill()
        events.forget()
        asked = time.monotonic_ns()
        flock.start()
        times.setdefault(START, []).append((events.wait() - asked) / 1e6)
        flock.wait_until_ready()
        time.sleep(CALM)
        events.forget()
        asked = time.monotonic_ns()
        subprocess.run(["nsenter", f"--net={flock.node}", "nft", "delete", "table", "inet", "flock"], check=True)
        events.wait()  # the deletion itself
        times.setdefault(ANEW, []).append((events.wait() - asked) / 1e6)
        time.sleep(CALM)
    events.close()


# --- ADD ---


def _adding(bench: Bench) -> Times:
    objects = [
        *clusters.namespaces(),
        clusters.policy("isolated", selects={"app": "web"}, peers=[clusters.own("web")], port=80),
    ]
    above = [clusters.cluster_policy(number, priority=number) for number in range(talking.CLUSTER_POLICIES)]
    above = [*clusters.namespaces(), *above]
    contenders: list[Contender] = [
        *bench.enter(lambda: Flock(bench.world, node="flock-open", label=OPEN)),
        *bench.enter(lambda: Flock(bench.world, node="flock-isolated", label=ISOLATED, objects=objects)),
        *bench.enter(lambda: Flock(bench.world, node="flock-tiers-adding", label=talking.TIERS, objects=above)),
        *bench.enter(lambda: Floor(bench.world, node="floor-adding", flushes=1)),
    ]
    warm_up(bench, contenders)
    times: Times = {contender.label: [] for contender in contenders}
    for attachment in attach(bench, list(in_turn(contenders, bench.effort.rounds))):
        times[attachment.contender.label].append(attachment.added.ms)
    return times


# --- telling ---


def _change_table(times: Times, bench: Bench) -> Table:
    rows = [
        [what, str(len(samples)), *(show(percentile(samples, percent)) for percent in (50, 90, 100))]
        for what, samples in times.items()
    ]
    beside = f"beside {bench.effort.policy_pods} local and {bench.effort.cluster_pods} other pods"
    return Table([beside, "runs", "p50 ms", "p90", "max"], rows)


def _add_table(times: Times) -> Table:
    isolated = median(times.get(ISOLATED, []))
    rows = [
        [label, str(len(samples)), *(show(percentile(samples, percent)) for percent in (50, 90, 99)),
         show(ratio(isolated, median(samples)))]
        for label, samples in times.items() if samples
    ]  # fmt: skip
    return Table(["ADD", "runs", "p50 ms", "p90", "p99", "isolated / it"], rows)


def _verdicts(times: Times, rss: float | None, bench: Bench) -> Sequence[Verdict]:
    beside = f"{bench.effort.policy_pods} local pods, {bench.effort.cluster_pods} in the cluster"
    return [
        *(
            Verdict(f"{what} → in force, p50, {beside}", median(times.get(what, [])), CHANGE_LIMIT, unit=" ms")
            for what in (ONE, RULE, PEER, ALL, PRIORITY)
        ),
        Verdict(f"agent RSS, both processes, {beside}", rss, RSS_LIMIT, unit=" MiB"),
    ]
