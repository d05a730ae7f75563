"""Notes about work that is half done, one small file per container, beside the socket.

They have to outlive the agent, not the machine: after a reboot nothing of a half-made pod exists any more, in the
kernel or elsewhere.  So they are not flushed to the disk, and cost microseconds where a durable entry would cost as
much as half an ADD.
"""

import contextlib
import errno
import ipaddress
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from flock.core.errors import StoreFailure
from flock.core.model import Allocation
from flock.core.naming import fnv1a64

FOLDER = "pending"  # in the run directory
NEW = ".new"

_NOTE = re.compile(rf"[0-9a-f]{{16}}({re.escape(NEW)})?")
_decoder = msgspec.json.Decoder(Allocation)


def own(run_dir: Path) -> Iterator[Path]:
    """All notes, and their directory."""
    directory = run_dir / FOLDER
    if directory.is_dir() and not directory.is_symlink():
        yield from (path for path in directory.iterdir() if _NOTE.fullmatch(path.name))
        yield directory


class HalfDone:
    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._there: set[str] = set()  # paths of notes

    def load(self) -> dict[str, Allocation]:
        """What an earlier life left.  A note that cannot be read was never finished, so its work was not begun."""
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)  # noqa: PTH103
            names = os.listdir(self._directory)  # noqa: PTH208
        except OSError as error:
            raise StoreFailure(f"cannot use {self._directory}: {error.strerror}") from None
        found = {}
        for name in names:
            path = f"{self._directory}/{name}"
            allocation = None if name.endswith(NEW) else _read(path)
            if allocation is not None:
                found[allocation.container_id] = allocation
                self._there.add(path)
            else:
                _remove_quietly(path)
        return found

    def set(self, allocation: Allocation) -> None:
        """Whatever dies when, the note is there in full, or the one before it is.  StoreFailure if it fails."""
        path = self._path(allocation.container_id)
        replaces = path in self._there  # else half of one is as good as none: nothing was begun
        written = path + NEW if replaces else path
        try:
            note = msgspec.json.encode(allocation)
            fd = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                if os.write(fd, note) != len(note):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(fd)
            if replaces:
                os.rename(written, path)  # noqa: PTH104
            self._there.add(path)
        except OSError as error:
            _remove_quietly(written)
            raise StoreFailure(f"cannot note half-done work in {self._directory}: {error.strerror}") from None
        except UnicodeEncodeError as error:
            raise StoreFailure(f"container {allocation.container_id!a} cannot be recorded: {error}") from None

    def clear(self, container_id: str) -> None:
        path = self._path(container_id)
        _remove_quietly(path)
        self._there.discard(path)

    def _path(self, container_id: str) -> str:
        """Container ids may be longer than a file name can be."""
        return f"{self._directory}/{fnv1a64(container_id.encode('utf-8', 'surrogateescape')):016x}"


def _read(path: str) -> Allocation | None:
    try:
        allocation = _decoder.decode(Path(path).read_bytes())
        for address in allocation.carried:
            ipaddress.ip_address(address)
    except (OSError, ValueError, RecursionError):  # ValueError: not JSON, not an allocation, not an address
        return None
    return allocation


def _remove_quietly(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108
