"""Putting a file where other programs look for it: whole or not at all, and only if it is not there already."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from flock.core.errors import FlockError


def place(path: Path, content: bytes, *, mode: int = 0o644, check: Callable[[Path], None] | None = None) -> bool:
    """True if the file had to be written.  `check` may refuse the new file, by raising, before it takes the old one's
    place.  The directory must exist; FlockError if the file cannot be written."""
    candidate = path.with_name(f".{path.name}.new")  # neither runtimes nor daemons read such a name
    try:
        if _is_there(path, content, mode):
            return False
        with candidate.open("wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if check is not None:
            check(candidate)
        candidate.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise FlockError(f"cannot write {path}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            candidate.unlink(missing_ok=True)
    return True


def _is_there(path: Path, content: bytes, mode: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes() == content and path.stat().st_mode & 0o777 == mode
    return False


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
