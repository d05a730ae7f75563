"""Whether the host is going down, by the one sign of it that a pod can be shown without being handed the host.

systemd keeps a link `invocation:<unit>` in /run/systemd/units for every service that is up.  `systemd-user-sessions`
is up from the end of the boot until a shutdown begins, and ordered after network.target: its link goes before any
network daemon is stopped, while pods, whose processes systemd ends last of all, run on.  Its stop also writes
/run/nologin, but a file that is not there yet cannot be mounted, and all of /run would come with the sockets of
systemd and the container runtime; in the directory of units there is nothing to connect to.

A host on which the link was never seen (another init, no user sessions) never says that it goes down.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from flock.edge.inotify import CREATE, DELETE, MOVED_TO, ONLYDIR, Inotify

SIGN = "invocation:systemd-user-sessions.service"
UNWATCHED = (
    1.0  # how often to look where the kernel gives no notice: half of what a shutdown takes until the network goes
)
LOOK_AGAIN = 30.0  # the directory may be replaced, which ends its notices


class HostUnits:
    """`going_down` is as of the last look; `run` looks at every change."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen = False
        self.going_down = False

    def look(self) -> bool:
        """True if something has changed since the last look."""
        present = (self._directory / SIGN).is_symlink()
        self._seen = self._seen or present
        before, self.going_down = self.going_down, self._seen and not present
        return before != self.going_down

    async def run(self, changed: Callable[[], None]) -> None:
        """Until cancelled."""
        woken = asyncio.Event()
        with _notices(woken) as notices:
            while True:
                watched = notices is not None and self._watch(notices)
                if self.look():
                    changed()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AGAIN if watched else UNWATCHED):
                        await woken.wait()
                woken.clear()

    def _watch(self, notices: Inotify) -> bool:
        """Asking again for what is watched changes nothing.  Before the look, so that no change falls between."""
        notices.pending()
        try:
            notices.watch(self._directory, CREATE | MOVED_TO | DELETE | ONLYDIR)
        except OSError:
            return False
        return True


@contextlib.contextmanager
def _notices(woken: asyncio.Event) -> Iterator[Inotify | None]:
    """None if the host has used up what the kernel allows of them."""
    try:
        notices = Inotify()
    except OSError:
        yield None
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(notices.fileno(), woken.set)
    try:
        yield notices
    finally:
        loop.remove_reader(notices.fileno())
        notices.close()
