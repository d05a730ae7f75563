"""The agent's pages at --http: alive, ready, status, metrics."""

import contextlib
import logging

import msgspec

from flock.agent.admin import base_status
from flock.agent.metrics import Metrics
from flock.agent.readiness import Readiness
from flock.agent.reconciling import Reconciler
from flock.core.errors import FlockError
from flock.edge.http import HttpServer

log = logging.getLogger("agent")

RETRY = 5.0  # whoever has the port may go


class Pages(Reconciler):
    """Served as soon as that is possible: pods matter more."""

    def __init__(self, address: str, *, node: str, readiness: Readiness, metrics: Metrics) -> None:
        super().__init__(log, "no pages", pauses=(RETRY, RETRY))
        self._address, self._node = address, node
        self._readiness = readiness
        self._metrics = metrics
        pages = {
            "/healthz": self._alive,
            "/readyz": self._ready,
            "/status.json": self._status,
            "/metrics": self._samples,
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

    def _alive(self) -> tuple[int, str, bytes]:
        return 200, "text/plain", b"ok\n"

    def _ready(self) -> tuple[int, str, bytes]:
        not_ready = self._readiness.report().not_ready
        text = "".join(f"{reason}\n" for reason in not_ready) or "ok\n"
        return 503 if not_ready else 200, "text/plain", text.encode()

    def _status(self) -> tuple[int, str, bytes]:
        content = msgspec.json.format(msgspec.json.encode(base_status(self._node, self._readiness)), indent=2)
        return 200, "application/json", content + b"\n"

    def _samples(self) -> tuple[int, str, bytes]:
        return 200, "text/plain; version=0.0.4", self._metrics.render().encode()
