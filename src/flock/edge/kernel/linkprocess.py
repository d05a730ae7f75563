"""The agent's end of the process that makes pods' links (`linkmaker`): one life of it."""

import asyncio
import contextlib
import ctypes
import itertools
import logging
import marshal
import os
import socket
import subprocess
import sys
import time
from typing import Any

from flock.core.whose import Identity
from flock.core.wiring import Wiring
from flock.edge.ending import outlast, settled
from flock.edge.kernel import linkmaker as asks
from flock.edge.kernel.linkmessages import Announced
from flock.edge.kernel.podlink import Attached
from flock.edge.nft.socket import SO_SNDBUFFORCE, NftSocket

log = logging.getLogger("links")

# That are not done.  Each has two descriptors open there; in a burst of more, the rest waits for its rules first.
BEGUN = 256
ROOM = 8 << 20  # bytes under way: more than links can be begun at once
# Seconds for a letter to be sent.  Mostly it takes a thousandth; but a link that is waited for may take any time.
MOMENT = 0.02
PATIENCE = 5.0  # seconds for what it is at when it is told to end
AT_ONCE = 32  # answers read in one turn of the loop
LATE, FREE_FOR = 0.02, 1.0  # seconds until it may be on any core, and how long it may then

_libc = ctypes.CDLL(None)


class LinkProcess:
    """For the event loop's thread, the main one: the process dies with the thread that began it.

    `lock`: the process holds it too, and is asked nothing before; `rules`: a socket for it to send over.  OSError if
    there can be none."""

    def __init__(self, *, sysctl: str, lock: int, rules: NftSocket) -> None:
        with contextlib.ExitStack() as opened:
            ours, theirs = map(opened.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            outbox, inbox = map(opened.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            for end in (ours, theirs):
                with contextlib.suppress(PermissionError):  # then it is as large as others'
                    end.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, ROOM)
            shared = theirs.fileno(), inbox.fileno(), rules.fileno()
            told = map(str, (asks.SPOKEN, os.getpid(), *shared, sysctl))
            self._process = subprocess.Popen(
                [sys.executable, "-P", asks.__file__, *told],
                pass_fds=shared,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            opened.pop_all()
        theirs.close()
        for end in (ours, outbox, inbox):
            end.setblocking(False)
        self._socket = ours
        # A letter is what the process is to send.  Until it takes it, it can be taken back, for both can read there.
        self._outbox, self._inbox = outbox, inbox
        self._lock = lock
        self._begun_at, self._ready = time.monotonic(), False
        self._cores = os.sched_getaffinity(0)
        self._not_on = -1  # the core it keeps off
        self._late: asyncio.TimerHandle | None = None
        self._free_until = 0.0
        self._numbers = itertools.count(1)
        self._begun: dict[int, Begun] = {}
        self._heard_at = 0.0
        loop = asyncio.get_running_loop()
        self._sending_since = 0.0  # 0: nothing is being sent
        self._sent: asyncio.Future[bool] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        loop.add_reader(ours, self._hear)

    @property
    def begun(self) -> int:
        """Links that are not done."""
        return len(self._begun)

    @property
    def at_work(self) -> int:
        """Links that it has something to do for, and not only to wait for what they are to be."""
        return sum(begun.at_work for begun in self._begun.values())

    def begin(self, netns: str) -> "Begun | None":
        """None: it cannot be asked to."""
        if not self._listens:  # nor is its number surely its own any more
            return None
        number = next(self._numbers)
        if not self._begun:
            self._send_elsewhere()
        if not self.ask(asks.OPEN, number, netns):
            return None
        begun = self._begun[number] = Begun(self, number)
        return begun

    def _send_elsewhere(self) -> None:
        """To any core but this one, where it would take turns with the agent, which has rules to render meanwhile.
        Under a hypervisor the scheduler takes cores that sleep for busy ones, and leaves it here.  But whoever has more
        right to the others, as a process with real-time priority, must not keep it from this one too."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._free_until:
            return
        here: int = _libc.sched_getcpu()
        if here != self._not_on and (elsewhere := self._cores - {here}):
            self._not_on = here if self._run_on(elsewhere) else -1
        self._late = loop.call_later(LATE, self._set_free)

    def _set_free(self) -> None:
        self._run_on(self._cores)
        self._not_on, self._free_until = -1, asyncio.get_running_loop().time() + FREE_FOR

    def _run_on(self, cores: set[int]) -> bool:
        try:
            os.sched_setaffinity(self._process.pid, cores)
        except OSError:  # other cores are ours now, or it has ended
            self._cores = os.sched_getaffinity(0)
            return False
        return True

    @property
    def _listens(self) -> bool:
        return self._ready and not self.gone.done()

    def ask(self, which: int, number: int, what: Any) -> bool:
        asked = marshal.dumps((which, number, what))
        if not self._listens or len(asked) > asks.LONGEST:
            return False
        try:
            self._socket.send(asked)
        except OSError:
            return False
        return True

    async def send(self, letter: bytes) -> bool:
        """Over the socket for rules, once it has done what it is at, if that is soon; for one caller at a time.  True:
        the answer is at that socket; else it may be.  Nothing is sent any more when this returns."""
        loop = asyncio.get_running_loop()
        if not self._listens or len(letter) > asks.LONGEST:
            return False
        try:
            self._outbox.send(letter)
        except OSError:
            return False
        self._sent, self._sending_since = loop.create_future(), time.monotonic()
        if not self.ask(asks.SEND, 0, None):
            self._take_back()
        late = loop.call_later(MOMENT, self._take_back)
        try:
            return await settled(self._sent)
        finally:
            late.cancel()

    def _take_back(self) -> None:
        try:
            self._inbox.recv(asks.LONGEST)
        except OSError:  # it is being sent, or the process is being ended
            return
        self._note_sent(False)

    def _note_sent(self, sent: bool) -> None:
        self._sending_since = 0.0
        if not self._sent.done():
            self._sent.set_result(sent)

    @property
    def busy_for(self) -> float:
        """Seconds that it has had something to answer, and has answered nothing."""
        waiting = self._sending_since, *(begun.asked_at for begun in self._begun.values())
        asked = [at for at in waiting if at] if self._ready else [self._begun_at]
        return time.monotonic() - max(min(asked), self._heard_at) if asked else 0.0

    def kill(self) -> None:
        self._process.kill()

    async def end(self) -> None:
        """Return when it has ended, and nothing is made there any more."""
        self._hang_up()
        try:
            await outlast(asyncio.ensure_future(asyncio.to_thread(self._outlive)))
        finally:
            self._outbox.close()
            self._inbox.close()
            self._note_sent(False)
            for begun in self._begun.values():
                begun.finish(asks.FAILED, "the process that makes links has ended")
            self._begun.clear()

    def _outlive(self) -> None:
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _hear(self) -> None:
        for _ in range(AT_ONCE):
            try:
                told = self._socket.recv(asks.LONGEST_ANSWER)
            except BlockingIOError:
                return
            except OSError:
                told = b""
            if not told:
                self._hang_up()
                return
            self._heard_at = time.monotonic()
            which, number, what = marshal.loads(told)
            if which == asks.IDENTIFIED:
                self._begun[number].identify(Identity(*what))
            elif which == asks.SENT:
                self._note_sent(what)
            elif which == asks.READY:
                self._hand_over_the_lock()
            else:
                self._begun.pop(number).finish(which, what)
                if not self._begun and self._late is not None:
                    self._late.cancel()

    def _hand_over_the_lock(self) -> None:
        try:
            socket.send_fds(self._socket, [b"\0"], [self._lock])
            self._ready = True
        except OSError:
            self._hang_up()

    def _hang_up(self) -> None:
        """It ends then, once it has done what it is at."""
        if self.gone.done():
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        if self._late is not None:
            self._late.cancel()
        self.gone.set_result(None)


class Begun:
    """A link that is begun there: `create` is next, then `bring_up`; or `drop` at any time before that.

    `identified` is told before anything is made, or never: where the namespace could not be entered, or nobody waits
    any more.  `up`: what was made; None where it was not, and nobody makes it there any more."""

    def __init__(self, process: LinkProcess, number: int) -> None:
        loop = asyncio.get_running_loop()
        self._process, self._number = process, number
        self.identified: asyncio.Future[Identity] = loop.create_future()
        self.up: asyncio.Future[Attached | None] = loop.create_future()
        self.asked_at = time.monotonic()  # 0: nothing is asked of it now
        self.created = False  # or about to be
        self.decided = False  # whether it is to be brought up or dropped
        self._netns: Identity | None = None

    def create(self, wiring: Wiring) -> None:
        """Both ends, down."""
        self.created = True
        if not self.up.done() and not self._process.ask(asks.CREATE, self._number, tuple(wiring)):
            self.drop()  # it is too long, or nobody is there

    @property
    def at_work(self) -> bool:
        return self.created or bool(self.asked_at)

    def bring_up(self, announced: Announced) -> None:
        self._ask(asks.BRING_UP, tuple(announced))

    def drop(self) -> None:
        self.identified.cancel()
        self._ask(asks.DROP, None)

    def _ask(self, which: int, what: Any) -> None:
        if self.decided:
            return
        self.decided, self.asked_at = True, time.monotonic()
        if not self.up.done() and not self._process.ask(which, self._number, what):
            self._process.kill()  # what is not finished there must end there

    def identify(self, netns: Identity) -> None:
        self._netns = netns
        if not self.decided:  # else the answer to that is waited for
            self.asked_at = 0.0
        if not self.identified.done():
            self.identified.set_result(netns)

    def finish(self, which: int, what: Any) -> None:
        if which == asks.FAILED:
            log.info("a link was not made by the process of links reason=%s", what)
        self.up.set_result(Attached(what, self._netns) if which == asks.UP and self._netns is not None else None)
        self.identified.cancel()
