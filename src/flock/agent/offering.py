"""Keeps the runtime's configuration as it has to be, from the moment on at which ADD can be served.

It is looked at when something changes in its directory or in that of the plugins, and every LOOK, which is for what no
notice comes of: directories that were not there, or are others now.  What could not be written is tried again.  A file
that somebody removed or changed is restored, unless flock's own executable has gone as well: then flock is being
uninstalled.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from flock.core.cni import LATEST
from flock.core.errors import FlockError
from flock.edge import inotify
from flock.edge.conflist import (
    ASSUMED,
    CHAINED,
    EXECUTABLE,
    Plugins,
    offered,
    plugins_present,
    render_conflist,
    status_problem,
    write_conflist,
)

log = logging.getLogger("conflist")

LOOK = 120.0
RETRY = 5.0  # after a failure, which somebody has to mend
SETTLE = 0.5  # who changes one file is about to change others: packages, installers
CHANGES = (
    inotify.ATTRIB | inotify.CLOSE_WRITE | inotify.MOVED_FROM | inotify.MOVED_TO | inotify.DELETE
    | inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.ONLYDIR
)  # fmt: skip


class Offer:
    """`conf_dir` None: there is nothing to keep.  `problem`: why the file is not as it has to be; `failing`: which
    chained plugin keeps the node from being ready."""

    def __init__(self, *, conf_dir: Path | None, bin_dir: Path, socket: Path, wait: float) -> None:
        self._conf_dir = conf_dir
        self._bin_dir = bin_dir
        self._socket, self._wait = socket, wait
        self._begun = asyncio.Event()
        self._changed = asyncio.Event()
        self._installed = False
        self._asked: tuple[object, Plugins] | None = None
        self.problem = ""
        self.failing = ""

    def begin(self) -> None:
        """ADD can be served: runtimes may find us."""
        if self._conf_dir is not None:
            self._begun.set()

    async def run(self) -> None:
        """Until cancelled."""
        await self._begun.wait()
        assert self._conf_dir is not None
        with contextlib.closing(_Notices(self._changed.set)) as notices:
            while True:
                notices.watch(self._conf_dir, self._bin_dir)
                self._changed.clear()
                await self._look(self._conf_dir)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY if self.problem else LOOK):
                        await self._changed.wait()
                        await asyncio.sleep(SETTLE)

    async def _look(self, conf_dir: Path) -> None:
        try:
            written, self.failing = await asyncio.to_thread(self._write, conf_dir)
        except (FlockError, OSError) as error:
            problem = f"the conflist could not be written: {error}"
            if problem != self.problem:
                log.error("%s", problem)
            self.problem = problem
            return
        self.problem = ""
        if written:
            log.info("wrote conflist directory=%s", conf_dir)

    def _write(self, conf_dir: Path) -> tuple[bool, str]:
        here = (self._bin_dir / EXECUTABLE).exists()
        if self._installed and not here:
            return False, ""
        self._installed = here
        plugins = self._plugins()
        text = render_conflist(socket=self._socket, wait=self._wait, plugins_present=plugins)
        return write_conflist(conf_dir, text), self._failing(plugins)

    def _plugins(self) -> Plugins:
        """Asked again only if there are others, or one gave no answer."""
        seen = [_identity(self._bin_dir / name) for name in (EXECUTABLE, *CHAINED)]
        if self._asked is None or self._asked[0] != seen or ASSUMED in self._asked[1].values():
            self._asked = (seen, plugins_present(self._bin_dir))
        return self._asked[1]

    def _failing(self, plugins: Plugins) -> str:
        if LATEST not in offered(plugins):
            return ""  # no runtime asks them
        problems = {name: status_problem(self._bin_dir, name) for name in CHAINED if name in plugins}
        told = [f"the chained plugin {name} fails STATUS: {problem}" for name, problem in problems.items() if problem]
        return "; ".join(told)


class _Notices:
    """Calls `on_change` for changes in directories.  Where the kernel gives no notices there are none."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._inotify: inotify.Inotify | None = None
        with contextlib.suppress(OSError):
            self._inotify = inotify.Inotify()
            asyncio.get_running_loop().add_reader(self._inotify, self._read)

    def watch(self, *directories: Path) -> None:
        """May be called again: directories that are watched already stay so."""
        for directory in directories:
            if self._inotify is not None:
                with contextlib.suppress(OSError):
                    self._inotify.watch(directory, CHANGES)

    def _read(self) -> None:
        assert self._inotify is not None
        if self._inotify.pending():
            self._on_change()

    def close(self) -> None:
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify)
            self._inotify.close()


def _identity(file: Path) -> tuple[int, ...] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_mode
