"""Where container runtimes look for plugins: their CNI_PATH, as they said with an ADD, remembered over restarts.

A plugin may be chained if every runtime finds it: one that does not would fail each of its pods.  Runtimes are few, and
so are their paths; what nobody passed yet nobody knows, so until then it is the agent's own directory alone.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from flock.core.errors import FlockError
from flock.edge.placing import place

log = logging.getLogger("conflist")

NAME = "cni-paths"
MOST = 8  # of a few runtimes; more is somebody playing
USUAL = tuple(map(Path, ("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni", "/usr/local/lib/cni")))


class CniPaths:
    """`on_news` runs when a path was passed for the first time."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / NAME
        self._paths: tuple[str, ...] | None = None
        self.on_news: Callable[[], None] = lambda: None

    @property
    def known(self) -> tuple[str, ...]:
        if self._paths is None:
            try:
                self._paths = tuple(self._file.read_text().splitlines()[:MOST])
            except (OSError, ValueError):
                self._paths = ()
        return self._paths

    def note(self, path: str) -> None:
        """A runtime passed this.  One that cannot be kept is passed again with the next ADD."""
        if not path or "\n" in path or path in self.known or len(self.known) >= MOST:
            return
        try:
            place(self._file, "".join(f"{known}\n" for known in (*self.known, path)).encode())
        except (FlockError, OSError) as error:
            log.warning("could not remember CNI_PATH=%s problem=%s", path, error)
            return
        self._paths = (*self.known, path)
        self.on_news()

    def find(self, name: str, bin_dir: Path) -> Path | None:
        """The plugin, where everybody who asks for it finds one."""
        if (bin_dir / name).exists():
            return bin_dir / name
        found = [_first(name, path) for path in self.known]
        return found[0] if found and all(found) else None

    def directories(self, bin_dir: Path) -> set[Path]:
        return {bin_dir, *(Path(directory) for path in self.known for directory in path.split(":") if directory)}


def _first(name: str, path: str) -> Path | None:
    directories = (Path(directory) for directory in path.split(":") if directory)
    return next((directory / name for directory in directories if (directory / name).exists()), None)
