"""flock-agent: reads its flags and leaves out what they give no use for; `running` is the rest."""

import sys

from flock.agent.flags import parse


def main() -> None:
    settings = parse()
    if settings.manifests is not None:
        _do_without_tls()
    from flock.agent.running import run  # not before that: asyncio takes TLS along

    run(settings)


def _do_without_tls() -> None:
    """4.6 MiB, and needed only to speak with an API server.  asyncio and hashlib know Pythons without it."""
    for name in ("ssl", "_hashlib"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
