"""Network namespaces: opening them by path, telling them apart, and stepping inside for a moment."""

import contextlib
import ctypes
import errno
import fcntl
import os
from collections.abc import Iterator

from flock.core.errors import Code, FieldError, FlockError
from flock.core.faults import Point, faults

CLONE_NEWNET = 0x40000000
NS_GET_NSTYPE = 0xB703

_libc = ctypes.CDLL(None, use_errno=True)


class Netns:
    """An open network namespace.  `id` is the same for every path that leads to it, as long as it lives."""

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path
        status = os.fstat(fd)
        self.id = f"{status.st_dev}:{status.st_ino}"

    def close(self) -> None:
        os.close(self.fd)


def open_netns(path: str) -> Netns:
    """FieldError naming CNI_NETNS if the path does not lead to a network namespace."""
    try:
        faults.reach(Point.NETNS)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except ValueError:
        raise FieldError("CNI_NETNS", f"{path!r} is not a path", code=Code.INVALID_ENVIRONMENT) from None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise FlockError(f"cannot open namespace {path}: {error.strerror}", code=Code.TRY_AGAIN) from None
        raise FieldError("CNI_NETNS", f"cannot open {path}: {error.strerror}", code=Code.INVALID_ENVIRONMENT) from None
    try:
        kind = fcntl.ioctl(fd, NS_GET_NSTYPE)
    except OSError:
        kind = 0
    if kind != CLONE_NEWNET:
        os.close(fd)
        raise FieldError("CNI_NETNS", f"{path} is not a network namespace", code=Code.INVALID_ENVIRONMENT)
    return Netns(fd, path)


def own_netns() -> Netns:
    """The namespace the calling thread is in."""
    return open_netns("/proc/thread-self/ns/net")


def netns_id(path: str) -> str:
    """The id of the namespace at `path`, empty if there is none.  Raises if that cannot be told now."""
    try:
        namespace = open_netns(path)
    except FieldError:
        return ""
    namespace.close()
    return namespace.id


@contextlib.contextmanager
def inside(namespace: Netns, *, home: Netns) -> Iterator[None]:
    """Run the calling thread in `namespace`.  A thread that cannot come home must not go on working."""
    _setns(namespace.fd)
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
