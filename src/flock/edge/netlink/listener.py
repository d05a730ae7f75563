"""A netlink socket on which the kernel tells of things, read on the event loop for as long as the agent lives.

It does not end (invariant 12): a notice that cannot be understood costs that notice, and a socket that fails is opened
anew.  Either way something may have been missed, and whoever listens is told to look at everything.
"""

import asyncio
import errno
import logging
import socket
from abc import ABC, abstractmethod

log = logging.getLogger("listen")

BURST = 1000  # datagrams per wake-up, so that a flood does not starve the loop
RETRY = 1.0


class Listener(ABC):
    """`start` it on the loop that is to be told; what `_open` raises at first, the constructor raises."""

    gather = 0.0  # seconds to let more come before looking: one wake-up for many notices

    def __init__(self) -> None:
        self._socket = self._open()
        self._closed = False

    @abstractmethod
    def _open(self) -> socket.socket:
        """A socket that does not block.  OSError or FlockError."""

    @abstractmethod
    def _take(self, data: bytes) -> None:
        """One datagram."""

    @abstractmethod
    def _missed(self) -> None:
        """Some were lost: anything may have happened."""

    def _caught_up(self) -> None:  # noqa: B027 - most have nothing to do then
        """Everything that was told until now has been taken."""

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._wake)

    def close(self) -> None:
        self._closed = True
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()

    def _wake(self) -> None:
        if not self.gather:
            self._drain()
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket.fileno())
        loop.call_later(self.gather, self._look)

    def _look(self) -> None:
        if not self._closed:
            self._drain()
        if self._socket.fileno() >= 0:
            self.start()

    def _drain(self) -> None:
        try:
            for _ in range(BURST):
                self._receive()
        except BlockingIOError:
            self._caught_up()
        except OSError as error:
            log.error("lost a netlink socket of=%s problem=%s", type(self).__name__, error)
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._reopen()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(65536)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            self._missed()
            return
        try:
            self._take(data)
        except Exception:
            log.exception("could not take a notice of=%s", type(self).__name__)
            self._missed()

    def _reopen(self) -> None:
        if self._closed:
            return
        try:
            self._socket = self._open()
            self.start()
        except Exception as error:
            log.error("could not listen again of=%s problem=%s", type(self).__name__, error)
            asyncio.get_running_loop().call_later(RETRY, self._reopen)
        else:
            self._missed()
