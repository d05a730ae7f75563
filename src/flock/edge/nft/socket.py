"""A netfilter socket: transactions of element operations, and questions.

A transaction is one datagram; the kernel works all of it off inside the send, puts it in force as a whole or not at
all, and answers every message it refused.  A deletion of what is not there is no failure: the transaction is sent again
without it.
"""

import errno
import socket
import struct
from collections.abc import Generator, Sequence

from flock.core.errors import KernelRefused
from flock.core.policy.elements import Operation
from flock.edge.netlink import socket as netlink
from flock.edge.netlink import wire as w
from flock.edge.netlink.route import Request
from flock.edge.netlink.socket import NETLINK_NETFILTER, SO_RCVBUFFORCE, NetlinkSocket, encoded, refused
from flock.edge.nft.batch import (
    BATCH_BEGIN,
    BATCH_END,
    DELCHAIN,
    DELSET,
    DELSETELEM,
    SUBSYSTEM,
    message_type,
    messages,
    plain_header,
)

SO_SNDBUFFORCE = 32
BUFFER = 32 << 20  # a transaction is one datagram; ten thousand elements take a megabyte
_DELETIONS = tuple(message_type(kind) for kind in (DELSETELEM, DELCHAIN, DELSET))


class NftSocket(NetlinkSocket):
    def __init__(self, *, waits: bool = True) -> None:
        """`waits`: for answers that are not there yet, else KernelRefused."""
        super().__init__(NETLINK_NETFILTER)
        self._socket.setblocking(waits)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        self._socket.bind((0, 0))
        self.port: int = self._socket.getsockname()[0]  # by which our own changes are told from others'

    def commit(self, operations: Sequence[Operation]) -> None:
        """All or nothing; KernelRefused names the first operation that was refused."""
        if not operations:
            return
        missing = self._attempt(list(messages(operations)))
        if missing:  # one by one, to find out which
            batch = list(messages(operations, per_message=1))
            missing = self._attempt(batch)
            rest = [message for position, message in enumerate(batch) if position not in missing]
            if missing and rest:
                self._attempt(rest)

    def _attempt(self, batch: list[Request]) -> set[int]:
        """Positions of deletions that found nothing to delete; if there are any, nothing was done."""
        missing = set()
        for position, failure in sorted(self._send_batch(batch).items()):
            if failure.errno != errno.ENOENT or batch[position].kind not in _DELETIONS:
                raise failure
            missing.add(position)
        return missing

    def _send_batch(self, batch: list[Request]) -> dict[int, KernelRefused]:
        """What was refused, by position."""
        self.send(self.composed(batch), "nft")
        return self.outcome(batch)

    def composed(self, batch: list[Request]) -> bytes:
        """One transaction, for whoever sends it.  Answers come in the order of the messages, so only the last has to
        ask."""
        begin, first = self._seq + 1, self._seq + 2
        last = begin + len(batch)
        self._seq = last + 1
        head, tail = (
            w.message(kind, 0, seq, plain_header(SUBSYSTEM))
            for kind, seq in ((BATCH_BEGIN, begin), (BATCH_END, last + 1))
        )
        return head + encoded(batch, first) + tail

    def outcome(self, batch: list[Request]) -> dict[int, KernelRefused]:
        """The answer to what was composed last and has been sent, by position."""
        last = self._seq - 1
        first = last - len(batch) + 1
        begin = first - 1
        failures: dict[int, KernelRefused] = {}
        for kind, flags, seq, body in self._answers(begin, last):
            if kind != w.NLMSG_ERROR:
                continue
            number = -struct.unpack_from("=i", body)[0]
            if seq == begin and number:
                raise refused("nft: transaction as a whole", number, flags, body)
            if number:
                failures[seq - first] = refused(f"nft: {batch[seq - first].what}", number, flags, body)
            if seq == last:
                break
        return failures

    def drain(self) -> None:
        """Forget the answers that are there, and those that the kernel had no memory for."""
        failed: int | None = errno.ENOBUFS
        while failed == errno.ENOBUFS:
            try:
                self._socket.recv(1, socket.MSG_DONTWAIT)
            except OSError as error:
                failed = error.errno

    def ask(self, kind: int, body: bytes, *, dump: bool) -> list[bytes]:
        """The bodies of all answers, never just some of them; empty where there is no such thing."""
        flags = w.NLM_F_ROOT_MATCH if dump else w.NLM_F_ACK
        return self.dump(Request("nft: list", message_type(kind), flags, body), bytes)

    def each(self, kind: int, body: bytes) -> Generator[bytes]:
        """The same of a list that may be long, one after the other, once; who stops before its end closes the socket.
        KernelRefused at the end of one that was changed meanwhile."""
        self._ask(Request("nft: list", message_type(kind), w.NLM_F_ROOT_MATCH, body))
        interrupted = False
        for answer, flags, _, told in self._answers(self._seq, self._seq):
            interrupted |= bool(flags & w.NLM_F_DUMP_INTR)
            if answer in (w.NLMSG_DONE, w.NLMSG_ERROR):
                if number := netlink.failure(told):
                    raise refused("nft: list", number, flags, told)
                break
            yield told
        if interrupted:
            raise KernelRefused("nft: list: changed while it was read", errno=errno.EINTR)
