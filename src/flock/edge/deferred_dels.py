"""DELs that found no agent, left for the next one: an empty file each, named after the container and its interface.

The executable leaves them in a directory beside the socket (cni/later.h has the reason).  They have to outlive the
agent, not the machine: after a reboot the pods are gone in any case.  The agent listens before it reads them, so that
none comes too late, and ADD takes back what is no longer meant.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from flock.core.errors import StoreFailure

FOLDER = "deferred"


def own(run_dir: Path) -> Iterator[Path]:
    """All notes, and their directory."""
    directory = run_dir / FOLDER
    if directory.is_dir() and not directory.is_symlink():
        yield from (path for path in directory.iterdir() if ":" in path.name)
        yield directory


class DeferredDels:
    def __init__(self, run_dir: Path) -> None:
        self._directory = run_dir / FOLDER

    def open(self) -> None:
        """From now on, and after the agent's end, DELs may be left here."""
        with contextlib.suppress(OSError):  # without a place to leave them they wait for the agent
            self._directory.mkdir(mode=0o700, exist_ok=True)

    def left(self) -> list[tuple[str, str]]:
        """Container and interface of each."""
        try:
            names = sorted(entry.name for entry in self._directory.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreFailure(f"cannot read {self._directory}: {error.strerror}") from None
        pairs = (name.partition(":") for name in names)
        return [(container_id, ifname) for container_id, _, ifname in pairs if ifname]  # others nobody left here

    def forget(self, container_id: str, ifname: str) -> None:
        """It is done, or not meant any more."""
        with contextlib.suppress(OSError):  # most were never left; a name that is too long cannot have been
            os.unlink(f"{self._directory}/{container_id}:{ifname}")  # noqa: PTH108 - each ADD comes this way
