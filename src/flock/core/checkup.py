"""Does the network work?  What is asked, what was answered, how it is said.  Pure.

A check has a *ground*, a lab or a cluster, which puts two pods on each node and lets them, the nodes and whoever else
ask (`edge/probe.py`).  Here is what both have in common: the questions for so many places, the judgement of each reply,
and the table.  A row is one question; its `said` names the failing hop, its `look` the command to look further.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import msgspec

from flock.core.policy.elements import TABLES
from flock.core.tables import table

OPEN, CLOSED = 7777, 7778  # ports of a test pod; the policy of the check lets nobody reach the second one
# Routers spread flows over their paths: one bad path of two is missed by so many flows once in 256 times.
FLOWS = 8
DENIED_PATIENCE = 1.5  # seconds without an answer that prove a policy, beside an allowed port that answers

NAMESPACE = "flock-check"
SUBJECT = {"flock-check": "subject"}  # the label of pods that the policy selects
PROTOCOLS = ("UDP", "TCP")

Result = Literal["pass", "fail", "skip"]
MARKS: dict[Result, str] = {"pass": "✔", "fail": "✘", "skip": "–"}


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """Ask an address: is it reached (datagrams on so many flows, then a connection), is it by the largest packets of
    the interface, unfragmented, or what does a name stand for."""

    address: str
    port: int = OPEN
    kind: Literal["reach", "full", "name"] = "reach"
    flows: int = 1
    patience: float = 4.0  # seconds; a pod's server needs a moment on a busy node
    trace: bool = True


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    asked: int
    answered: int
    by: tuple[str, ...] = ()  # names of those who answered
    refused: bool = False  # it arrived where nobody listens
    error: str = ""  # of the first flow that failed, and so are all below
    size: int = 0
    too_big: int = 0  # the MTU that somebody told
    teller: str = ""  # who sent an error
    path: tuple[str, ...] = ()  # hops that were heard of; empty names did not say


class Asker(msgspec.Struct, frozen=True):
    """Who asks: a pod of a node, or the node itself."""

    node: str
    pod: str = ""

    @property
    def said(self) -> str:
        return f"{self.node}/{self.pod}" if self.pod else self.node


class Question(msgspec.Struct, frozen=True, kw_only=True):
    check: str
    asker: Asker
    target: str  # as shown
    family: str
    probe: Probe
    by: str = ""  # who has to answer
    denied: bool = False  # nobody may
    look: tuple[str, ...] = ("flockctl", "check")  # what tells more, on the asker's node


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What `-o json` shows."""

    check: str
    source: str
    target: str
    family: str = ""
    result: Result
    said: str = ""
    hop: str = ""  # where it failed, as far as it is known
    look: str = ""


class Place(msgspec.Struct, frozen=True):
    """A node with its test pods and their addresses, by family."""

    node: str
    pods: Mapping[str, Mapping[str, str]]

    def address(self, pod: str, family: str) -> str:
        return self.pods.get(pod, {}).get(family, "")


def policy(namespace: str) -> dict[str, Any]:
    """Of its subjects only the open port may be reached."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "only-the-open-port", "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": SUBJECT},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"protocol": protocol, "port": OPEN} for protocol in PROTOCOLS]}],
        },
    }


FAMILIES = ("ipv6", "ipv4")
ASKING, ASKED = "a", "b"  # the pods of a place; the policy selects the second


def by_family(addresses: Iterable[str]) -> dict[str, str]:
    """The first of each."""
    return {"ipv6" if ":" in a else "ipv4": a for a in reversed(tuple(addresses))}


def questions(places: Sequence[Place]) -> list[Question]:
    """Inside each place, from each to the next, from each node to its pod; for every family both ends have."""
    found: list[Question] = []
    for place in places:
        for check, asker in (("pod to pod", Asker(place.node, ASKING)), ("node to pod", Asker(place.node))):
            found += _reaching(check, asker, place, asked_from=place)
        found += _reaching("full size", Asker(place.node, ASKING), place, asked_from=place, full=True)
        found += [
            Question(
                check="policy denies",
                asker=Asker(place.node, ASKING),
                target=f"{place.node}/{ASKED}",
                family=family,
                probe=Probe(address=address, port=CLOSED, patience=DENIED_PATIENCE, trace=False),
                denied=True,
            )
            for family in FAMILIES
            if (address := place.address(ASKED, family)) and place.address(ASKING, family)
        ]
    for near, far in around(places):
        found += _reaching("pod to pod", Asker(near.node, ASKING), far, asked_from=near, flows=FLOWS)
        found += _reaching("full size", Asker(near.node, ASKING), far, asked_from=near, flows=FLOWS, full=True)
    return found


def around(places: Sequence[Place]) -> list[tuple[Place, Place]]:
    """Each and the next, in a ring: every node sends and receives."""
    if len(places) < 2:
        return []
    ring = list(pairwise(places))
    return [*ring, (places[-1], places[0])]


def _reaching(
    check: str, asker: Asker, place: Place, *, asked_from: Place, flows: int = 1, full: bool = False
) -> list[Question]:
    return [
        Question(
            check=check,
            asker=asker,
            target=f"{place.node}/{ASKED}",
            family=family,
            probe=Probe(address=address, flows=flows, kind="full" if full else "reach"),
            by=f"{ASKED}-{place.node}",
            look=("flockctl", "check") if place is asked_from else ("ip", "route", "get", address),
        )
        for family in FAMILIES
        if (address := place.address(ASKED, family)) and (asked_from.address(ASKING, family) or not asker.pod)
    ]


def judged(
    asked: Sequence[Question],
    replies: Sequence[Reply],
    *,
    owner: Callable[[str], str],
    look: Callable[[str, Sequence[str]], str],
) -> list[Row]:
    """`owner` names who has an address, `look` is a command as it is given to run on a node."""
    reached = {(q.asker, q.probe.address) for q, r in zip(asked, replies, strict=True) if r.answered and not q.denied}
    return [
        _row(q, r, control=(q.asker, q.probe.address) in reached, owner=owner, look=look)
        for q, r in zip(asked, replies, strict=True)
    ]


def _row(
    question: Question,
    reply: Reply,
    *,
    control: bool,
    owner: Callable[[str], str],
    look: Callable[[str, Sequence[str]], str],
) -> Row:
    said, hop, good = _denial(reply, control) if question.denied else _arrival(question, reply, owner=owner)
    return Row(
        check=question.check,
        source=question.asker.said,
        target=question.target,
        family=question.family,
        result="pass" if good else "fail",
        said=said,
        hop=hop,
        look="" if good else look(question.asker.node, question.look),
    )


def _denial(reply: Reply, control: bool) -> tuple[str, str, bool]:
    if reply.answered or reply.refused:
        return "the policy does not bite: a packet that it denies arrived", "", False
    if not control:
        return "cannot tell: what the policy allows does not arrive either", "", False
    return "", "", True


def _arrival(question: Question, reply: Reply, *, owner: Callable[[str], str]) -> tuple[str, str, bool]:
    others = [name for name in reply.by if question.by and name != question.by]
    if others:
        return f"{', '.join(others)} answered instead of {question.by}", "", False
    size = f"{reply.size} bytes" if question.probe.kind == "full" else ""
    if reply.answered == reply.asked:
        return (", ".join(reply.by) if question.probe.kind == "name" else size), "", True
    hop = reply.teller or next((h for h in reversed(reply.path) if h), "")
    named = _named(hop, owner) if hop else ""
    if reply.too_big:
        why = f"{named or 'this node'} lets no packet over {reply.too_big} bytes pass"
    elif reply.teller:
        why = f"{named}: {reply.error}"
    elif hop:
        why = f"{reply.error}; last heard of is {named}, nothing from there on"
    else:
        why = reply.error
    flows = f"{reply.asked - reply.answered} of {reply.asked} flows: " if reply.answered else ""
    return f"{size}{': ' if size else ''}{flows}{why}", named, False


def _named(address: str, owner: Callable[[str], str]) -> str:
    name = owner(address)
    return address if name == address else f"{name} ({address})"


def skipped(check: str, why: str, *, source: str = "-", target: str = "-", family: str = "") -> Row:
    return Row(check=check, source=source, target=target, family=family, result="skip", said=why)


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A node before it has pods; troubles are empty where all is well."""

    away: str = ""  # why its agent does not answer
    status: Mapping[str, Any] = {}  # `flockctl status`
    sessions: str = ""
    rules: str = ""
    spec: Mapping[str, Any] = {}  # the configuration in force
    chained: tuple[str, ...] = ()  # plugins of the runtime's list
    proxied: bool = False  # a kube-proxy serves Services here


def node_rows(node: str, look: Look, *, attach: str, command: Callable[[str], str]) -> list[Row]:
    """What is to be said of a node itself; `attach`: why it has no pods, `command` how to ask its flockctl."""
    trouble = look.away or "; ".join(look.status.get("not_ready", ()))
    note = "; ".join(look.status.get("degraded", ()))
    said = (
        ("agent", trouble, note, "status"),
        ("sessions", look.sessions, "", "bgp"),
        ("policy rules", look.rules, "", "check"),
        ("pods attach", attach, "", "happened"),
    )
    return [
        Row(
            check=check,
            source=node,
            target="-",
            result="fail" if trouble else "pass",
            said=trouble or (f"degraded: {note}" if note else ""),
            hop=node if trouble else "",
            look=command(verb) if trouble else "",
        )
        for check, trouble, note, verb in said
    ]


def session_trouble(sessions: Iterable[Mapping[str, Any]]) -> str:
    down = (s for s in sessions if not s["up"])
    return "; ".join(f"{s['peer']}: {', '.join(filter(None, (s['state'], s.get('last_error'))))}" for s in down)


def rules_trouble(tables: Iterable[str]) -> str:
    """Of what `nft list tables` prints: an agent that is away makes none again, and cannot tell."""
    gone = [table for table in TABLES if f"table {table}" not in {line.strip() for line in tables}]
    return f"policies are not enforced: table {', '.join(gone)} is gone" if gone else ""


def shown(rows: Sequence[Row]) -> str:
    """The table; below a row that failed, how to look further."""
    cells = [(MARKS[r.result], r.check, r.source, r.target, r.family or "-", _printable(r.said)) for r in rows]
    head, *lines = table(("", "CHECK", "FROM", "TO", "FAMILY", "SAID"), cells).splitlines()
    told = [f"{line}\n     look: {row.look}" if row.look else line for line, row in zip(lines, rows, strict=True)]
    counts = {result: sum(r.result == result for r in rows) for result in MARKS}
    summary = f"{counts['pass']} work, {counts['fail']} fail, {counts['skip']} skipped"
    return "\n".join((head, *told, summary))


def _printable(said: str) -> str:
    """Whoever answered, or wrote an event, does not write on a terminal."""
    return "".join(c if c.isprintable() else "?" for c in said)


def works(rows: Iterable[Row]) -> bool:
    return all(row.result != "fail" for row in rows)
