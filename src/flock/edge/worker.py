"""A thread that works for the event loop, one piece of work after the other.

Not an executor: handing work over and its result back is part of every ADD, and takes two thirds of the time so.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """For the loop's thread.  What was handed over is done even if nobody waits for it any more."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._work.put((work, done))
        return done

    def close(self) -> None:
        """Returns when everything handed over is done."""
        self._work.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            result, failure = None, None
            try:
                result = work()
            except BaseException as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
                done.get_loop().call_soon_threadsafe(_settle, done, result, failure)


def _settle(done: "asyncio.Future[Any]", result: Any, failure: BaseException | None) -> None:
    if done.cancelled():
        return
    if failure is None:
        done.set_result(result)
    else:
        done.set_exception(failure)
