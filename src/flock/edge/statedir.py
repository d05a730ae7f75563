"""The directory that the store lives in: locked for the life of the process, its files replaced whole or not at all.

Two agents on one directory would give addresses twice.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from flock.core.errors import StoreFailure
from flock.core.faults import Point, faults


class InDoubt(OSError):
    """It counts as not written, and may be on disk all the same, now or after the machine died."""


class StateDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def lock(self) -> None:
        """May be called again.  StoreFailure if it is not there or somebody else's."""
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreFailure(f"state directory {self.path} is in use by another agent") from None
        except OSError as error:
            raise StoreFailure(f"cannot open state directory {self.path}: {error.strerror}") from None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self, name: str) -> bytes | None:
        """None: there is no such file."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreFailure(f"cannot read {self.path / name}: {error.strerror}") from None

    def replace(self, name: str, content: Iterable[bytes]) -> None:
        """Durable when this returns.  On OSError nothing but the old file is there, on InDoubt the new one."""
        path = f"{self.path}/{name}"
        temporary = f"{path}.tmp"
        try:
            faults.reach(Point.STORE_WRITE)
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.fchmod(fd, 0o600)
                for piece in content:
                    rest = memoryview(piece)
                    while rest:
                        rest = rest[os.write(fd, rest) :]
                faults.reach(Point.STORE_SYNC)
                os.fsync(fd)
            finally:
                os.close(fd)
            faults.reach(Point.STORE_RENAME)
            os.rename(temporary, path)  # noqa: PTH104
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            raise
        try:
            faults.reach(Point.STORE_RENAMED)
            self.sync()
        except OSError as error:
            raise InDoubt(error.errno, error.strerror) from None

    def sync(self) -> None:
        os.fsync(self._fd)

    def free(self) -> int:
        """Bytes."""
        room = os.fstatvfs(self._fd)
        return room.f_bavail * room.f_frsize
