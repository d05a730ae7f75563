"""A thread of its own for work that may wait: one piece after the other, in the order it was handed over.

Not an executor: handing work over and its result back is done several times per ADD, and takes half as long so.  What
is rare and may go on beside everything else is for `asyncio.to_thread`.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from flock.core.errors import TryAgain

P = ParamSpec("P")
T = TypeVar("T")

_Piece = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], "asyncio.Future[Any]"]


class Worker:
    """In the network namespace of whoever makes it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._since = 0.0  # when the piece under way began; 0: there is none
        self._closed = False
        self._pieces: SimpleQueue[_Piece | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        """Work that was handed over is done, whoever gives up waiting."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._closed:
            done.set_exception(TryAgain("the agent is ending"))
        else:
            self._pieces.put((work, args, kwargs, done))
        return done

    @property
    def busy_for(self) -> float:
        """Seconds that the piece under way has taken until now."""
        since = self._since
        return time.monotonic() - since if since else 0.0

    @property
    def load(self) -> int:
        """Pieces that were handed over and are not done."""
        return self._pieces.qsize() + bool(self._since)

    def close(self) -> None:
        """Once everything handed over is done.  What is handed over later fails: nobody waits for it for ever."""
        self._closed = True
        self._pieces.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (piece := self._pieces.get()) is not None:
            self._do(*piece)
            del piece  # what it carries is not kept until the next one

    def _do(self, work: Callable[..., T], args: Any, kwargs: Any, done: "asyncio.Future[T]") -> None:
        self._since = time.monotonic()
        try:
            result = work(*args, **kwargs)
        except BaseException as error:
            self._since = 0.0
            _settle_from_here(done, done.set_exception, error)
        else:
            self._since = 0.0
            _settle_from_here(done, done.set_result, result)


def unheard(done: "asyncio.Future[T]") -> None:
    """A callback for what may end with nobody waiting for it: then nobody complains that its failure was not heard."""
    if not done.cancelled():
        done.exception()


def _settle_from_here(done: "asyncio.Future[T]", settle: Callable[[Any], None], outcome: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
        done.get_loop().call_soon_threadsafe(_settle, done, settle, outcome)


def _settle(done: "asyncio.Future[T]", settle: Callable[[Any], None], outcome: Any) -> None:
    if not done.cancelled():
        settle(outcome)
