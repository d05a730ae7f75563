"""A netlink socket that sends a batch in one system call and reports the first refusal.

The kernel works through the messages of a datagram in order and answers each failure, asked or not; so only the
last message asks for an acknowledgement, and one answer usually ends the whole batch.
A socket belongs to the network namespace it was opened in, for good, whichever thread uses it later.
"""

import errno
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, Self, TypeVar

from flock.core.errors import KernelRefused
from flock.core.faults import Point, faults
from flock.edge.netlink import wire as w
from flock.edge.netlink.route import Link, Request, get_link

NETLINK_NETFILTER = 12
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK = 270, 10, 11, 12
SO_NETNS_COOKIE = 71
SO_RCVBUFFORCE = 33  # not capped by net.core.rmem_max, which is 208 KiB on most hosts
# A dump's datagrams are at most 32 KiB; acknowledgements are tiny.  For more than 128 KiB the C library would ask the
# kernel for memory, and give it back, each time: ten times the cost of the system call itself.
RECEIVE = 64 * 1024
# Messages per datagram: some 30 KiB, well below a socket's send buffer; and were all of them refused, the answers
# would still fit its receive buffer (300 do not, and then the last answer is lost).
BATCH = 256
# An answer from the kernel comes within the send; this only bounds a bug or a lost answer.
TIMEOUT = 30
# Each attempt is independent.  On a node that changes this fast there is nothing to compare: later.
ATTEMPTS = 10

# Of what a pod's namespace is full of, at most so much is read, and so often: its tenant fills and changes it at will.
GLIMPSE, GLANCES = 1024, 3

T = TypeVar("T")


class Glimpse(NamedTuple, Generic[T]):
    """Some of a list.  What is not in it may be there after all, unless it is `whole`."""

    seen: list[T]
    whole: bool


class NetlinkSocket:
    """Not safe for concurrent use: one thread at a time."""

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", TIMEOUT, 0))
        self._seq = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def netns_cookie(self) -> int:
        """Of the namespace it belongs to: no other had or gets it until the next boot.  0: this kernel has none."""
        try:
            return int.from_bytes(self._socket.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8), sys.byteorder)
        except OSError as error:
            if error.errno != errno.ENOPROTOOPT:  # before Linux 5.14
                raise
            return 0

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, requests: Sequence[Request], *, ignore: Sequence[int] = ()) -> None:
        """Send all; raise KernelRefused for the first that failed with an errno not in `ignore`."""
        batches = [requests[start : start + BATCH] for start in range(0, len(requests), BATCH)]
        failures = [self._run_batch(batch, ignore) for batch in batches]
        for failure in filter(None, failures):
            raise failure

    def _run_batch(self, requests: Sequence[Request], ignore: Sequence[int]) -> KernelRefused | None:
        first = self._seq + 1
        self._seq += len(requests)
        self.send(encoded(requests, first), requests[0].what)
        failure: KernelRefused | None = None
        for kind, flags, seq, body in self._answers(first, self._seq):
            if kind != w.NLMSG_ERROR:
                continue
            number = -struct.unpack_from("=i", body)[0]
            if number and number not in ignore and failure is None:
                failure = refused(requests[seq - first].what, number, flags, body)
            if seq == self._seq:
                break
        return failure

    def get(self, request: Request) -> bytes:
        """The body of the one object asked for."""
        self._ask(request)
        kind, flags, _, body = next(self._answers(self._seq, self._seq))
        if kind == w.NLMSG_ERROR:
            raise refused(request.what, -struct.unpack_from("=i", body)[0], flags, body)
        return body

    def dump(self, request: Request, decode: Callable[[bytes], T]) -> list[T]:
        """All objects of a kind, or KernelRefused: never a list that may lack some.  What does not exist has none.

        The kernel tells an object at a time and lets changes happen between; a list that was changed under its hands,
        which it marks as interrupted, may lack objects that were there all along.  Whoever compares would take those
        for lost, or for nobody's."""
        for _ in range(ATTEMPTS):
            found, interrupted = self._dump_once(request, decode)
            if not interrupted:
                return found
        raise KernelRefused(f"{request.what}: changed {ATTEMPTS} times while it was read")

    def glimpse(self, request: Request, decode: Callable[[bytes], T]) -> Glimpse[T]:
        """Objects of a kind in a namespace that is somebody else's, who may have any number of them and change them
        without end: this takes a bounded time.  A list that was cut short is not read to its end, and the kernel begins
        no other one on this socket: it is for one list."""
        for _ in range(GLANCES):
            found, interrupted = self._dump_once(request, decode, at_most=GLIMPSE)
            if not interrupted or len(found) == GLIMPSE:
                break
        return Glimpse(found, whole=not interrupted)

    def _dump_once(
        self, request: Request, decode: Callable[[bytes], T], *, at_most: int | None = None
    ) -> tuple[list[T], bool]:
        """What there is, and whether that may not be all of it."""
        self._ask(request)
        objects: list[T] = []
        interrupted = False
        for kind, flags, _, body in self._answers(self._seq, self._seq):
            interrupted |= bool(flags & w.NLM_F_DUMP_INTR)
            if kind in (w.NLMSG_DONE, w.NLMSG_ERROR):
                if number := failure(body):
                    raise refused(request.what, number, flags, body)
                break
            if len(objects) == at_most:
                return objects, True
            objects.append(decode(body))
        return objects, interrupted

    def _ask(self, request: Request) -> None:
        self._seq += 1
        self.send(w.message(request.kind, request.flags, self._seq, request.body), request.what)

    def _answers(self, first: int, last: int) -> Iterator[tuple[int, int, int, bytes]]:
        """To the messages with these numbers, for as long as somebody reads on: (type, flags, sequence, body)."""
        while True:
            for answer in w.messages(self.receive()):
                if first <= answer[2] <= last:
                    yield answer

    def send(self, datagram: bytes, what: str) -> None:
        try:
            faults.reach(Point.NETLINK)
            self._socket.send(datagram)
        except OSError as error:
            raise KernelRefused(f"{what}: netlink: {error.strerror}", errno=error.errno or 0) from None

    def receive(self) -> bytes:
        try:
            return self._socket.recv(RECEIVE)
        except BlockingIOError:
            raise KernelRefused("the kernel did not answer a netlink request in time") from None
        except OSError as error:
            raise KernelRefused(f"netlink: {error.strerror}", errno=error.errno or 0) from None


class Netlink(NetlinkSocket):
    """For links, addresses, routes, neighbours."""

    def __init__(self) -> None:
        super().__init__(socket.NETLINK_ROUTE)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1)  # dumps are filtered by the kernel

    def create(self, request: Request, name: str) -> Link:
        """Make the link of this name and look at it, in one datagram."""
        first, look = self._seq + 1, get_link(name)
        self._seq += 2
        made = w.message(request.kind, request.flags, first, request.body)
        self.send(made + w.message(look.kind, look.flags, self._seq, look.body), request.what)
        failure: KernelRefused | None = None
        for kind, flags, seq, body in self._answers(first, self._seq):
            if kind == w.NLMSG_ERROR and failure is None:
                what = request.what if seq == first else look.what
                failure = refused(what, -struct.unpack_from("=i", body)[0], flags, body)
            if seq == self._seq:
                break
        if failure is not None:
            raise failure
        return Link.decode(body)

    def link(self, name_or_index: str | int) -> Link | None:
        try:
            return Link.decode(self.get(get_link(name_or_index)))
        except KernelRefused as error:
            if error.errno == errno.ENODEV:
                return None
            raise


def encoded(requests: Sequence[Request], first: int) -> bytes:
    """Messages with numbers from `first` on, the last of which asks for an answer."""
    last = len(requests) - 1
    return b"".join(
        w.message(r.kind, r.flags | (w.NLM_F_ACK if i == last else 0), first + i, r.body)
        for i, r in enumerate(requests)
    )


def refused(what: str, number: int, flags: int, body: bytes) -> KernelRefused:
    """With the kernel's own words where it has some: after the error number and the failed message's header."""
    said = w.attrs(body, 4 + w.HEADER_SIZE).get(w.NLMSGERR_ATTR_MSG) if flags & w.NLM_F_ACK_TLVS else None
    text = f"{os.strerror(number)} ({w.as_text(said)})" if said else os.strerror(number)
    return KernelRefused(f"{what}: {text}", errno=number)


def failure(body: bytes) -> int:
    """The error number in the message that ends a list, 0 if there is none: what does not exist has nothing in it."""
    number = -int(struct.unpack_from("=i", body)[0]) if len(body) >= 4 else 0
    return 0 if number == errno.ENOENT else number
