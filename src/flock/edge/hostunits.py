"""Whether the host is going down, by the one sign of it that a pod can be shown without being handed the host.

systemd keeps a link `invocation:<unit>` in /run/systemd/units for every service that is up.  `systemd-user-sessions`
is up from the end of the boot until a shutdown begins, and ordered after network.target: its link goes before any
network daemon is stopped, while pods, whose processes systemd ends last of all, run on.  Its stop also writes
/run/nologin, but a file that is not there yet cannot be mounted, and all of /run would come with the sockets of
systemd and the container runtime; in the directory of units there is nothing to connect to.

A host on which the link was never seen (another init, no user sessions) never says that it goes down.
"""

from pathlib import Path

SIGN = "invocation:systemd-user-sessions.service"


class HostUnits:
    """`going_down` is as of the last look."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._seen = False
        self.going_down = False

    def look(self) -> bool:
        """True if something has changed since the last look."""
        present = (self.directory / SIGN).is_symlink()
        self._seen = self._seen or present
        before, self.going_down = self.going_down, self._seen and not present
        return before != self.going_down
