"""One agent per directory, and one verb at a time per container: others run side by side."""

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

from flock.core.errors import FieldError

log = logging.getLogger("agent")

RETRY = 1.0  # between looks whether the other agent has gone


async def alone_in(run_dir: Path) -> int:
    """An agent that is still there keeps its socket: wait for its end, as in an upgrade that overlaps.

    Returns a file descriptor: whoever closes it leaves."""
    lock = _opened(run_dir)
    told = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if not told:
                log.warning("waiting for another agent to leave run_dir=%s", run_dir)
                told = True
            await asyncio.sleep(RETRY)


def _opened(directory: Path) -> int:
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FieldError("--run-dir", f"cannot use {directory}: {error.strerror}") from None


class KeyedLocks:
    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]

    def held(self, key: str) -> bool:
        return key in self._locks
