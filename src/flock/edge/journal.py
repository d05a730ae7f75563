"""<state-dir>/allocations.journal: what was answered since the state file was written, made durable by one system call.

The file is written full of zeros before it is used and never grows: flushing a record flushes its blocks and no
metadata, which takes a fifth of what replacing a file takes, however many pods there are.  One whose write or flush
failed is not used again, since nobody can tell what of it is on disk; another takes its place.

That a change which was written ahead is finished is noted without a flush, by one byte.
"""

import contextlib
import errno
import os
import threading
import time

from flock.core.faults import Point, faults
from flock.core.journal import FINISHED, finishing_at
from flock.edge.statedir import InDoubt, StateDirectory

FILE = "allocations.journal"
SIZE = 1 << 20  # 256 rounds without a pause; what comes then is written whole, and it begins anew
SPARE = 16 << 20  # bytes: a disk with less is left alone
RETRY = 60.0  # seconds: a disk that refuses it is not filled up and emptied all the time


class Journal:
    """Written by the store's thread; made and removed by others while that does not write to it.  Who holds `kept` may
    note what is finished: nobody closes it meanwhile."""

    def __init__(self, directory: StateDirectory) -> None:
        self._directory = directory
        self._path = directory.path / FILE
        self._fd = -1
        self._unflushed = -1  # the same file, for what need not be durable
        self._at = 0
        self.kept = threading.Lock()
        self._not_before = 0.0
        self.last = 0  # number of the last record that is durable here

    @property
    def exists(self) -> bool:
        return self._fd >= 0

    def make(self) -> None:
        """In place of an old one, none of whose records may be needed any more.  OSError if that fails."""
        if self._directory.free() < SPARE or time.monotonic() < self._not_before:
            return
        self._not_before = time.monotonic() + RETRY
        faults.reach(Point.JOURNAL_MAKE)
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DSYNC | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)
            if os.write(fd, bytes(SIZE)) != SIZE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._directory.sync()
            self._unflushed = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            os.close(fd)
            self.remove()
            raise
        self._fd = fd

    def append(self, record: bytes, *, number: int, anew: bool) -> int | None:
        """Durable when it returns where the record's first change is noted as finished.  None: there is no room for it,
        and nothing was done.  InDoubt if it fails.  `anew`: everything before it is in the state file."""
        at = 0 if anew else self._at
        if not self.exists or at + len(record) > SIZE:
            return None
        try:
            faults.reach(Point.JOURNAL_WRITE)
            if os.pwrite(self._fd, record, at) != len(record):
                raise OSError(errno.EIO, "short write")
            faults.reach(Point.JOURNAL_WRITTEN)
        except OSError as error:
            self.close()
            raise InDoubt(error.errno, error.strerror) from None
        self._at, self.last = at + len(record), number
        return at + finishing_at(record)

    def finish(self, at: int) -> bool:
        """Survives the agent's death when it returns True.  False: it could not be noted, or perhaps was."""
        try:
            faults.reach(Point.JOURNAL_FINISH)
            return self.exists and os.pwrite(self._unflushed, FINISHED, at) == 1
        except OSError:
            return False

    def close(self) -> None:
        with self.kept:
            ends, self._fd, self._unflushed = (self._fd, self._unflushed), -1, -1
            for fd in ends:
                with contextlib.suppress(OSError):  # which it is closed after, too
                    if fd >= 0:
                        os.close(fd)

    def remove(self) -> None:
        """Nothing in it is needed any more."""
        self.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
