"""Connecting to a unix socket whose listener is busy.

A queue of callers that is full makes connect() fail at once (EAGAIN) where somebody is there, and asyncio takes that
for a connection that is under way and then for one that is made.  So it is tried again, as the executable does.
"""

import asyncio
import errno
import socket
import time
from pathlib import Path

PAUSE = 0.02  # seconds


def connect(path: Path, *, within: float) -> socket.socket:
    """A connection, which blocks.  OSError if nobody is there, BlockingIOError if the queue stays full that long."""
    end = time.monotonic() + within
    while (connection := _attempt(path, last=time.monotonic() >= end)) is None:
        time.sleep(PAUSE)
    connection.setblocking(True)
    return connection


async def connect_soon(path: Path) -> socket.socket:
    """The same for a loop, which does not block, for as long as the caller has patience."""
    while True:
        if (connection := _attempt(path, last=False)) is not None:
            return connection
        await asyncio.sleep(PAUSE)


def _attempt(path: Path, *, last: bool) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        connection.connect(str(path))
    except BlockingIOError:
        connection.close()
        if last:
            raise BlockingIOError(errno.EAGAIN, "too many others wait for its answer") from None
        return None
    except BaseException:
        connection.close()
        raise
    return connection
