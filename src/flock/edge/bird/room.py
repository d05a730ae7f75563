"""Where BIRD's control socket is: `<run-dir>/bird.ctl`, or behind that name in a directory that is BIRD's alone.

A BIRD in a pod of its own is given `<run-dir>/bird` and not the run directory, where the agent's socket is.  The name
stays the one that people and programs know: it becomes a link into BIRD's room when nobody answers at it and a socket
is there.
"""

import contextlib
import os
from pathlib import Path

SOCKET = "bird.ctl"
ROOM = "bird"


def prepare(run_dir: Path) -> None:
    """BIRD may start in its room from now on.  OSError if the directory cannot be made."""
    (run_dir / ROOM).mkdir(mode=0o755, exist_ok=True)


def follow(run_dir: Path) -> None:
    """Called when nobody answers: let the name lead to where a BIRD in its room listens."""
    name, target = run_dir / SOCKET, Path(ROOM, SOCKET)
    if not (run_dir / target).is_socket():
        return
    link = run_dir / f".{SOCKET}.{os.getpid()}"
    with contextlib.suppress(OSError):  # the next attempt tries again
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        link.replace(name)
