"""What one tenant can cost the others: their ADDs and DELs beside an attack, against the same without.

Each attack uses only what a tenant has: policies of its own namespace, annotations of its own pods, packets from its
own pod; and one what any local user of the node has, the status page.  It goes on while others' pods come and go.
Ratios are between medians of the same agent in the same run, attacks taking turns with peace.
"""

import contextlib
import itertools
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import clusters
from contenders import Flock
from events import within
from launching import BenchError
from measuring import (
    Attachment,
    Bench,
    Outcome,
    Table,
    Verdict,
    attach,
    detach,
    median,
    percentile,
    ratio,
    show,
    warm_up,
)

ADD_LIMIT, WORST_LIMIT, DEL_LIMIT = 3.0, 1000.0, 300.0  # times, ms, ms more
PEACE = "nobody"
ROUND = 10  # ADDs, then as many DELs, at each turn
EDIT_EVERY = 0.1  # seconds between a tenant's edits of its policies
PEERS, PORTS = 350, 1000  # of the policy that multiplied
FLOWS, IDLE_CONNECTIONS, VOUCHED = 60_000, 1_100, 24_000
SELECTORS, FLIPPING = 250, 20  # of each of eight policies, as many as fit on a node; pods elsewhere they mean
SETTLE, SETTLE_POLICIES = 1.0, 15.0

Times = dict[str, dict[str, list[float]]]  # by attack: milliseconds of `add` and `del`
Attack = Callable[[Flock, Attachment], AbstractContextManager[None]]


class Hostile:
    name = "hostile"
    title = "Others' pods beside a hostile tenant"

    def run(self, bench: Bench) -> Outcome:
        times: Times = {}
        for flock in bench.enter(lambda: Flock(bench.world, node="flock", objects=clusters.namespaces())):
            warm_up(bench, [flock])
            evil = attach(bench, [flock])
            for name, attack in ATTACKS.items():
                try:
                    _measure(bench, flock, evil[0], name, attack, times)
                except BenchError as problem:
                    bench.complain(f"{name}: {problem}")
        return Outcome([_table(times)], _verdicts(times), {"ms": times})


def _measure(bench: Bench, flock: Flock, evil: Attachment, name: str, attack: Attack, times: Times) -> None:
    before = times.setdefault(f"{PEACE} ({name})", {"add": [], "del": []})
    beside = times.setdefault(name, {"add": [], "del": []})
    for _ in range(max(1, bench.effort.probes // ROUND // 2)):
        _others(bench, flock, before)
        with attack(flock, evil):
            time.sleep(SETTLE)
            _others(bench, flock, beside)
        time.sleep(SETTLE)


def _others(bench: Bench, flock: Flock, times: dict[str, list[float]]) -> None:
    attachments = attach(bench, [flock] * ROUND)
    times["add"] += [attachment.added.ms for attachment in attachments]
    times["del"] += [run.ms for _, run in detach(bench, attachments)]


# --- attacks ---


@contextlib.contextmanager
def _edits(flock: Flock, versions: Sequence[Sequence[clusters.Object]]) -> Iterator[None]:
    """The tenant's policies, edited again and again."""
    over = threading.Event()

    def edit() -> None:
        for objects in itertools.cycle(versions):
            if over.wait(EDIT_EVERY):
                return
            flock.tell("evil", objects)

    editing = threading.Thread(target=edit)
    editing.start()
    try:
        yield
    finally:
        over.set()
        editing.join()
        flock.tell("evil", [])


def _multiplying(flock: Flock, evil: Attachment) -> AbstractContextManager[None]:
    """One policy whose peers and named ports multiply."""
    peers = [clusters.own(f"app-{number}") for number in range(PEERS)]

    def version(first: int) -> clusters.Object:
        found = clusters.policy("evil", selects={"pod": evil.pod.name}, peers=peers)
        ports = [{"protocol": "TCP", "port": f"p{number}"} for number in range(first, first + PORTS)]
        found["spec"]["ingress"][0]["ports"] = ports
        return found | {
            "spec": found["spec"] | {"policyTypes": ["Ingress", "Egress"], "egress": [{"to": peers, "ports": ports}]}
        }

    return _edits(flock, [[version(0)], [version(1)]])


def _many(flock: Flock, evil: Attachment) -> AbstractContextManager[None]:
    """Two hundred small policies, all edited at once."""

    def version(port: int) -> list[clusters.Object]:
        return [
            clusters.policy(f"evil-{n}", selects={"pod": evil.pod.name}, peers=[clusters.own(f"a{n}")], port=port)
            for n in range(200)
        ]

    return _edits(flock, [version(80), version(81)])


def _strict(flock: Flock, evil: Attachment) -> AbstractContextManager[None]:
    """A strict policy: every edit gives the pod a new number."""

    def version(port: int) -> list[clusters.Object]:
        found = clusters.policy("evil", selects={"pod": evil.pod.name}, peers=[clusters.own("a")], port=port)
        found["metadata"]["annotations"] = {"flock.fritzlab.net/strict": "true"}
        return [found]

    return _edits(flock, [version(80), version(81)])


def _vouching(flock: Flock, evil: Attachment) -> AbstractContextManager[None]:
    """Pods elsewhere that claim addresses by the thousand, and a policy whose peers they are."""

    def version(first: int) -> list[clusters.Object]:
        pods = [clusters.cluster_pod(number, app="evil") for number in range(3)]
        for number, pod in enumerate(pods):
            start = int(clusters.FIRST6) + (number << 32) + first
            claimed = ",".join(str(type(clusters.FIRST6)(start + n)) for n in range(VOUCHED))
            pod["metadata"]["annotations"] = {"flock.fritzlab.net/addresses": claimed}
        return [*pods, clusters.policy("evil", selects={"pod": evil.pod.name}, peers=[clusters.everywhere("evil")])]

    return _edits(flock, [version(0), version(1)])


@contextlib.contextmanager
def _labels(flock: Flock, evil: Attachment) -> Iterator[None]:
    """Pods elsewhere that change a label all the time, and two thousand selectors that mean it."""

    def peer(unlike: str) -> clusters.Object:
        expression = {"key": "app", "operator": "In", "values": ["flipped", unlike]}
        return {"namespaceSelector": {}, "podSelector": {"matchExpressions": [expression]}}

    def version(app: str) -> list[clusters.Object]:
        return [clusters.cluster_pod(number * clusters.NAMESPACES, app=app) for number in range(FLIPPING)]

    selects = {"pod": evil.pod.name}
    peers = [[peer(f"{policy}-{number}") for number in range(SELECTORS)] for policy in range(8)]
    policies = [clusters.policy(f"evil-{n}", selects=selects, peers=found) for n, found in enumerate(peers)]
    flock.tell("evil-policies", policies)
    time.sleep(SETTLE_POLICIES)  # pods of their own namespace wait for them
    try:
        with _edits(flock, [version("flipped"), version("flopped")]):
            yield
    finally:
        flock.tell("evil-policies", [])
        time.sleep(SETTLE_POLICIES)


@contextlib.contextmanager
def _flows(flock: Flock, evil: Attachment) -> Iterator[None]:
    """Connections by the ten thousand, kept in the kernel's memory."""
    _inside(evil, _FLOWS, FLOWS).wait()
    yield


@contextlib.contextmanager
def _solicitations(flock: Flock, evil: Attachment) -> Iterator[None]:
    """Neighbour solicitations from invented senders, as fast as they go."""
    flooding = _inside(evil, _SOLICITING, 0)
    try:
        yield
    finally:
        flooding.kill()
        flooding.wait()


@contextlib.contextmanager
def _page(flock: Flock, evil: Attachment) -> Iterator[None]:
    """Idle connections to the status page."""
    with contextlib.ExitStack() as held:
        for _ in range(IDLE_CONNECTIONS):
            with within(flock.node):
                connection = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            connection.settimeout(1)
            with contextlib.suppress(OSError):
                connection.connect(("127.0.0.1", 9465))
        yield


_FLOWS = """
import socket, sys
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(60)]
for number in range(int(sys.argv[1])):
    try:
        sockets[number % 60].sendto(b"x", (f"198.18.{number // 60 % 250}.{number // 15000 + 1}", 1024 + number % 60000))
    except OSError:
        pass
"""
_SOLICITING = """
import os, socket
target = bytes.fromhex("fe80000000000000" "0000000000000001")
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86DD))
raw.bind(("eth0", 0))
def checksum(data):
    total = sum(int.from_bytes(data[i:i + 2]) for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2)
while True:
    source = bytes.fromhex("fe80000000000000") + os.urandom(8)
    body = target + b"\\x01\\x01" + os.urandom(6)
    payload = b"\\x87\\0\\0\\0" + b"\\0\\0\\0\\0" + body
    pseudo = source + target + len(payload).to_bytes(4) + b"\\0\\0\\0\\x3a"
    payload = payload[:2] + checksum(pseudo + payload) + payload[4:]
    header = b"\\x60\\0\\0\\0" + len(payload).to_bytes(2) + b"\\x3a\\xff" + source + target
    raw.send(bytes.fromhex("02666c6f636b") + b"\\x0a\\0\\0\\0\\0\\1" + b"\\x86\\xdd" + header + payload)
"""


def _inside(evil: Attachment, program: str, amount: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["nsenter", f"--net={evil.pod.netns}", sys.executable, "-c", program, str(amount)])


ATTACKS: dict[str, Attack] = {
    "a policy that multiplies": _multiplying,
    "200 policies edited": _many,
    "strict edits": _strict,
    "addresses vouched for": _vouching,
    "labels elsewhere": _labels,
    "60,000 flows": _flows,
    "solicitations": _solicitations,
    "1,100 idle connections": _page,
}


# --- telling ---


def _more(times: Times, name: str) -> float | None:
    """By how many milliseconds the median DEL is longer."""
    beside, before = median(times[name]["del"]), median(times[f"{PEACE} ({name})"]["del"])
    return beside - before if beside is not None and before is not None else None


def _slower(times: Times, name: str) -> float | None:
    return ratio(median(times[name]["add"]), median(times[f"{PEACE} ({name})"]["add"]))


def _table(times: Times) -> Table:
    rows = []
    for name in ATTACKS.keys() & times.keys():
        add, before = times[name]["add"], times[f"{PEACE} ({name})"]["add"]
        shown = [show(median(before)), show(median(add)), show(percentile(add, 100) if add else None)]
        rows.append([name, str(len(add)), *shown, show(_slower(times, name)), show(_more(times, name))])
    columns = ["others beside", "runs", "ADD p50 before, ms", "ADD p50", "worst", "times", "DEL p50 ms more"]
    return Table(columns, sorted(rows))


def _verdicts(times: Times) -> Sequence[Verdict]:
    found: list[Verdict] = []
    for name in ATTACKS:
        if name in times:
            worst: Any = percentile(times[name]["add"], 100) if times[name]["add"] else None
            found += [
                Verdict(f"others' ADD p50 beside {name} / before", _slower(times, name), ADD_LIMIT),
                Verdict(f"others' worst ADD beside {name}", worst, WORST_LIMIT, unit=" ms"),
                Verdict(f"others' DEL p50 beside {name}, more than before", _more(times, name), DEL_LIMIT, unit=" ms"),
            ]
    return found
