"""The process that makes pods' links: told by the agent what to make, one after the other, and what rules to send.

In a thread of the agent a link waits a dozen times for the interpreter, which the agent's loop has: in a burst for half
of its time.  Here it is alone with the kernel.  What cannot be done straight on is not tried: it is told as failed, and
the agent does it by itself.  So no pod suffers for whatever becomes of this process.

It dies with the agent, and has a hold on the lock of the run directory: no other agent begins while it lives.  It gets
that when it is sure to die, and makes nothing before.
It imports little, for it is there as long as the agent.
"""

import contextlib
import ctypes
import gc
import marshal
import os
import signal
import socket
import sys
from typing import Any

from flock.core.errors import FlockError
from flock.core.faults import Point, faults
from flock.core.whose import Identity
from flock.core.wiring import Wiring
from flock.edge.kernel.podlink import Bare, PodLinks
from flock.edge.kernel.podnetns import Entered

# Asked by the agent, and told to it: (which, number, what).  The number is the link's, from its OPEN on.
OPEN = 1  # the path of a pod's namespace
CREATE = 2  # the fields of a Wiring: both ends are to be made, down
BRING_UP = 3  # announced addresses
DROP = 4  # nothing: it is not to be brought up, and what was made stays
SEND = 5  # nothing: the letter, if it is still there, over the socket for rules, where the kernel's answer comes
IDENTIFIED = 6  # the fields of an Identity: the pod's namespace, before anything is made in it
UP = 7  # the host side's index
FAILED = 8  # why.  Nothing more is done about it, and nothing more is told
DROPPED = 9  # nothing
SENT = 10  # whether it was; nothing is told of a letter that was taken back
READY = 11  # nothing: it dies with the agent from now on.  The agent hands it the lock then, and asks
# What both must mean the same by: an agent of another version begins what its package's successor left in its place.
SPOKEN = repr((1, Wiring._fields, Identity._fields))

LONGEST = 64 << 10  # bytes that are asked: a pod with a thousand addresses
LONGEST_ANSWER = 8 << 10
LONGEST_REASON = 1000  # characters
SET_PDEATHSIG, SET_NAME = 1, 15
CYCLES = 10_000  # objects made and kept until it is looked for cycles: a link makes some hundreds, and no cycle
NAME = b"flock-links"  # in `ps` and `top`
AGENTS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # it may need this until its end


class _Links:
    """Until the agent hangs up."""

    def __init__(self, *, agent: socket.socket, letters: socket.socket, rules: socket.socket, links: PodLinks) -> None:
        self._agent, self._letters, self._rules = agent, letters, rules
        self._links = links
        self._opened: dict[int, Entered] = {}
        self._made: dict[int, tuple[Wiring, Bare]] = {}
        self._does = {
            OPEN: self._open,
            CREATE: self._create,
            BRING_UP: self._bring_up,
            DROP: self._drop,
            SEND: self._send,
        }

    def serve(self) -> None:
        while asked := self._agent.recv(LONGEST):
            which, number, what = marshal.loads(asked)
            try:
                self._does[which](number, what)
            except Exception as error:  # of ours too: one link is not to be all others' undoing
                said = str(error) if isinstance(error, FlockError | OSError) else repr(error)
                self._tell(FAILED, number, said[:LONGEST_REASON])

    def _open(self, number: int, netns: Any) -> None:
        opened = self._opened[number] = self._links.open(netns)
        self._tell(IDENTIFIED, number, tuple(opened.identity))

    def _create(self, number: int, what: Any) -> None:
        if number in self._opened:
            wiring = Wiring(*what)
            self._made[number] = wiring, self._links.create(wiring, self._opened.pop(number), None)

    def _bring_up(self, number: int, announced: Any) -> None:
        if number in self._made:
            wiring, bare = self._made.pop(number)
            self._tell(UP, number, self._links.bring_up(wiring, bare, announced=announced).host_index)

    def _drop(self, number: int, _: Any) -> None:
        if number in self._opened:
            self._opened.pop(number).close()
        elif number in self._made:
            self._made.pop(number)[1].pod.close()
        else:
            return
        self._tell(DROPPED, number, None)

    def _send(self, number: int, _: Any) -> None:
        try:
            letter = self._letters.recv(LONGEST, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        try:
            faults.reach(Point.NETLINK)
            self._rules.send(letter)
            sent = True
        except OSError:
            sent = False
        self._tell(SENT, number, sent)

    def _tell(self, which: int, number: int, what: Any) -> None:
        self._agent.send(marshal.dumps((which, number, what)))


def main() -> None:
    """Arguments: what is spoken, the agent's process, sockets (to the agent, for its letters, for rules), where the
    kernel's switches are."""
    spoken, sysctl = sys.argv[1], sys.argv[6]
    parent, *sockets = map(int, sys.argv[2:6])
    if spoken != SPOKEN:
        sys.exit("flock-links: begun by an agent of another version, which makes links by itself")
    libc = ctypes.CDLL(None)
    libc.prctl(SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        return  # it died before that
    libc.prctl(SET_NAME, NAME, 0, 0, 0)
    for number in AGENTS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    faults.arm(os.environ.get("FLOCK_FAULT", ""), along=parent)
    agent, letters, rules = (socket.socket(fileno=number) for number in sockets)
    links = _Links(agent=agent, letters=letters, rules=rules, links=PodLinks(sysctl=sysctl))
    gc.collect()
    gc.freeze()
    gc.set_threshold(CYCLES)
    with contextlib.suppress(ConnectionError):
        agent.send(marshal.dumps((READY, 0, None)))
        _, lock, _, _ = socket.recv_fds(agent, 1, 1)
        if lock:
            links.serve()


if __name__ == "__main__":
    main()
