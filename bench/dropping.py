"""A minute in which one pod sends nothing but what is dropped, and what that costs others' ADDs and the agent's memory.

Our rules tell of a few drops a second in each place.  Here every single one is told as well, by a rule of the bench's
own that has no limit: what many places together, or somebody else's rules, could do to whoever listens.
"""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import clusters
from contenders import Flock
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
from scale import cpu_ns, read_memory

ADD_LIMIT, GROWTH_LIMIT = 1.5, 8.0  # times, MiB
RATE = 100_000  # packets a second, if the machine can
ROUND = 10  # ADDs, then as many DELs
ALL_TOLD = """
add table netdev bench
add chain netdev bench in {{ type filter hook ingress device "{interface}" priority -500; }}
add rule netdev bench in ether type ip log prefix "flock spoofed" group 133
"""
# From an address that is not the pod's, so that it is dropped where a packet first meets our rules.
_SENDER = """
import socket, sys, time
frame = bytes.fromhex("02666c6f636b" "0a0000000001" "0800" "4500001c00000000" "401125a5")
frame += socket.inet_aton("198.51.100.99") + socket.inet_aton("198.51.100.98") + bytes.fromhex("0400003500080000")
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
raw.bind(("eth0", 0))
raw.setsockopt(263, 20, 1)  # PACKET_QDISC_BYPASS
rate, sent, began = int(sys.argv[1]), 0, time.monotonic()
while True:
    ahead = sent / rate - (time.monotonic() - began)
    if ahead > 0.005:
        time.sleep(ahead)
    for _ in range(200):
        try:
            raw.send(frame)
        except OSError:
            pass
    sent += 200
"""


class Dropping:
    name = "drops"
    title = "Others' pods beside a flood of drops"

    def run(self, bench: Bench) -> Outcome:
        raw: dict[str, Any] = {"before": [], "beside": []}
        for flock in bench.enter(lambda: Flock(bench.world, node="flock", objects=clusters.namespaces())):
            warm_up(bench, [flock])
            try:
                self._measure(bench, flock, raw)
            except BenchError as problem:
                bench.complain(str(problem))
        return Outcome([_table(raw)], _verdicts(raw), raw)

    def _measure(self, bench: Bench, flock: Flock, raw: dict[str, Any]) -> None:
        (evil,) = attach(bench, [flock])
        _nft(flock.node, "-f", "-", script=ALL_TOLD.format(interface=_host_side(evil)))
        for _ in range(max(1, bench.effort.probes // ROUND)):
            raw["before"] += _others(bench, flock)
        raw["rss"] = [read_memory(flock.pid)["rss"]]
        command = ["nsenter", f"--net={evil.pod.netns}", sys.executable, "-c", _SENDER, str(RATE)]
        with subprocess.Popen(command) as sender:
            try:
                began, dropped, used = time.monotonic(), _spoofed(flock.node), cpu_ns(flock.pid)
                while time.monotonic() - began < bench.effort.flood_seconds:
                    raw["beside"] += _others(bench, flock)
                    raw["rss"].append(read_memory(flock.pid)["rss"])
                lasted = time.monotonic() - began
                raw["rate"] = (_spoofed(flock.node) - dropped) / lasted
                # numbers count what is passed over
                raw["heard"] = flock.ask("policy.drops", "0")["happened"][-1]["number"] / lasted
                raw["cpu"] = (cpu_ns(flock.pid) - used) / lasted / 1e7
            finally:
                sender.kill()


def _others(bench: Bench, flock: Flock) -> list[float]:
    attachments = attach(bench, list(itertools.repeat(flock, ROUND)))
    detach(bench, attachments)
    return [attachment.added.ms for attachment in attachments]


def _host_side(evil: Attachment) -> str:
    return str(json.loads(evil.added.output)["interfaces"][0]["name"])


def _nft(node: Path, *arguments: str, script: str = "") -> str:
    command = ["nsenter", f"--net={node}", "nft", *arguments]
    done = subprocess.run(command, input=script, text=True, capture_output=True, check=False)
    if done.returncode:
        raise BenchError(f"nft: {done.stderr.strip()}")
    return done.stdout


def _spoofed(node: Path) -> int:
    """How many packets our rules have dropped for their sender."""
    listed = json.loads(_nft(node, "-j", "list", "counters"))["nftables"]
    counters = (item["counter"] for item in listed if "counter" in item)
    return sum(int(counter["packets"]) for counter in counters if counter["name"] == "spoofed")


def _growth(raw: dict[str, Any]) -> float | None:
    memory = raw.get("rss", ())
    return max(memory[1:]) - memory[0] if len(memory) > 1 else None


def _table(raw: dict[str, Any]) -> Table:
    before, beside = raw["before"], raw["beside"]
    worst = percentile(beside, 100) if beside else None
    row = [
        show(raw.get("rate")),
        show(raw.get("heard")),
        str(len(beside)),
        *(show(value) for value in (median(before), median(beside), worst, _growth(raw), raw.get("cpu"))),
    ]
    columns = [
        "drops/s",
        "heard/s",
        "ADDs",
        "ADD p50 before, ms",
        "ADD p50 beside",
        "worst",
        "RSS MiB more",
        "agent CPU %",
    ]
    return Table(columns, [row])


def _verdicts(raw: dict[str, Any]) -> Sequence[Verdict]:
    slower = ratio(median(raw["beside"]), median(raw["before"]))
    return [
        Verdict("others' ADD p50 beside a flood of drops / before", slower, ADD_LIMIT),
        Verdict("agent RSS more, beside a flood of drops", _growth(raw), GROWTH_LIMIT, unit=" MiB"),
    ]
