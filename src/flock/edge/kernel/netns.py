"""Network namespaces: opening them by path, and stepping inside for a moment.

For want of descriptors or memory neither says anything about a namespace: TryAgain.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
from collections.abc import Iterator

from flock.core.errors import SHORTAGES, Code, FieldError, TryAgain, refusal
from flock.core.faults import Point, faults

CLONE_NEWNET = 0x40000000
NS_GET_NSTYPE = 0xB703
OWN = "/proc/thread-self/ns/net"
# How the kernel says that a path leads nowhere.  Other errors, as of somebody who may not look, do not.
NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO, errno.ESRCH})

_libc = ctypes.CDLL(None, use_errno=True)


class NoNamespace(FieldError):
    """There is no network namespace at that path, for certain."""

    def __init__(self, problem: str) -> None:
        super().__init__("CNI_NETNS", problem, code=Code.INVALID_ENVIRONMENT)


class Netns:
    """An open network namespace.  `id` is the same for every path that leads to it, and no other's as long as it lives;
    for longer than that, see `core/whose.py`."""

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path
        status = os.fstat(fd)
        self.id = f"{status.st_dev}:{status.st_ino}"

    def close(self) -> None:
        os.close(self.fd)


def open_netns(path: str) -> Netns:
    """NoNamespace if the path leads to none, FieldError naming CNI_NETNS if it may and we must not see it."""
    try:
        if path != OWN:
            faults.reach(Point.NETNS)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except ValueError:
        raise NoNamespace(f"{path!r} is not a path") from None
    except OSError as error:
        problem = f"cannot open {path}: {error.strerror}"
        if error.errno in SHORTAGES:
            raise TryAgain(f"CNI_NETNS: {problem}") from None
        if error.errno in NOWHERE:
            raise NoNamespace(problem) from None
        raise FieldError("CNI_NETNS", problem, code=Code.INVALID_ENVIRONMENT) from None
    try:
        kind = fcntl.ioctl(fd, NS_GET_NSTYPE)
    except OSError:
        kind = 0
    if kind != CLONE_NEWNET:
        os.close(fd)
        raise NoNamespace(f"{path} is not a network namespace")
    return Netns(fd, path)


def own_netns() -> Netns:
    """The namespace the calling thread is in."""
    return open_netns(OWN)


@contextlib.contextmanager
def inside(namespace: Netns, *, home: Netns) -> Iterator[None]:
    """Run the calling thread in `namespace`.  A thread that cannot come home must not go on working."""
    try:
        faults.reach(Point.NETNS_ENTER)
        _setns(namespace.fd)
    except OSError as error:
        raise refusal(f"cannot enter {namespace.path}", error) from None
    try:
        yield
    finally:
        try:
            _setns(home.fd)
        except OSError:
            os.abort()


def _setns(fd: int) -> None:
    if _libc.setns(fd, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "setns")
