"""What a gatherer is: it fills a picture until it is cancelled, and answers what only an agent's socket can."""

import asyncio
import re
from pathlib import Path
from typing import Protocol

import msgspec

from flock.core.errors import FlockError
from flock.edge.rpc_client import AgentError, ask
from flock.view.picture import Picture

# Names, addresses and ports: nothing that separates the socket's parameters or reads as an option.
_WORD = re.compile(r"[0-9A-Za-z:][0-9A-Za-z.:/_-]{0,300}")


class CannotTell(FlockError):
    """Nobody answers that question here; `wrong` if it is the question's fault."""

    def __init__(self, msg: str, *, wrong: bool = False) -> None:
        super().__init__(msg)
        self.wrong = wrong


class Source(Protocol):
    """`origin` is node, lab, cluster, bundle or played; `live` is whether what it shows is now."""

    origin: str
    name: str
    live: bool

    async def run(self, picture: Picture) -> None:
        """Fill the picture; until cancelled, or until there is nothing more to tell.  Leaves nothing behind."""

    async def ask(self, node: str, *command: str) -> bytes:
        """What `flockctl COMMAND -o json` prints on that node: `policy why SRC DST PORT` or `check`.  CannotTell."""

    def look_at(self, nodes: tuple[str, ...]) -> None:
        """Somebody looks at these now: whoever cannot follow all nodes at a time follows these first."""


def words(*given: str) -> tuple[str, ...]:
    """What a page asks about, if it can be handed on as it is.  CannotTell."""
    for word in given:
        if not _WORD.fullmatch(word):
            raise CannotTell(f"{word!r} is no pod, address or port", wrong=True)
    return given


async def ask_socket(run_dir: Path, *command: str) -> bytes:
    """The answer of the agent whose socket is there."""
    parameters = words(*command[2:])
    try:
        answer = await asyncio.to_thread(ask, run_dir, ".".join(command[:2]), *parameters)
    except AgentError as error:
        raise CannotTell(str(error), wrong=error.exit_code == 1) from None
    return msgspec.json.encode(answer["answers"] if command[0] == "policy" else answer)
