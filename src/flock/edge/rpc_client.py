"""One question to the agent on this node, over the socket the CNI executable uses."""

import contextlib
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from flock.edge.rundir import SOCKET
from flock.edge.unixsocket import connect

TIMEOUT = 30.0  # a check of a thousand pods enters a thousand namespaces


class AgentError(Exception):
    """The agent could not be reached."""

    exit_code = 3


class Refused(AgentError):
    """The agent answered, and the answer is no."""

    exit_code = 1


def ask(run_dir: Path, op: str, *parameters: str, timeout: float = TIMEOUT) -> Any:
    with holding(run_dir, op, *parameters, timeout=timeout) as held:
        return held.answer


class Line:
    """To an agent that has answered, and keeps what it was asked for until this is closed."""

    def __init__(self, answer: Any, connection: socket.socket) -> None:
        self.answer = answer
        self._connection = connection

    @property
    def is_open(self) -> bool:
        """False once the agent has gone."""
        return not select.select([self._connection], [], [], 0)[0]


@contextlib.contextmanager
def holding(run_dir: Path, op: str, *parameters: str, timeout: float = TIMEOUT) -> Iterator[Line]:
    """Stay on the line while this lasts."""
    path = run_dir / SOCKET
    with contextlib.ExitStack() as until_the_end:
        try:
            connection = until_the_end.enter_context(connect(path, within=timeout))
            connection.settimeout(timeout)
            with contextlib.suppress(ConnectionError):  # it may refuse and hang up before it has read all
                connection.sendall(msgspec.json.encode({"op": op, "args": "\n".join(parameters)}) + b"\n")
            answer = b""
            while not answer.endswith(b"\n") and (chunk := connection.recv(1 << 20)):
                answer += chunk
            if not answer:
                raise ConnectionError("it hung up")
            response = msgspec.json.decode(answer, type=dict[str, Any])
        except (OSError, msgspec.MsgspecError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no answer"
            raise AgentError(f"no answer from the agent at {path}: {reason}{_hint(error)}") from None
        if "error" in response:
            raise Refused(response["error"]["msg"])
        yield Line(response.get("result"), connection)


def _hint(error: Exception) -> str:
    if isinstance(error, BlockingIOError):
        return ""
    return "; it answers root alone" if isinstance(error, PermissionError) else "; is flock-agent running?"
