"""When this node could last take pods: a file beside the socket whose time of change says so.

The executable reads it when it is asked for STATUS and no agent is there (`cni/restart.h`), the next agent while it
starts.  An agent that is killed has no time to write anything, so it is touched every BEAT while all is well.  Where it
cannot be written, STATUS is impatient as if there never was an agent, and nothing else suffers.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

FILE = "serving"
BEAT = 5.0
RESTART = 60.0  # seconds; as in cni/restart.h


def own(run_dir: Path) -> Iterator[Path]:
    """Nothing is ever written into it."""
    path = run_dir / FILE
    if path.is_file() and not path.is_symlink() and not path.stat().st_size:
        yield path


class ServingFile:
    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / FILE

    def touch(self) -> None:
        with contextlib.suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.utime(fd)
            finally:
                os.close(fd)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def recently(self) -> bool:
        """A time in the future says nothing: the clock was set."""
        try:
            return 0 <= time.time() - self._path.lstat().st_mtime < RESTART
        except OSError:
            return False
