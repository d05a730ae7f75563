"""Work in another network namespace, in a thread that ends afterwards: no other thread ever sees it."""

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def within(netns: Path | str | None, work: Callable[[], T]) -> T:
    """What `work` gives, or raises, in that namespace, or in a new one."""
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            if netns is None:
                failed = _libc.unshare(CLONE_NEWNET)
            else:
                with open(netns) as namespace:
                    failed = _libc.setns(namespace.fileno(), CLONE_NEWNET)
            if failed:
                raise OSError(ctypes.get_errno(), "cannot enter", str(netns))
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
