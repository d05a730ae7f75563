"""A /proc of our own, for the switches of pods' namespaces.

Below /proc/sys/net the kernel keeps what was looked up for each network namespace, all under the same names, and finds
one's by walking everybody's: 0.02 ms for one switch beside few pods, 0.35 beside a thousand.  One that was made a
moment ago has nothing to walk, and costs 0.03 ms to make.  It is mounted nowhere; whoever opens something in it
sees the namespace the thread is in, as in any other.
"""

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FSOPEN, FSCONFIG, FSMOUNT = 430, 431, 432  # the same on all machines; since Linux 5.2
FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC, CMD_CREATE = 1, 1, 6
NOSUID_NODEV_NOEXEC = 2 | 4 | 8
LOOKUPS = 32  # until another is made: so few are walked in no time

_libc = ctypes.CDLL(None)


class FreshProc:
    """For one thread at a time.  `usual`: where switches are found otherwise, the host's /proc/sys/net; there they are
    opened where a kernel, or a container, has no other /proc for us, and for want of descriptors."""

    def __init__(self, usual: "str | Path") -> None:
        self._usual = f"{usual}/"
        self._root = -1
        self._lookups = 0

    def __del__(self) -> None:
        self._close()

    def open(self, path: str, flags: int) -> int:
        """As `os.open` does it, of a path below the usual place."""
        self._renew()
        if self._root >= 0:
            with contextlib.suppress(OSError):
                return os.open(f"sys/net/{path.removeprefix(self._usual)}", flags, dir_fd=self._root)
        return os.open(path, flags)

    def _renew(self) -> None:
        if self._lookups % LOOKUPS == 0:
            self._close()
            self._root = _made()
        self._lookups += 1

    def _close(self) -> None:
        root, self._root = self._root, -1
        if root >= 0:
            os.close(root)


def _made() -> int:
    """Its root; negative if there is none to be had."""
    context = int(_libc.syscall(FSOPEN, b"proc", FSOPEN_CLOEXEC))
    if context < 0:
        return -1
    try:
        if _libc.syscall(FSCONFIG, context, CMD_CREATE, None, None, 0) != 0:
            return -1
        return int(_libc.syscall(FSMOUNT, context, FSMOUNT_CLOEXEC, NOSUID_NODEV_NOEXEC))
    finally:
        os.close(context)
