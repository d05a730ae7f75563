"""The agent's pages at --http: alive, ready, status, metrics."""

from collections.abc import Callable

import msgspec

from flock.agent.metrics import Metrics
from flock.agent.readiness import Readiness
from flock.edge.http import Page


def pages(readiness: Readiness, metrics: Metrics, *, status: Callable[[], dict[str, object]]) -> dict[str, Page]:
    def ready() -> tuple[int, str, bytes]:
        not_ready = readiness.report().not_ready
        text = "".join(f"{reason}\n" for reason in not_ready) or "ok\n"
        return 503 if not_ready else 200, "text/plain", text.encode()

    def status_page() -> tuple[int, str, bytes]:
        content = msgspec.json.format(msgspec.json.encode(status()), indent=2)
        return 200, "application/json", content + b"\n"

    return {
        "/healthz": lambda: (200, "text/plain", b"ok\n"),
        "/readyz": ready,
        "/status.json": status_page,
        "/metrics": lambda: (200, "text/plain; version=0.0.4", metrics.render().encode()),
    }
