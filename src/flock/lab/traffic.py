"""Questions and answers over the fabric, to see who answers an anycast address and for how long nobody does.

`serve` runs in a pod and answers every datagram with its name (`edge/probe.py`).  `ask` runs anywhere, asks at a
steady pace and prints one JSON line per question.  By default each question is a new flow, which routers may send to
another replica; with `--flows N` it keeps N sockets, each a flow that should stay with its replica.  Both run as
`python -m flock.lab.traffic`.
"""

import argparse
import json
import math
import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice, pairwise
from typing import Any

import msgspec

from flock.core.checkup import OPEN
from flock.edge.probe import serve

# Seconds until a question counts as lost.  The fabric answers in a fraction of a millisecond; whoever answers may have
# to wait for a core of a busy machine.
PATIENCE = 1.0
WAITING = 500  # questions that each have a socket: the oldest of more is lost at once


_Waiting = dict[int, tuple[float, int, socket.socket]]  # number -> asked at, flow, socket


class Exchange(msgspec.Struct, frozen=True):
    """One question: when it was asked, on which flow, and who answered (None: nobody in time)."""

    at: float  # seconds of CLOCK_MONOTONIC, which all processes of the machine share
    flow: int
    answer: str | None


class Summary(msgspec.Struct, frozen=True):
    asked: int
    lost: int
    by_replica: dict[str, int]
    longest_silence: float  # seconds between two answered questions
    lossy: float  # seconds from the first lost question to the last


def summary(exchanges: Iterable[Exchange]) -> Summary:
    """Pure."""
    everything = sorted(exchanges, key=lambda e: e.at)
    answered = [e for e in everything if e.answer is not None]
    lost = [e for e in everything if e.answer is None]
    silences = [later.at - earlier.at for earlier, later in pairwise(answered)]
    return Summary(
        asked=len(everything),
        lost=len(lost),
        by_replica=dict(sorted(Counter(e.answer for e in answered if e.answer).items())),
        longest_silence=max(silences, default=0.0),
        lossy=lost[-1].at - lost[0].at if lost else 0.0,
    )


def read(lines: Iterable[str]) -> Iterator[Exchange]:
    """What `ask` printed."""
    for line in lines:
        if line.strip():
            yield msgspec.json.decode(line, type=Exchange)


def ask(address: str, port: int, *, every: float, duration: float, flows: int) -> Iterator[Exchange]:
    """Ask until the time is up, then wait for the last answers."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    start = time.monotonic()
    end = start + duration
    kept = [_socket(family) for _ in range(flows)]
    waiting: _Waiting = {}
    with selectors.DefaultSelector() as selector:
        for flow in kept:
            selector.register(flow, selectors.EVENT_READ)
        number = 0
        while (now := time.monotonic()) < end or waiting:
            if start + number * every <= now < end:
                flow = kept[number % flows] if flows else _socket(family)
                if not flows:
                    selector.register(flow, selectors.EVENT_READ)
                waiting[number] = (now, number % flows if flows else number, flow)
                with suppress(OSError):  # unreachable: as good as lost
                    flow.sendto(str(number).encode(), (address, port))
                number += 1
            late = _late(waiting, now=now, at_most=math.inf if flows else WAITING)
            due = [at + PATIENCE for at, _, _ in islice(waiting.values(), 1)]
            if (coming := start + number * every) < end:
                due.append(coming)
            pause = 0 if late else max(0.0, min(due, default=end) - time.monotonic())
            # What came in time is heard, however late we look for it.
            heard = late | dict(chain.from_iterable(_answers(key.fileobj) for key, _ in selector.select(pause)))
            for n in sorted(heard.keys() & waiting.keys()):
                at, index, flow = waiting.pop(n)
                if not flows:
                    selector.unregister(flow)
                    flow.close()
                yield Exchange(at, index, heard[n])
    for flow in kept:
        flow.close()


def _late(waiting: _Waiting, *, now: float, at_most: float) -> dict[int, str | None]:
    """Those that are lost by now; the oldest comes first."""
    crowd = len(waiting) - at_most
    return dict.fromkeys(n for i, (n, (at, _, _)) in enumerate(waiting.items()) if now - at >= PATIENCE or i < crowd)


def _answers(flow: Any) -> Iterator[tuple[int, str]]:
    """All that are there: which question, and who."""
    with suppress(OSError):
        while True:
            number, _, name = flow.recv(128).decode().partition(" ")
            yield int(number), name


def _socket(family: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m flock.lab.traffic", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    server = verbs.add_parser("serve")
    server.add_argument("name")
    asker = verbs.add_parser("ask")
    asker.add_argument("address")
    asker.add_argument("--every", type=float, default=0.01, help="seconds between questions")
    asker.add_argument("--for", dest="duration", type=float, default=5.0, help="seconds")
    asker.add_argument("--flows", type=int, default=0, help="keep this many flows; 0: a new one for each question")
    for each in (server, asker):
        each.add_argument("--port", type=int, default=OPEN)
    a = parser.parse_args()
    if a.verb == "serve":
        serve(a.name, [a.port])
    with suppress(KeyboardInterrupt, BrokenPipeError):  # whoever started us says what there is to say
        for exchange in ask(a.address, a.port, every=a.every, duration=a.duration, flows=a.flows):
            print(json.dumps(msgspec.to_builtins(exchange)), flush=True)


if __name__ == "__main__":
    main()
