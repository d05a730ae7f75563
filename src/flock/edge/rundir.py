"""The run directory: its lock, and what of it is flock's.

One agent works with it at a time, and none while flock is taken off the host.  Whoever makes something in it says in a
function `own` beside that what it may have made: these are what is taken away, and nothing else is.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

SOCKET = "flock.sock"


def take(run_dir: Path) -> int:
    """A file descriptor: whoever closes it leaves.  BlockingIOError while somebody else has it."""
    lock = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise
    return lock


def own_socket(run_dir: Path, name: str) -> Iterator[Path]:
    """A socket or a link to one, and what whoever put it in place may have left on the way (`placing_name`)."""
    for path in (run_dir / name, *run_dir.glob(placing_name(name, "[0-9]*"))):
        if path.is_symlink() or path.is_socket():
            yield path


def placing_name(name: str, process: int | str) -> str:
    """Under which a process makes it, to be renamed."""
    return f".{name}.{process}"


def remove(path: Path) -> None:
    """A directory only if nothing is in it: what is left there is somebody else's."""
    if path.is_dir() and not path.is_symlink():
        with contextlib.suppress(OSError):
            path.rmdir()
    else:
        path.unlink(missing_ok=True)
