"""The kernel's notices about a directory (inotify), which the standard library does not offer.

`pending` hands over what had happened when it was called, and never waits: the kernel queues a notice before the
system call that caused it returns, so a change finished before the call is always among them.
"""

import asyncio
import ctypes
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# <sys/inotify.h>
ATTRIB = 0x00000004
CLOSE_WRITE = 0x00000008
MOVED_FROM = 0x00000040
MOVED_TO = 0x00000080
CREATE = 0x00000100
DELETE = 0x00000200
DELETE_SELF = 0x00000400
MOVE_SELF = 0x00000800
UNMOUNT = 0x00002000
OVERFLOW = 0x00004000  # the queue was full: anything may have happened
IGNORED = 0x00008000  # the watch is over
ONLYDIR = 0x01000000

HEADER = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows


class Event(NamedTuple):
    watch: int
    mask: int
    name: str


# What the kernel means where it has run out of something else than it says.
LIMITS = {errno.EMFILE: "fs.inotify.max_user_instances", errno.ENOSPC: "fs.inotify.max_user_watches"}


class Inotify:
    """One queue of notices.  Methods raise OSError as the kernel answers; the descriptor never blocks."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        return self._fd

    def watch(self, path: Path, events: int) -> int:
        """Follows symbolic links.  Returns the number by which events name this watch; none is given out twice."""
        return self._checked(self._libc.inotify_add_watch(self._fd, os.fsencode(path), ctypes.c_uint32(events)))

    def unwatch(self, watch: int) -> None:
        """A watch the kernel has already dropped is no error."""
        self._libc.inotify_rm_watch(self._fd, watch)

    def pending(self) -> list[Event]:
        size = struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)))[0]
        data = os.read(self._fd, size) if size else b""
        events: list[Event] = []
        at = 0
        while at < len(data):
            watch, mask, _, length = HEADER.unpack_from(data, at)
            at += HEADER.size
            events.append(Event(watch, mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))))
            at += length
        return events

    def close(self) -> None:
        os.close(self._fd)

    @staticmethod
    def _checked(result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            limit = LIMITS.get(number)
            raise OSError(number, f"{os.strerror(number)} (or sysctl {limit})" if limit else os.strerror(number))
        return result


class Notices:
    """Calls `on_change`, in the loop, for changes in directories.  Where the kernel gives no notices there are none."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._inotify: Inotify | None = None

    def watch(self, directory: Path, events: int) -> bool:
        """May be called again: what is watched already stays so, and what is there only now is watched from now on.
        False if no notices will come."""
        try:
            if self._inotify is None:
                self._inotify = Inotify()
                asyncio.get_running_loop().add_reader(self._inotify, self._read, self._inotify)
            self._inotify.watch(directory, events | ONLYDIR)
        except OSError:
            return False
        return True

    def _read(self, notices: Inotify) -> None:
        if notices.pending():
            self._on_change()

    def close(self) -> None:
        """`watch` opens it again."""
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify)
            self._inotify.close()
            self._inotify = None
