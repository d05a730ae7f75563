"""Runs a check on its ground, a lab or a cluster: prepares it, lets everyone ask at once, cleans up in any case."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Thread
from types import FrameType
from typing import Any, Protocol

from flock.core.checkup import (
    ASKING,
    Asker,
    Place,
    Probe,
    Question,
    Reply,
    Row,
    judged,
    questions,
    skipped,
)

MOVE_PATIENCE = 8.0  # seconds until somebody else answers an anycast address; a withdrawal takes milliseconds
REPLICA = "c"  # the pods that carry the anycast address


class Ground(Protocol):
    def prepare(self) -> list[Row]:
        """Remove what a killed check left, look at the nodes, start pods; what is to be said of each node."""

    @property
    def places(self) -> Sequence[Place]:
        """The nodes whose pods run."""

    def more(self) -> tuple[list[Question], list[Row]]:
        """What only this ground can ask (Services, names, host ports), and what it cannot, with the reason."""

    @property
    def anycast(self) -> Mapping[str, str] | str:
        """Addresses by family that replicas on two places carry, or why there are none."""

    def withdraw(self, node: str) -> None:
        """Let the node's replica carry its addresses no longer."""

    def ask(self, asker: Asker, probes: Sequence[Probe]) -> Sequence[Reply]:
        """Any exception means that nothing could be asked from there."""

    def owner(self, address: str) -> str:
        """Who has it, else the address."""

    def look(self, node: str, command: Sequence[str]) -> str:
        """How to run a command on a node, for whoever wants to look further."""

    def stop(self) -> None:
        """Let nobody wait any longer who waits for an answer: `clean` is next.  Called by another thread."""

    def clean(self) -> None:
        """Leave nothing behind."""


ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # by somebody, a service manager, a terminal that is closed


def examine(ground: Ground) -> list[Row]:
    """KeyboardInterrupt if it is told to end: after what it made was removed, without waiting for any answer."""
    with _heard(ground) as heard:
        try:
            return _examined(ground)
        finally:
            heard.enough = True  # whoever asks for an end now gets it a moment later
            ground.clean()


def _examined(ground: Ground) -> list[Row]:
    rows = ground.prepare()
    asked, unasked = ground.more()
    asked = [*questions(ground.places), *asked]
    rows += judged(asked, _ask_all(ground, asked), owner=ground.owner, look=ground.look)
    if len(ground.places) < 2:
        rows.append(skipped("across nodes", "it takes two nodes with pods"))
    return [*rows, *_anycast(ground), *unasked]


class _Heard:
    enough = False


@contextmanager
def _heard(ground: Ground) -> Iterator[_Heard]:
    """The first of `ENDS` ends it, unless it is over; further ones do not keep it from cleaning up.  A shell ignores
    SIGINT for what runs in the background, where somebody may send it all the same; `nohup` means what it says."""
    heard = _Heard()

    def interrupted(_: int, __: FrameType | None) -> None:
        if not heard.enough:
            heard.enough = True
            raise KeyboardInterrupt

    before: dict[signal.Signals, Any] = {}
    with _told_at_once(ground.stop):
        try:
            for number in ENDS:
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    before[number] = signal.signal(number, interrupted)
            yield heard
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _told_at_once(stop: Callable[[], None]) -> Iterator[None]:
    """A handler in Python runs when the main thread does, and that may wait for all others: a signal that comes just
    before it begins to wait does not wake it up.  So a thread hears of it, and ends what they wait for."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def listen() -> None:
        while os.read(reading, 1):
            stop()

    listening = Thread(target=listen, daemon=True)
    listening.start()
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)
        listening.join()
        os.close(reading)


def _ask_all(ground: Ground, asked: Sequence[Question]) -> list[Reply]:
    """Everyone at once, each all of its questions at once."""
    by_asker: dict[Asker, list[int]] = {}
    for index, question in enumerate(asked):
        by_asker.setdefault(question.asker, []).append(index)

    def one(asker: Asker) -> Sequence[Reply]:
        probes = [asked[index].probe for index in by_asker[asker]]
        try:
            return ground.ask(asker, probes)
        except Exception as error:  # of whatever runs there; the row says so
            return [Reply(asked=1, answered=0, error=f"could not ask: {error}")] * len(probes)

    replies: dict[int, Reply] = {}
    with ThreadPoolExecutor(max(1, len(by_asker))) as threads:
        for asker, heard in zip(by_asker, threads.map(one, by_asker), strict=True):
            replies.update(zip(by_asker[asker], heard, strict=True))
    return [replies[index] for index in range(len(asked))]


def _anycast(ground: Ground) -> list[Row]:
    """The replica beside the asker answers, then it withdraws and the other one has to."""
    addresses = ground.anycast
    if isinstance(addresses, str):
        return [skipped("anycast moves", addresses)]
    replicas = [place.node for place in ground.places if REPLICA in place.pods]
    if len(replicas) < 2:
        return [skipped("anycast moves", "it takes two nodes with pods")]
    first, second = replicas[:2]
    before = _anycast_questions(addresses, asker=first, by=first)
    rows = judged(before, _ask_all(ground, before), owner=ground.owner, look=ground.look)
    if any(row.result == "fail" for row in rows):
        return rows
    ground.withdraw(first)
    after = _anycast_questions(addresses, asker=first, by=second)
    deadline = time.monotonic() + MOVE_PATIENCE
    while True:
        rows = judged(after, _ask_all(ground, after), owner=ground.owner, look=ground.look)
        if all(row.result == "pass" for row in rows) or time.monotonic() > deadline:
            return rows


def _anycast_questions(addresses: Mapping[str, str], *, asker: str, by: str) -> list[Question]:
    return [
        Question(
            check="anycast moves",
            asker=Asker(asker, ASKING),
            target=address,
            family=family,
            probe=Probe(address=address, patience=2.0),
            by=f"{REPLICA}-{by}",
            look=("flockctl", "anycast"),
        )
        for family, address in addresses.items()
    ]
