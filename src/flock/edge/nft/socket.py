"""A netfilter socket: transactions of element operations, and questions.

A transaction is one datagram; the kernel works all of it off inside the send, puts it in force as a whole or not at
all, and answers every message it refused.  A deletion of what is not there is no failure: the transaction is sent again
without it.
"""

import errno
import os
import socket
import struct
from collections.abc import Sequence

from flock.core.errors import KernelRefused
from flock.core.faults import Point, faults
from flock.core.policy.elements import Operation
from flock.edge.netlink import dumps
from flock.edge.netlink import wire as w
from flock.edge.nft.batch import (
    BATCH_BEGIN,
    BATCH_END,
    DELCHAIN,
    DELSET,
    DELSETELEM,
    SUBSYSTEM,
    Message,
    messages,
    plain_header,
)

NETLINK_NETFILTER = 12
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
SEND_BUFFER = 32 << 20  # a transaction is one datagram; ten thousand elements take a megabyte
RECEIVE = 256 * 1024
TIMEOUT = 30  # an answer is there when the send is done; this only bounds a bug
_DELETIONS = tuple(SUBSYSTEM << 8 | kind for kind in (DELSETELEM, DELCHAIN, DELSET))


class NftSocket:
    """Belongs to the network namespace it was opened in.  Not safe for concurrent use."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, SEND_BUFFER)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", TIMEOUT, 0))
        self._socket.bind((0, 0))
        self.port: int = self._socket.getsockname()[0]  # by which our own changes are told from others'
        self._seq = 0

    def close(self) -> None:
        self._socket.close()

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

    def _attempt(self, batch: list[Message]) -> set[int]:
        """Positions of deletions that found nothing to delete; if there are any, nothing was done."""
        missing = set()
        for position, (number, said) in sorted(self._send_batch(batch).items()):
            if number != errno.ENOENT or batch[position].kind not in _DELETIONS:
                text = f"{os.strerror(number)} ({said})" if said else os.strerror(number)
                raise KernelRefused(f"nft: {batch[position].what}: {text}", errno=number)
            missing.add(position)
        return missing

    def _send_batch(self, batch: list[Message]) -> dict[int, tuple[int, str]]:
        """What was refused, by position, with the error number and the kernel's words.

        Answers come in the order of the messages, so only the last message has to ask for one.
        """
        begin, first = self._seq + 1, self._seq + 2
        last = begin + len(batch)
        self._seq = last + 1
        datagram = w.message(BATCH_BEGIN, 0, begin, plain_header(SUBSYSTEM))
        for seq, m in enumerate(batch, first):
            datagram += w.message(m.kind, m.flags | (w.NLM_F_ACK if seq == last else 0), seq, m.body)
        self._send(datagram + w.message(BATCH_END, 0, self._seq, plain_header(SUBSYSTEM)))
        refused: dict[int, tuple[int, str]] = {}
        while True:
            for kind, flags, seq, body in w.messages(self._receive()):
                if kind != w.NLMSG_ERROR or not begin <= seq <= last:
                    continue
                number = -struct.unpack_from("=i", body)[0]
                if seq == begin and number:  # the transaction as a whole
                    raise KernelRefused(f"nft: transaction: {os.strerror(number)}", errno=number)
                if number:
                    refused[seq - first] = (number, _explanation(flags, body))
                if seq == last:
                    return refused

    def ask(self, kind: int, body: bytes, *, dump: bool) -> list[bytes]:
        """The bodies of all answers, never just some of them; empty where there is no such thing."""
        return dumps.whole(lambda: self._ask_once(kind, body, dump=dump), "nft: list")

    def _ask_once(self, kind: int, body: bytes, *, dump: bool) -> tuple[list[bytes], bool]:
        self._seq += 1
        flags = w.NLM_F_ROOT_MATCH if dump else w.NLM_F_ACK
        self._send(w.message(SUBSYSTEM << 8 | kind, flags, self._seq, body))
        found: list[bytes] = []
        interrupted = False
        while True:
            for answer, answer_flags, seq, content in w.messages(self._receive()):
                if seq != self._seq:
                    continue
                interrupted |= bool(answer_flags & w.NLM_F_DUMP_INTR)
                if answer in (w.NLMSG_DONE, w.NLMSG_ERROR):
                    if number := dumps.failure(content):
                        raise KernelRefused(f"nft: {os.strerror(number)}", errno=number)
                    return found, interrupted
                found.append(content)

    def _send(self, datagram: bytes) -> None:
        try:
            faults.reach(Point.NETLINK)
            self._socket.send(datagram)
        except OSError as error:
            raise KernelRefused(f"nft: netlink: {error.strerror}", errno=error.errno or 0) from None

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(RECEIVE)
        except BlockingIOError:
            raise KernelRefused(f"the kernel did not answer an nft request within {TIMEOUT} s") from None
        except OSError as error:
            raise KernelRefused(f"nft: netlink: {error.strerror}", errno=error.errno or 0) from None


def _explanation(flags: int, body: bytes) -> str:
    if not flags & w.NLM_F_ACK_TLVS:
        return ""
    return w.as_text(w.attrs(body, 4 + w.HEADER_SIZE).get(w.NLMSGERR_ATTR_MSG, b""))
