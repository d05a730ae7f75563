"""The agent's pages at --http: alive, ready, status, what happens, metrics."""

import contextlib
import logging

from flock.agent.feed import Feed
from flock.agent.metrics import Metrics
from flock.agent.readiness import Readiness
from flock.agent.reconciling import Reconciler
from flock.agent.status import Status
from flock.core.errors import FlockError
from flock.edge.http import HttpServer, Page, Stream

log = logging.getLogger("agent")

RETRY = 5.0  # whoever has the port may go


class Pages(Reconciler):
    """Served as soon as that is possible: pods matter more."""

    def __init__(self, address: str, *, readiness: Readiness, metrics: Metrics, status: Status, feed: Feed) -> None:
        super().__init__(log, "no pages", pauses=(RETRY, RETRY))
        self._address = address
        self._readiness = readiness
        pages: dict[str, Page | Stream] = {
            "/healthz": Page("text/plain", lambda: (200, b"ok\n")),
            "/readyz": Page("text/plain", self._ready),
            "/status.json": Stream("application/json", status.page),
            "/happenings": Stream("text/event-stream", feed.events, lasting=True),
            "/metrics": Page("text/plain; version=0.0.4", lambda: (200, metrics.render().encode())),
        }
        self._http = HttpServer(address, pages)
        self._served = False

    async def run(self) -> None:
        """Until cancelled."""
        with contextlib.closing(self._http):
            await super().run()

    async def _reconcile(self) -> str:
        try:
            if not self._served:
                await self._http.start()
                self._served = True
        except OSError as error:
            raise FlockError(f"cannot listen on --http {self._address}: {error.strerror}") from None
        return ""

    def _ready(self) -> tuple[int, bytes]:
        not_ready = self._readiness.report().not_ready
        text = "".join(f"{reason}\n" for reason in not_ready) or "ok\n"
        return 503 if not_ready else 200, text.encode()
