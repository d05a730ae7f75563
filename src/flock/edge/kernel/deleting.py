"""Deleting pods' links: all that wait together, and whose link is gone goes on.

The kernel answers whoever has links deleted when it may give back the last of their memory: 14 to 40 ms later, in which
it waits for everybody who might still look, and holds nobody up.  That a link is gone, with its addresses, routes and
neighbours, it tells everybody after half a millisecond, and from then on nobody finds anything of it.  So a caller
goes on when that is told, with the number of the group that the links to be deleted were put into: then it was not
somebody else who deleted it, what had to be done before is done, and nothing is still to come that might take another
link of its name.  The kernel's answer says what went wrong, and is good enough where nothing was told; several threads
wait for such, each with links of its own.
"""

import asyncio
import contextlib
import socket
from collections.abc import Collection
from pathlib import Path

from flock.core.errors import FlockError
from flock.core.model import Allocation
from flock.edge.batching import Rounds
from flock.edge.ending import first
from flock.edge.kernel.monitor import BUFFER, LINK_HEADER, RTMGRP_LINK
from flock.edge.kernel.podlink import NO_GROUP, PodLinks, new_group
from flock.edge.netlink import sieve
from flock.edge.netlink import wire as w
from flock.edge.netlink.listener import Listener
from flock.edge.netlink.socket import SO_RCVBUFFORCE
from flock.edge.worker import Worker, unheard

# What comes one after the other, every 4 ms, then waits for no thread.  One takes 30 kB.
THREADS = 8

Failures = dict[str, FlockError | OSError]  # by container


class _Doomed:
    """A pod's link.  `gone` is told when it is."""

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation
        self.group = NO_GROUP
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Deleting:
    """For the event loop's thread."""

    def __init__(self, *, sysctl: Path) -> None:
        self._threads = [(Worker(f"delete-{number}"), PodLinks(sysctl=sysctl)) for number in range(THREADS)]
        self._notices = _Notices()
        self._rounds = Rounds(self._delete)

    @property
    def workers(self) -> list[Worker]:
        return [worker for worker, _ in self._threads]

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self._notices.close()

    async def delete(self, allocation: Allocation) -> None:
        """Returns when the link is gone, and what else there is of the pod in the kernel.  For one caller at a time for
        each container, who sees to it that nobody makes its link meanwhile, and who is not cancelled before the agent
        ends: it would be deleted all the same."""
        doomed = self._notices.expect(allocation)
        answer = self._rounds.join(doomed)
        answer.add_done_callback(unheard)
        await first(doomed.gone, answer)
        if not doomed.gone.done() and (failed := answer.result().get(allocation.container_id)) is not None:
            raise failed

    async def _delete(self, doomed: list[_Doomed]) -> Failures:
        """A round is over when all its links are gone, though its thread has no answer yet."""
        group = new_group()
        for one in doomed:
            one.group = group
        worker, links = min(self._threads, key=lambda thread: thread[0].load)
        answer = worker.run(links.detach, [one.allocation for one in doomed], group=group)
        answer.add_done_callback(unheard)
        try:
            await first(answer, asyncio.gather(*(one.gone for one in doomed)))
        finally:
            self._notices.forget(doomed)
        return answer.result() if answer.done() else {}


class _Notices(Listener):
    """What the kernel tells of links that are gone.  It is listened to from the first that is expected on."""

    def __init__(self) -> None:
        self._expected: dict[str, _Doomed] = {}  # by host interface
        self._started = False
        super().__init__()

    def close(self) -> None:
        if self._started:
            super().close()
        else:
            self._closed = True
            self._socket.close()

    def expect(self, allocation: Allocation) -> _Doomed:
        if not self._started and not self._closed:
            self._started = True
            self.start()
        doomed = self._expected[allocation.host_interface] = _Doomed(allocation)
        return doomed

    def forget(self, doomed: Collection[_Doomed]) -> None:
        for one in doomed:
            if self._expected.get(one.allocation.host_interface) is one:
                del self._expected[one.allocation.host_interface]

    def _open(self) -> socket.socket:
        made = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
        )
        with contextlib.suppress(PermissionError):  # an agent that may not is there, and says so
            made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        sieve.only_types(made, [w.RTM_DELLINK])
        made.bind((0, RTMGRP_LINK))
        return made

    def _take(self, data: bytes) -> None:
        for kind, _, _, body in w.messages(data):
            if kind != w.RTM_DELLINK or body[0] != socket.AF_UNSPEC:  # of a family: it left a bridge
                continue
            doomed = self._expected.get(w.as_text(w.find(body, LINK_HEADER, w.IFLA_IFNAME)))
            if doomed is None or doomed.gone.done():
                continue
            if w.as_u32(w.find(body, LINK_HEADER, w.IFLA_GROUP)) == doomed.group != NO_GROUP:
                doomed.gone.set_result(None)

    def _missed(self) -> None:
        """That costs time, and nothing else."""
