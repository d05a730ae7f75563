"""`flockctl policy try FILE`: who would be cut off from whom, were the policies of a file in force that nobody has
applied yet.  On this node or on all of a lab, for some time or until Ctrl-C.  Nothing is dropped, and nothing stays."""

import argparse
import contextlib
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flock.cli.answers import print_json, seconds
from flock.core.errors import FlockError
from flock.core.tables import table
from flock.edge.rpc_client import AgentError, Line, ask, holding
from flock.lab.fabric import Lab, locate

EVERY = 0.5  # seconds: an agent keeps the last 1000
LAST = 0.2  # what passed is told within this time


class Cut(NamedTuple):
    """Connections that would not have been: `source` and `destination` are pods, or addresses of whom nobody knows."""

    source: str
    destination: str
    protocol: str
    port: int
    direction: str
    policies: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="NetworkPolicies and ClusterNetworkPolicies as YAML or JSON; - is stdin"
    )
    parser.add_argument("--for", dest="seconds", type=seconds, metavar="SECONDS", help="default: until Ctrl-C")
    parser.add_argument("--lab", metavar="NAME", help="on all nodes of a lab on this machine")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    text, where = _read(arguments.file), _nodes(arguments)
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(_trying(run_dir, text)) for run_dir in where]
        ended = _ended_by_signals()
        answer = nodes[0].line.answer
        for said in (*answer["warnings"], f"trying {', '.join(answer['policies'])}; Ctrl-C ends it"):
            print(f"flockctl: {said}", file=sys.stderr, flush=True)
        started = time.monotonic()
        _watch(nodes, arguments.seconds, ended)
        lasted = time.monotonic() - started
    cuts = sum((node.cuts for node in nodes), Counter[Cut]())
    connections = max(sum(node.counted for node in nodes), cuts.total())
    if arguments.output == "json":
        rows = [cut._asdict() | {"count": count} for cut, count in cuts.most_common()]
        told = {"policies": answer["policies"], "seconds": round(lasted, 3)}
        print_json(told | {"connections": connections, "cut": rows})
    else:
        print(_summary(answer["policies"], lasted, connections, cuts))
    return 0


class _Node:
    """One that tries them, and what it has told."""

    def __init__(self, run_dir: Path, line: Line, before: Any) -> None:
        self.line = line
        self.cuts: Counter[Cut] = Counter()
        self.counted = 0
        self._run_dir, self._cursor, self._before = run_dir, before["cursor"], before["counted"]

    def listen(self) -> None:
        if not self.line.is_open:
            raise AgentError(f"the agent at {self._run_dir} went away, and what was tried with it")
        answer = ask(self._run_dir, "policy.audit", self._cursor)
        self._cursor, self.counted = answer["cursor"], answer["counted"] - self._before
        for row in answer["happened"]:
            ends = (row["from"] or row["source"], row["to"] or row["destination"])
            self.cuts[Cut(*ends, row["protocol"], row["port"], row["what"], row["policies"])] += 1


@contextlib.contextmanager
def _trying(run_dir: Path, text: str) -> Iterator[_Node]:
    """What is audited anyway has told things before."""
    with holding(run_dir, "policy.try", text) as line:
        yield _Node(run_dir, line, ask(run_dir, "policy.audit", ""))


def _ended_by_signals() -> threading.Event:
    """Set by the first Ctrl-C or SIGTERM, whatever is under way then; the next one ends the program."""
    ended = threading.Event()

    def first(number: int, _: object) -> None:
        ended.set()
        signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, first)
    return ended


def _watch(nodes: list[_Node], seconds: float | None, ended: threading.Event) -> None:
    """Until the time is over or somebody ends it; then once more, for what was under way."""
    end = None if seconds is None else time.monotonic() + seconds
    while not ended.is_set() and (end is None or time.monotonic() < end):
        ended.wait(EVERY if end is None else max(0.0, min(EVERY, end - time.monotonic())))
        for node in nodes:
            node.listen()
    time.sleep(LAST)
    for node in nodes:
        node.listen()


def _summary(policies: list[str], lasted: float, connections: int, cuts: "Counter[Cut]") -> str:
    tried = f"tried {', '.join(policies)} for {lasted:.0f} s: "
    if not connections:
        return f"{tried}no connection would have been cut off"
    rows = [
        (c.source, c.destination, f"{c.protocol}/{c.port}" if c.port else c.protocol, c.direction, c.policies, count)
        for c, count in cuts.most_common()
    ]
    lines = [f"{tried}{connections} connection{'s' * (connections != 1)} would have been cut off"]
    if connections > cuts.total():
        lines.append(f"({cuts.total()} of them told: the kernel tells of 10 a second for each combination of policies)")
    return "\n".join([*lines, table(("FROM", "TO", "WHAT", "BY ITS", "POLICIES", "TIMES"), rows)])


def _nodes(arguments: argparse.Namespace) -> list[Path]:
    if arguments.lab is None:
        return [arguments.run_dir]
    return [node.run_dir for node in Lab(locate(name=arguments.lab, directory=None, field="--lab")[1]).nodes()]


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FlockError(f"{file}: {getattr(error, 'strerror', None) or 'is not text'}") from None
