"""Places for callers of a socket: a fixed number, so that no crowd of them takes the agent's descriptors.

Who comes when all are taken gets that of the caller who has been there longest without saying what it wants.  One that
has its request ready when it connects is heard long before it could be the longest.
"""

import asyncio

# Connections accepted in one turn of the loop.  A caller is heard three turns after its own at the latest, so with four
# times as many places none that has its request ready loses its place to those who came after it.
AT_ONCE = 64
PLACES = 4 * AT_ONCE


class Callers:
    def __init__(self) -> None:
        self._taken: dict[Caller, None] = {}  # in the order in which they came
        self._closed = False

    def close(self) -> None:
        """Nobody is heard any more, also who has come already and not said what it wants."""
        self._closed = True
        for caller in list(self._taken):
            caller.dismiss()

    def enter(self, caller: "Caller") -> None:
        if self._closed:
            caller.dismiss()
        if len(self._taken) >= PLACES:
            longest = next(iter(self._taken))
            del self._taken[longest]
            longest.dismiss()
        self._taken[caller] = None

    def leave(self, caller: "Caller") -> None:
        """It was heard, or is gone; one that has left already is no error."""
        self._taken.pop(caller, None)


class Caller(asyncio.Protocol):
    """One connection: it has a place until it was heard, and for `patience` seconds at the most."""

    def __init__(self, callers: Callers, *, patience: float) -> None:
        self._callers = callers
        self._patience = patience

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._deadline = asyncio.get_running_loop().call_later(self._patience, self._late)
        self._callers.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard()

    def _heard(self) -> None:
        self._deadline.cancel()
        self._callers.leave(self)

    def _late(self) -> None:
        self.dismiss()

    def dismiss(self) -> None:
        """Hang up at once."""
        self._transport.abort()
