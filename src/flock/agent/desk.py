"""Who answers what is asked on the socket, as far as the start has come: a part is not asked before it exists."""

from collections.abc import Mapping

from flock.agent.readiness import Readiness
from flock.core.cni import Request
from flock.core.errors import Code, FlockError
from flock.edge.rpc import Handler

# As long as ADD may wait for a pod to become known: the runtime's own patience is far longer, and most starts are over.
PATIENCE = 3.0


class Desk:
    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._handlers: dict[str, Handler] = {}
        self._whole = False

    def offer(self, handlers: Mapping[str, Handler], *, last: bool = False) -> None:
        """From now on these are answered, in place of earlier ones of the same names; `last`: there will be no more."""
        self._handlers |= handlers
        self._whole = last
        self._readiness.look()

    def knows(self, op: str) -> bool:
        return op in self._handlers

    async def answer(self, request: Request) -> object:
        """A call that comes before its time waits, and is told to try again if that takes long."""
        if request.op not in self._handlers and not self._whole:
            await self._readiness.wait(lambda: self._whole or request.op in self._handlers, PATIENCE)
        handler = self._handlers.get(request.op)
        if handler is None:
            raise FlockError(f"op: unknown operation {request.op!r}", code=Code.INVALID_ENVIRONMENT)
        return await handler(request)
