"""The run directory's lock: one agent works with it at a time, and none while flock is taken off the host."""

import fcntl
import os
from pathlib import Path


def take(run_dir: Path) -> int:
    """A file descriptor: whoever closes it leaves.  BlockingIOError while somebody else has it."""
    lock = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise
    return lock
