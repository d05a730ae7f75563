"""Putting into force what was rendered.

Operations go as a netlink batch from a process or a thread of our own, never from the loop's: the kernel works them off
inside the send, and waits there while somebody else's transaction is under way.  Scripts go to `nft -f -`, started from
the event loop's thread, which never leaves the node's network namespace as the kernel threads do.  One after the other,
in the order of the calls.
"""

import asyncio
import contextlib
import resource
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from flock.core.errors import KernelRefused
from flock.core.policy.compiled import Compiled
from flock.core.policy.elements import ORIGINAL_TABLE, Operation
from flock.core.policy.render import Ruleset
from flock.core.policy.rendered import Transaction
from flock.edge.ending import settled
from flock.edge.nft import observe
from flock.edge.nft.socket import NftSocket
from flock.edge.nft.watch import Watch
from flock.edge.worker import Worker

T = TypeVar("T")
PATIENCE = 60  # seconds for one script; the largest takes two
CRASHED = "crashed: a newer nft has put something into this host's tables that an older one does not survive"
MEMORY = 2 << 30  # bytes for one: ten times what the largest needs, and less than would take others' memory away


class Sender(Protocol):
    """Somebody quicker.  `commit`: in force if True; else that is not sure, and doing it again does no harm.  It is
    over when that returns, though its caller be cancelled."""

    @property
    def port(self) -> int: ...

    async def commit(self, operations: Sequence[Operation]) -> bool: ...


class Nft:
    """`watch`, if given, is told which changes are our own.  `sender`, if given, is asked first to send operations."""

    def __init__(self, *, watch: Watch | None = None, sender: Sender | None = None, program: str = "nft") -> None:
        self._program = program
        self._watch = watch
        self._sender = sender
        self._socket = NftSocket()
        self._thread = Worker("nft")
        self._turn = asyncio.Lock()
        if watch is not None:
            watch.own(self._socket.port)
            if sender is not None:
                watch.own(sender.port)

    async def apply(self, transaction: Transaction) -> None:
        """KernelRefused: nothing of it is in force, or only what was to be prepared."""
        if transaction.prepare:
            await self.run(transaction.prepare)
        if transaction.script:
            await self.run(transaction.script)
        elif transaction.operations:
            async with self._turn:
                if self._sender is None or not await self._sender.commit(transaction.operations):
                    await settled(self._thread.run(self._socket.commit, transaction.operations))

    async def run(self, script: str) -> None:
        """A whole script, in one transaction."""
        async with self._turn:
            try:
                process = await asyncio.create_subprocess_exec(
                    self._program, "-f", "-", stdin=PIPE, stdout=DEVNULL, stderr=PIPE
                )
            except OSError as error:
                raise KernelRefused(f"cannot run {self._program}: {error.strerror}", errno=error.errno or 0) from None
            if self._watch is not None:
                self._watch.ours(process.pid)
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
            try:
                async with asyncio.timeout(PATIENCE):
                    _, said = await process.communicate(script.encode())
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                if isinstance(error, TimeoutError):
                    raise KernelRefused(f"{self._program} did not finish within {PATIENCE} s") from None
                raise
            finally:
                if self._watch is not None:
                    self._watch.no_longer_ours(process.pid)
        if process.returncode:
            raise KernelRefused(f"{self._program}: {_words(said, process.returncode)}")

    async def replace(self, ruleset: Ruleset, compiled: Compiled) -> None:
        """All of `compiled` in the place of whatever is there, the original's rules included, which go with the very
        transaction that puts ours in force.  KernelRefused: nothing was changed."""
        existing = await self.ask(observe.existing)
        farewell = f"delete table {ORIGINAL_TABLE}\n" if await self.ask(observe.originals) else ""
        try:
            await self.run(ruleset.full(compiled, existing) + farewell)
        except KernelRefused:
            await self.run(ruleset.full(compiled, None) + farewell)

    async def ask(self, question: Callable[[NftSocket], T]) -> T:
        """One of the functions of `observe`, between transactions."""
        async with self._turn:
            return await self._thread.run(question, self._socket)

    def close(self) -> None:
        self._thread.close()
        self._socket.close()


def ask_aside(question: Callable[[NftSocket], T]) -> T:
    """Beside transactions, in the calling thread and its namespace: what is not in force yet is not seen."""
    with NftSocket() as socket:
        return question(socket)


def _words(said: bytes, status: int) -> str:
    """What nft complains about, without the script it quotes."""
    errors = [line for line in said.decode(errors="replace").splitlines() if "Error:" in line]
    wordless = CRASHED if status == -signal.SIGSEGV else "failed without a word"
    return "; ".join(errors[:3]) or wordless
