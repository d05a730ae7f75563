"""Transactions of rules, sent by the process that makes links: a pod's are wanted while its link is made.

The kernel works a transaction off inside the send, and waits there while somebody else's is under way, so the loop's
thread never sends one.  Another thread has to wait for the interpreter, and on two cores for the loop or that process.
The process only sends, between two steps of links, and says when: the socket is the agent's, who composes and reads the
answer.

What it does not send, for whatever reason, is for a thread of the agent.  So is what it does not come to soon, for it
may wait for the kernel's network configuration, which rules have nothing to do with; and what was refused, to say why.
To send a transaction a second time changes nothing.
"""

import functools
from collections.abc import Callable, Sequence

from flock.core.errors import KernelRefused
from flock.core.policy.elements import Operation
from flock.edge.kernel.linkprocess import LinkProcess
from flock.edge.nft.batch import messages
from flock.edge.nft.socket import NftSocket

FEW = 64  # operations: a pod's, or some pods'.  More would hold up links
ALONE = 1  # links that it works on.  With more it has work all the time, and a thread's time is free


class Transactions:
    """For the event loop's thread, one at a time."""

    def __init__(self, process: Callable[[], LinkProcess | None]) -> None:
        self._process = process

    @functools.cached_property
    def _socket(self) -> NftSocket:
        """When somebody needs it: an agent that may not have one says so, and is there."""
        return NftSocket(waits=False)

    @property
    def port(self) -> int:
        return self._socket.port

    def ready(self) -> NftSocket:
        """The socket, for a new process: what an earlier one sent is of no interest any more.  OSError."""
        self._socket.drain()
        return self._socket

    def close(self) -> None:
        if "_socket" in vars(self):
            self._socket.close()

    async def commit(self, operations: Sequence[Operation]) -> bool:
        """In force if True, as a whole.  Else it may be or not, and is to be done by somebody else.

        When this returns it is not sent any more, and so undoes nothing of what is sent later."""
        process = self._process()
        if process is None or process.at_work > ALONE or len(operations) > FEW:
            return False
        batch = list(messages(operations))
        try:
            return await process.send(self._socket.composed(batch)) and not self._socket.outcome(batch)
        except KernelRefused:
            return False
        finally:
            self._socket.drain()  # of several refusals one was read, and nothing for whoever gave up
