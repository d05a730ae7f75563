"""What the rules cost packets: two pods of a node talk, on nodes with ever more policies and on a node without flock.

A plain routed veth is what the kernel can do.  Most nodes track connections, because kube-proxy or anybody's firewall
asks them to: a plain veth on such a node is what flock's rules add their part to.
"""

import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import clusters
from contenders import Contender, Flock, Floor
from launching import BenchError, build
from measuring import Attachment, Bench, Table, Verdict, attach, in_turn, median, show

CALM = 1.5  # seconds until the agents have taken in what they were told and rest
PLAIN, TRACKED = "plain routed veth", "plain veth, tracked"
CLUSTER_POLICIES = 100
TIERS, AUDITED = f"flock, {CLUSTER_POLICIES} cluster policies", f"flock, {CLUSTER_POLICIES} audited"
# One rule that looks at connections, as every firewall has; it never matches.
TRACKING = "table inet t { chain f { type filter hook forward priority filter; ct state invalid ct mark 1 drop; }; }"
THROUGHPUT_LIMIT = 0.95  # of the plain veth's, and of the tracked one's
CONNECTIONS_LIMIT, SELECTED_LIMIT = 0.90, 0.60  # of the tracked veth's; of flock's without policies
UNITS = {"stream": 1e9 / 8, "connect": 1.0, "packets": 1.0}
HEADS = {"stream": "Gbit/s", "connect": "connections/s", "packets": "packets/s"}

Rates = dict[str, dict[str, list[float]]]  # by contender: bytes, connections and small packets per second
Pair = tuple[Attachment, Attachment]


def selecting(count: int) -> str:
    return f"flock, {count} policies"


def beside(count: int) -> str:
    """Without any there is no difference."""
    return f"flock, {count} of others" if count else selecting(0)


def measure(bench: Bench) -> Rates:
    """Each pair talks in turn."""
    levels = bench.effort.policy_levels
    makers: list[Callable[[], dict[str, Pair]]] = [partial(_plain, bench, tracked=tracked) for tracked in (False, True)]
    makers += [partial(_selected, bench, count) for count in levels]
    makers += [partial(_beside, bench, count) for count in levels if count]
    makers += [partial(_above, bench, audited=audited) for audited in (False, True)]
    pairs: dict[str, Pair] = {}
    for make in makers:
        for made in bench.enter(make):
            pairs |= made
    time.sleep(CALM)
    program, effort = build("conversation"), bench.effort
    kinds = (("stream", effort.stream_ms), ("connect", effort.connections), ("packets", effort.stream_ms))
    rates: Rates = {label: {what: [] for what, _ in kinds} for label in pairs}
    for label in in_turn(list(pairs), effort.conversations):
        for what, amount in kinds:
            try:
                rates[label][what].append(_converse(program, *pairs[label], what, amount))
            except BenchError as problem:
                bench.complain(f"{label}: {problem}")
    return rates


def _plain(bench: Bench, *, tracked: bool) -> dict[str, Pair]:
    floor = Floor(bench.world, node=f"floor-traffic{tracked:d}", flushes=0)
    floor.label = TRACKED if tracked else PLAIN
    if tracked:
        subprocess.run(["nsenter", f"--net={floor.node}", "nft", "-f", "-"], input=TRACKING, text=True, check=True)
    return _pair(floor, _attached(bench, floor, 2))


def _selected(bench: Bench, count: int) -> dict[str, Pair]:
    """All of them select the pods; only the last allows what is measured, so that each has to be asked."""
    objects = [
        clusters.policy(f"policy-{number:04}", selects={"app": "web"}, peers=[clusters.own(f"app-{number}")], port=80)
        for number in range(count - 1)
    ]
    if count:
        objects.append(clusters.policy("the-last", selects={"app": "web"}, peers=[clusters.own("web")]))
    node = f"flock-traffic{count}"
    flock = Flock(bench.world, node=node, label=selecting(count), objects=[*clusters.namespaces(), *objects])
    return _pair(flock, _attached(bench, flock, 2))


def _above(bench: Bench, *, audited: bool) -> dict[str, Pair]:
    """Policies of the cluster, all of which mean the pods and none of which decides: each has to be asked."""
    objects = [clusters.cluster_policy(number, priority=number) for number in range(CLUSTER_POLICIES)]
    for policy in objects if audited else ():
        policy["metadata"]["annotations"] = {"flock.fritzlab.net/audit": "true"}
    label, node = (AUDITED, "flock-audited") if audited else (TIERS, "flock-tiers")
    flock = Flock(bench.world, node=node, label=label, objects=[*clusters.namespaces(), *objects])
    return _pair(flock, _attached(bench, flock, 2))


def _beside(bench: Bench, count: int) -> dict[str, Pair]:
    """All of them select a third pod of the node."""
    node = f"flock-beside{count}"
    flock = Flock(bench.world, node=node, label=beside(count), objects=clusters.namespaces())
    *pair, other = _attached(bench, flock, 3)
    chosen = {"pod": other.pod.name}
    flock.tell("others", [
        clusters.policy(f"policy-{number:04}", selects=chosen, peers=[clusters.own(f"app-{number}")], port=80)
        for number in range(count)
    ])  # fmt: skip
    return _pair(flock, pair)


def _attached(bench: Bench, contender: Contender, count: int) -> list[Attachment]:
    made = attach(bench, [contender] * count)
    if len(made) < count:
        raise BenchError(f"{contender.label}: no pods to talk")
    return made


def _pair(contender: Contender, attachments: Sequence[Attachment]) -> dict[str, Pair]:
    client, server = attachments
    return {contender.label: (client, server)}


def _converse(program: Path, client: Attachment, server: Attachment, what: str, amount: int) -> float:
    ends = [str(client.pod.netns), str(server.pod.netns), address(server)]
    done = subprocess.run([program, *ends, what, str(amount)], capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"no traffic: {done.stderr.strip() or f'status {done.returncode}'}")
    return float(done.stdout)


def address(attachment: Attachment) -> str:
    """A pod's IPv6 address, as the kernel has it."""
    command = ["nsenter", f"--net={attachment.pod.netns}", "ip", "-6", "-br", "addr", "show", "scope", "global"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return next(word.split("/")[0] for word in shown.split() if word.count(":") > 1)


# --- telling ---


def tables(rates: Rates) -> list[Table]:
    tracked = {label for label in rates if label == TRACKED or "of others" in label}
    return [
        _table("TCP between two pods", rates, [*(label for label in rates if label not in tracked)], against=PLAIN),
        _table(
            "two pods, policies select others",
            rates,
            [label for label in rates if label in {*tracked, selecting(0)}],
            against=TRACKED,
            whats=("stream", "connect", "packets"),
        ),
    ]


def _table(
    title: str, rates: Rates, labels: Sequence[str], *, against: str, whats: Sequence[str] = ("stream", "connect")
) -> Table:
    of = "of plain" if against == PLAIN else "of tracked"
    rows = []
    for label in labels:
        cells = [label, str(len(rates[label]["stream"]))]
        for what in whats:
            found = median(rates[label][what])
            cells += [show(found / UNITS[what] if found else None), show(_ratio(rates, label, what, against=against))]
        rows.append(cells)
    return Table([title, "runs", *(head for what in whats for head in (HEADS[what], of))], rows)


def _ratio(rates: Rates, label: str, what: str, *, against: str) -> float | None:
    """The middle of the rounds' ratios: the two of a round were measured one after the other."""
    pairs = zip(rates.get(label, {}).get(what, []), rates.get(against, {}).get(what, []), strict=False)
    ratios = [one / other for one, other in pairs]
    return statistics.median(ratios) if ratios else None


def verdicts(rates: Rates, bench: Bench) -> list[Verdict]:
    levels = bench.effort.policy_levels
    most = selecting(levels[-1])

    def at_least(what: str, label: str, against: str, limit: float) -> Verdict:
        name = {"stream": "TCP throughput", "connect": "connections per second"}[what]
        return Verdict(
            f"{name}, {label} / {against}", _ratio(rates, label, what, against=against), limit, at_most=False
        )

    return [
        at_least("stream", most, PLAIN, THROUGHPUT_LIMIT),
        at_least("connect", most, selecting(0), SELECTED_LIMIT),
        *(
            at_least(what, beside(count), TRACKED, limit)
            for count in levels
            for what, limit in (("stream", THROUGHPUT_LIMIT), ("connect", CONNECTIONS_LIMIT))
        ),
    ]
