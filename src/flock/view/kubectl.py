"""`kubectl` as a way to agents: what it lists, what it forwards, what it runs in a pod.

Its rights are those of whoever looks.  Every process has ended when the call or the block that started it is left, by
an error or a Ctrl-C too; if this process is killed, the kernel ends them.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from flock.edge.ending import end
from flock.edge.kubectl import PATIENCE, KubectlRefused, called

FORWARD_PATIENCE = 10.0  # until a port is forwarded
END_PATIENCE = 2.0  # from SIGTERM to SIGKILL

_FORWARDED = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+) ->")


class Kubectl:
    def __init__(self, *, kubeconfig: Path | None, context: str) -> None:
        # Ends with us, whatever becomes of us; where there is no setpriv (not on Linux), only a kill -9 leaves some.
        bound = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
        self._command = [*bound, *called(kubeconfig=kubeconfig, context=context)]

    async def run(self, *arguments: str) -> tuple[int, bytes, str]:
        """Its exit code, what it printed, and the end of its complaints.  KubectlRefused if it comes to none."""
        async with self._running(*arguments, errors=asyncio.subprocess.PIPE) as process:
            try:
                async with asyncio.timeout(PATIENCE):
                    said, complaint = await process.communicate()
            except TimeoutError:
                raise KubectlRefused(f"kubectl {arguments[0]}: no answer in {PATIENCE:g} s") from None
        return process.returncode or 0, said, _last_line(complaint)

    async def output(self, *arguments: str) -> bytes:
        """What it prints.  KubectlRefused, with its last words, if it fails."""
        code, said, complaint = await self.run(*arguments)
        if code:
            raise KubectlRefused(f"kubectl {arguments[0]}: {complaint or f'ended with {code}'}")
        return said

    @contextlib.asynccontextmanager
    async def forward(self, *, namespace: str, pod: str, port: int) -> AsyncIterator["Forward"]:
        """A port of this machine's loopback that leads to the pod's, inside the block."""
        arguments = ("port-forward", "--address=127.0.0.1", f"--namespace={namespace}", f"pod/{pod}", f":{port}")
        async with self._running(*arguments, errors=asyncio.subprocess.STDOUT) as process:
            assert process.stdout is not None
            said = b""
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FORWARD_PATIENCE):
                    while line := await process.stdout.readline():
                        said = line
                        if _FORWARDED.match(line):
                            break
            if not (found := _FORWARDED.match(said)):
                raise KubectlRefused(f"kubectl port-forward: {_last_line(said) or 'no answer in time'}")
            forward = Forward(int(found[1]))
            hearing = asyncio.create_task(forward.hear(process.stdout))
            try:
                yield forward
            finally:
                await end(hearing)

    @contextlib.asynccontextmanager
    async def _running(self, *arguments: str, errors: int) -> AsyncIterator[asyncio.subprocess.Process]:
        """A session of its own: the terminal's Ctrl-C is for us, and we end it."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise KubectlRefused(f"kubectl cannot be started: {error.strerror}") from None
        handle = None
        with contextlib.suppress(OSError):  # it has ended already, or there is no descriptor left
            handle = os.pidfd_open(process.pid)
        try:
            yield process
        finally:
            await _end(process, handle)
            if handle is not None:
                os.close(handle)


class Forward:
    """`port` on 127.0.0.1; `ended` and `words` when kubectl has given up."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.ended = False
        self.words = ""

    async def hear(self, said: asyncio.StreamReader) -> None:
        """It says something for every connection, and would wait for somebody to hear it."""
        while piece := await said.read(4096):
            if told := [line for line in piece.splitlines() if not line.startswith((b"Handling", b"Forwarding"))]:
                self.words = _last_line(told[-1])
        self.ended = True


async def _end(process: asyncio.subprocess.Process, handle: int | None) -> None:
    """By a handle, if there is one: the library's own way may take its exit code away from who waits for it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                if handle is None:
                    process.send_signal(number)
                else:
                    signal.pidfd_send_signal(handle, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_PATIENCE):
                    await process.wait()


def _last_line(said: bytes) -> str:
    """But for what kubectl itself adds when a command of a pod failed."""
    lines = [line for line in said.decode(errors="replace").strip().splitlines() if "exit code" not in line]
    return lines[-1][:300] if lines else ""
