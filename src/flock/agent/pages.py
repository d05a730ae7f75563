"""The agent's pages: alive, ready, status, what happens, metrics at --http; metrics alone at --metrics."""

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


def for_the_node(*, readiness: Readiness, metrics: Metrics, status: Status, feed: Feed) -> dict[str, Page | Stream]:
    """What is told at --http: everything."""

    def ready() -> tuple[int, bytes]:
        not_ready = readiness.report().not_ready
        text = "".join(f"{reason}\n" for reason in not_ready) or "ok\n"
        return 503 if not_ready else 200, text.encode()

    return {
        "/healthz": Page("text/plain", lambda: (200, b"ok\n")),
        "/readyz": Page("text/plain", ready),
        "/status.json": Stream("application/json", status.page),
        "/happenings": Stream("text/event-stream", feed.events, lasting=True),
        **for_scrapers(metrics),
    }


def for_scrapers(metrics: Metrics) -> dict[str, Page | Stream]:
    """What is told at --metrics: numbers, and no pod's name."""
    return {"/metrics": Page("text/plain; version=0.0.4", lambda: (200, metrics.render().encode()))}


class Pages(Reconciler):
    """Served where `flag` says, as soon as that is possible: pods matter more."""

    def __init__(self, flag: str, address: str, pages: dict[str, Page | Stream]) -> None:
        super().__init__(log, "no pages", pauses=(RETRY, RETRY))
        self._where = f"{flag} {address}"
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
            raise FlockError(f"cannot listen on {self._where}: {error.strerror}") from None
        return ""
