"""Keeps the runtime's configuration as it has to be, from the moment on at which ADD can be served.

It is looked at when something changes in its directory or in that of the plugins, and every LOOK, which is for what no
notice comes of: directories that were not there, or are others now.  What could not be written is tried again.  A file
that somebody removed or changed is restored, unless flock's own executable has gone as well: then flock is being
uninstalled.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path

from flock.agent.reconciling import Reconciler
from flock.core.cni import LATEST
from flock.core.conflist import ASSUMED, CHAINED, EXECUTABLE, Plugins, offered, render_conflist
from flock.core.errors import FlockError
from flock.edge import inotify
from flock.edge.cnipaths import CniPaths
from flock.edge.conflist import plugins_present, status_problem, write_conflist

log = logging.getLogger("conflist")

LOOK = 120.0
RETRY = 5.0  # after a failure, which somebody has to mend
SETTLE = 0.5  # who changes one file is about to change others: packages, installers
CHANGES = (
    inotify.ATTRIB | inotify.CLOSE_WRITE | inotify.MOVED_FROM | inotify.MOVED_TO | inotify.DELETE
    | inotify.DELETE_SELF | inotify.MOVE_SELF
)  # fmt: skip


class Conflist(Reconciler):
    """`problem`: why the file is not as it has to be; `failing`: which chained plugin keeps a node from being ready."""

    def __init__(self, conf_dir: Path, bin_dir: Path, paths: CniPaths, *, socket: Path, wait: float) -> None:
        super().__init__(log, "not offered to runtimes", period=LOOK, pauses=(RETRY, RETRY))
        self._conf_dir = conf_dir
        self._bin_dir = bin_dir
        self._paths = paths
        paths.on_news = self.trigger
        self._socket, self._wait = socket, wait
        self._notices = inotify.Notices(lambda: self.look_again(SETTLE))
        self._installed = False
        self._asked: tuple[object, Plugins] | None = None
        self.failing = ""

    def complaints(self) -> Iterable[str]:
        return self.problem, self.failing

    async def run(self) -> None:
        """Until cancelled."""
        with contextlib.closing(self._notices):
            await super().run()

    async def _reconcile(self) -> str:
        for directory in (self._conf_dir, *self._paths.directories(self._bin_dir)):
            self._notices.watch(directory, CHANGES)
        try:
            written, self.failing = await asyncio.to_thread(self._write)
        except (FlockError, OSError) as error:
            return f"the conflist could not be written: {error}"
        if written:
            log.info("wrote conflist directory=%s", self._conf_dir)
        return ""

    def _write(self) -> tuple[bool, str]:
        here = (self._bin_dir / EXECUTABLE).exists()
        if self._installed and not here:
            return False, ""
        self._installed = here
        plugins = self._plugins()
        text = render_conflist(socket=self._socket, wait=self._wait, plugins_present=plugins)
        return write_conflist(self._conf_dir, text), self._failing(plugins)

    def _plugins(self) -> Plugins:
        """Asked again only if there are others, or one gave no answer."""
        found = self._found()
        seen = [(path, _identity(path)) for path in found.values()]
        if self._asked is None or self._asked[0] != seen or ASSUMED in self._asked[1].values():
            self._asked = (seen, plugins_present(found))
        return self._asked[1]

    def _found(self) -> dict[str, Path]:
        where = {name: self._paths.find(name, self._bin_dir) for name in (EXECUTABLE, *CHAINED)}
        return {name: path for name, path in where.items() if path is not None}

    def _failing(self, plugins: Plugins) -> str:
        if LATEST not in offered(plugins):
            return ""  # no runtime asks them
        found = self._found()
        problems = {name: status_problem(found[name]) for name in CHAINED if name in plugins and name in found}
        told = [f"the chained plugin {name} fails STATUS: {problem}" for name, problem in problems.items() if problem]
        return "; ".join(told)


def _identity(file: Path) -> tuple[int, ...] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_mode
