"""The socket on which the CNI executable and flockctl speak to the agent.

One connection per call, one JSON line each way.  A frame that is too long, too slow or not a request ends that
connection and nothing else.  A call goes on when its caller hangs up: the runtime repeats it or undoes it, and both
find a settled state.

Not asyncio's streams or transports: a request is mostly there with its connection, and is read in the same turn of the
loop; the answer is written where it is known.  What they do instead is a tenth of an ADD.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from flock.core.cni import Request, render_error, version_of
from flock.core.errors import Code, FlockError
from flock.edge import rundir
from flock.edge.callers import AT_ONCE, Callers

log = logging.getLogger("rpc")

FRAME_LIMIT = 8 << 20  # GC lists every attachment of a node: 1000 pods are some 100 kB, in base64
READ_TIMEOUT = 10.0  # the executable has its whole request ready when it connects
BACKLOG = 512  # connections waiting to be accepted while the loop is busy with a burst
CHUNK = 64 << 10  # of a request; more than 128 KiB would be mapped and unmapped by the C library each time
SHORTAGE = 1.0  # seconds until it is looked whether there are descriptors again

Handler = Callable[[Request], Awaitable[Any]]
Release = Callable[[], None]


class Held(NamedTuple):
    """An answer to a caller who has something for as long as it stays on the line; `release` takes it back."""

    answer: Any
    release: Release


_decoder = msgspec.json.Decoder(Request)
_encoder = msgspec.json.Encoder()


def own(run_dir: Path) -> Iterator[Path]:
    """The socket, which stays when an agent ends: an agent was here."""
    return rundir.own_socket(run_dir, rundir.SOCKET)


class RpcServer:
    """`answer` takes every request.  `on_call(op, code, seconds)` runs after each call."""

    def __init__(self, path: Path, *, answer: Handler, on_call: Callable[[str, int, float], None]) -> None:
        self._answer = answer
        self._on_call = on_call
        self.calls: set[asyncio.Task[None]] = set()
        self.callers = Callers()  # whose request is not there yet
        self._path = path
        self._last_status: dict[str, Any] | None = None
        self._listener: socket.socket | None = None

    async def start(self) -> None:
        """Listen, replacing the socket of an earlier life.  It is 0600 before anybody can connect.  OSError leaves
        nothing open: this may be called again."""
        temporary = self._path.with_name(rundir.placing_name(self._path.name, os.getpid()))
        temporary.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            listener.bind(str(temporary))
            temporary.chmod(0o600)
            listener.listen(BACKLOG)
            temporary.rename(self._path)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    async def stop(self, patience: float) -> None:
        """Accept no more; let calls under way finish.  The socket file stays: callers find nobody and wait, and so does
        whoever has connected and was not heard yet."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
        self.callers.close()
        if self.calls:
            await asyncio.wait(self.calls, timeout=patience)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                caller, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("cannot accept callers problem=%s", error.strerror)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(SHORTAGE, self._accept_again, listener)
                return
            _Connection(self, caller).hear()

    def _accept_again(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:  # else nobody is heard any more
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def take(self, frame: bytes, reply: "Reply") -> None:
        call = asyncio.get_running_loop().create_task(self.serve(frame, reply))
        self.calls.add(call)
        call.add_done_callback(self.calls.discard)

    async def serve(self, frame: bytes, reply: "Reply") -> None:
        """One call.  It is written down after the caller has its answer: nobody waits for the log."""
        started = time.monotonic()
        try:
            request = _decoder.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            log.warning("refused frame problem=%s", error)
            failure = FlockError(f"request is not understood: {error}", code=Code.DECODING_FAILURE)
            reply(_line({"error": render_error(failure, version=version_of(b""))}), None)
            return
        response, code, release = await self._call(request)
        reply(_line(response), release)
        elapsed = time.monotonic() - started
        self._on_call(request.op, code, elapsed)
        log.log(
            self._level(request.op, response),
            "call op=%s container=%s ifname=%s netns=%s ms=%.1f code=%d%s",
            _shown(request.op),
            _shown(request.container_id),
            _shown(request.ifname),
            _shown(request.netns),
            elapsed * 1000,
            code,
            f" msg={response['error']['msg']!r}" if code else "",
        )

    def _level(self, op: str, response: dict[str, Any]) -> int:
        """Runtimes ask for STATUS every few seconds: it is worth a line when the answer is another than before."""
        if op != "STATUS":
            return logging.INFO
        before, self._last_status = self._last_status, response
        return logging.DEBUG if response == before else logging.INFO

    async def _call(self, request: Request) -> tuple[dict[str, Any], int, Release | None]:
        try:
            result = await self._answer(request)
            if isinstance(result, Held):
                return {"result": result.answer}, 0, result.release
            return ({} if result is None else {"result": result}), 0, None
        except FlockError as error:
            failure = error
        except OSError as error:
            # Out of descriptors or memory passes; the runtime repeats the call.
            failure = FlockError(f"{request.op}: {error}", code=Code.TRY_AGAIN)
        except Exception:
            log.exception("call failed op=%s container=%s", request.op, request.container_id)
            failure = FlockError(f"{request.op}: internal error, see the agent's log", code=Code.INTERNAL)
        return {"error": render_error(failure, version=version_of(request.stdin_data))}, int(failure.code), None


class _Connection:
    """One caller.  Who has a request ready when it is accepted needs neither a place nor the loop's attention."""

    def __init__(self, server: RpcServer, connection: socket.socket) -> None:
        self._server = server
        self._socket = connection
        self._received = bytearray()
        self._deadline: asyncio.TimerHandle | None = None  # of one that is waited for

    def hear(self) -> None:
        """Take what it has said until now; if that is not a whole line, wait for more."""
        try:
            data = self._socket.recv(CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._wait()
            return
        except OSError:
            data = b""
        self._received += data
        end = self._received.find(b"\n", len(self._received) - len(data))
        if end >= 0:
            self._waited()
            self._server.take(bytes(self._received[:end]), self._reply)
        elif not data:
            self.dismiss()
        elif len(self._received) > FRAME_LIMIT:
            self._give_up("long")
        else:
            self._wait()

    def _wait(self) -> None:
        if self._deadline is None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(READ_TIMEOUT, self._give_up, "slow")
            loop.add_reader(self._socket, self.hear)
            self._server.callers.enter(self)

    def _waited(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            asyncio.get_running_loop().remove_reader(self._socket)
            self._server.callers.leave(self)

    def _give_up(self, why: str) -> None:
        log.warning("closed connection reason=%s bytes=%d", why, len(self._received))
        self.dismiss()

    def dismiss(self) -> None:
        """Hang up at once."""
        self._waited()
        self._socket.close()

    def _reply(self, answer: bytes, release: Release | None = None, waited: bool = False) -> None:
        """All of it, as fast as it is read; a caller that has gone does not want it.  `release` is called when it has
        gone."""
        loop = asyncio.get_running_loop()
        if waited:
            loop.remove_writer(self._socket)
        try:
            rest = answer[self._socket.send(answer, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            rest = answer
        except OSError:
            rest = b""
        if rest:
            loop.add_writer(self._socket, self._reply, rest, release, True)
        elif release is not None:
            loop.add_reader(self._socket, self._listen, release)
        else:
            self._socket.close()

    def _listen(self, release: Release) -> None:
        """A caller that was answered has nothing more to say: either it is gone, or it is."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        release()


Reply = Callable[[bytes, Release | None], None]


def _shown(text: str) -> str:
    """Fit for a log line, whoever sent it."""
    return (text if text.isprintable() else ascii(text))[:200] or "-"


def _line(response: dict[str, Any]) -> bytes:
    return _encoder.encode(response) + b"\n"
