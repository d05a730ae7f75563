"""One question to the agent on this node, over the socket the CNI executable uses."""

import contextlib
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from flock.edge.rundir import SOCKET

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
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(timeout)
            connection.connect(str(path))
            connection.sendall(msgspec.json.encode({"op": op, "args": "\n".join(parameters)}) + b"\n")
            answer = b""
            while not answer.endswith(b"\n") and (chunk := connection.recv(1 << 20)):
                answer += chunk
            response = msgspec.json.decode(answer)
        except (OSError, msgspec.DecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no answer"
            raise AgentError(f"no answer from the agent at {path}: {reason}; is flock-agent running?") from None
        if "error" in response:
            raise Refused(response["error"]["msg"])
        yield Line(response.get("result"), connection)
