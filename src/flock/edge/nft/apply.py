"""Putting into force what was rendered.

Operations go as a netlink batch from a thread of our own: the kernel works them off inside the send, and waits there
while somebody else's transaction is under way.  Scripts go to `nft -f -`, started from the event loop's thread, which
never leaves the node's network namespace as the kernel threads do.  One after the other, in the order of the calls.
"""

import asyncio
import contextlib
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from typing import TypeVar

from flock.core.errors import KernelRefused
from flock.core.policy.render import Transaction
from flock.edge.nft.socket import NftSocket
from flock.edge.nft.watch import Watch
from flock.edge.worker import Worker

T = TypeVar("T")
PATIENCE = 60  # seconds for one script; the largest takes two


class Nft:
    """`watch`, if given, is told which changes are our own."""

    def __init__(self, *, watch: Watch | None = None, program: str = "nft") -> None:
        self._program = program
        self._watch = watch
        self._socket = NftSocket()
        self._thread = Worker("nft")
        self._turn = asyncio.Lock()
        if watch is not None:
            watch.ours(self._socket.port)

    async def apply(self, transaction: Transaction) -> None:
        """KernelRefused: nothing of it is in force."""
        if transaction.script:
            await self.run(transaction.script)
        elif transaction.operations:
            async with self._turn:
                await self._thread.run(lambda: self._socket.commit(transaction.operations))

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
            try:
                _, said = await asyncio.wait_for(process.communicate(script.encode()), PATIENCE)
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
            raise KernelRefused(f"{self._program}: {_words(said)}")

    async def ask(self, question: Callable[[NftSocket], T]) -> T:
        """One of the functions of `observe`, between transactions."""
        async with self._turn:
            return await self._thread.run(lambda: question(self._socket))

    def close(self) -> None:
        self._thread.close()
        self._socket.close()


def _words(said: bytes) -> str:
    """What nft complains about, without the script it quotes."""
    errors = [line for line in said.decode(errors="replace").splitlines() if "Error:" in line]
    return "; ".join(errors[:3]) or "failed without a word"
