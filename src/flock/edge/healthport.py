"""Asks kube-proxy, on this node alone, whether it delivers a Service: an HTTP request to `healthCheckNodePort`.

It listens on all addresses, or on those of `nodePortAddresses` alone: so loopback is asked first, and the node's own
addresses where nobody answers there.  Whatever listens gets one small request and a moment, and of its answer the first
line is read.
"""

import asyncio
import re
from collections.abc import Sequence

PATIENCE = 1.0  # seconds: on the node itself, who does not answer by then is silent
LOOPBACK = ("127.0.0.1", "::1")
MOST = 16  # addresses asked at once
_STATUS_LINE = re.compile(rb"HTTP/\d\.\d (\d{3})(?: |\r?\n)")


async def ask(port: int, own: Sequence[str]) -> int | None:
    """The status of the answer, 0 for one that is not HTTP; None if nobody answers.  `own`: the node's addresses."""
    found = await _ask(LOOPBACK[0], port)
    if found is not None:
        return found
    answers = await asyncio.gather(*(_ask(address, port) for address in (*LOOPBACK[1:], *own)[:MOST]))
    return max((answer for answer in answers if answer is not None), key=lambda status: status == 200, default=None)


async def _ask(address: str, port: int) -> int | None:
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(address, port, limit=4096)
            try:
                writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                line = await reader.readline()
            finally:
                writer.transport.abort()
    except (OSError, OverflowError, TimeoutError):  # there is no port 70000, whatever a manifest says
        return None
    except ValueError:
        return 0
    told = _STATUS_LINE.match(line)
    return int(told[1]) if told else 0 if line else None
