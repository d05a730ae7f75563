"""The process that makes pods' links: told by the agent what to make, one after the other, and nothing else.

In a thread of the agent a link waits a dozen times for the interpreter, which the agent's loop has: in a burst for half
of its time.  Here it is alone with the kernel.  What cannot be done straight on is not tried: it is told as failed, and
the agent does it by itself.  So no pod suffers for whatever becomes of this process.

It dies with the agent, and has a hold on the lock of the run directory: no other agent begins while it lives.
It imports little, for it is there as long as the agent, and asks for a tenth of its memory.
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
from flock.core.faults import faults
from flock.core.wiring import Wiring
from flock.edge.kernel.podlink import Bare, PodLinks

# Asked by the agent, and told to it: (which, number, what).  The number is the link's, from its CREATE on.
CREATE = 1  # the fields of a Wiring: both ends are to be made, down
BRING_UP = 2  # announced addresses
DROP = 3  # nothing: it is not to be brought up, and what was made stays
IDENTIFIED = 4  # the fields of an Identity: the pod's namespace, before anything is made in it
UP = 5  # the host side's index
FAILED = 6  # why.  Nothing more is done about it, and nothing more is told
DROPPED = 7  # nothing

LONGEST = 64 << 10  # bytes that are asked: a pod with a thousand addresses
LONGEST_ANSWER = 8 << 10
LONGEST_REASON = 1000  # characters
SET_PDEATHSIG, SET_NAME = 1, 15
NAME = b"flock-links"  # in `ps` and `top`
AGENTS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # it may need this until its end


class _Links:
    """Until the agent hangs up."""

    def __init__(self, agent: socket.socket, links: PodLinks) -> None:
        self._agent = agent
        self._links = links
        self._made: dict[int, tuple[Wiring, Bare]] = {}
        self._does = {CREATE: self._create, BRING_UP: self._bring_up, DROP: self._drop}

    def serve(self) -> None:
        while asked := self._agent.recv(LONGEST):
            which, number, what = marshal.loads(asked)
            try:
                self._does[which](number, what)
            except (FlockError, OSError) as error:
                self._tell(FAILED, number, str(error)[:LONGEST_REASON])

    def _create(self, number: int, what: Any) -> None:
        wiring = Wiring(*what)
        bare = self._links.create(wiring, _somebodys, lambda netns: self._tell(IDENTIFIED, number, tuple(netns)))
        self._made[number] = wiring, bare

    def _bring_up(self, number: int, announced: Any) -> None:
        if number in self._made:
            wiring, bare = self._made.pop(number)
            self._tell(UP, number, self._links.bring_up(wiring, bare, announced=announced).host_index)

    def _drop(self, number: int, _: Any) -> None:
        if number in self._made:
            self._made.pop(number)[1].pod.close()
            self._tell(DROPPED, number, None)

    def _tell(self, which: int, number: int, what: Any) -> None:
        self._agent.send(marshal.dumps((which, number, what)))


def _somebodys(_: str) -> bool:
    """As far as is known here.  What stands in the way is the agent's to judge."""
    return True


def main() -> None:
    """Arguments: a socket to the agent, the agent's process, where switches of the kernel are."""
    agent, parent, sysctl = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    libc = ctypes.CDLL(None)
    libc.prctl(SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        return  # it died before that
    libc.prctl(SET_NAME, NAME, 0, 0, 0)
    for number in AGENTS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    faults.arm(os.environ.get("FLOCK_FAULT", ""), along=parent)
    links = _Links(socket.socket(fileno=agent), PodLinks(sysctl=sysctl))
    gc.collect()
    gc.freeze()
    with contextlib.suppress(ConnectionError):
        links.serve()


if __name__ == "__main__":
    main()
