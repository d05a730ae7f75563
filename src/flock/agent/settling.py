"""When pods whose connections are judged again get their new numbers: as soon as no packet is under way that was judged
before, which could bind its connection to them.
"""

import asyncio
from collections.abc import Callable, Mapping

SETTLE = 0.25  # seconds; no packet is that long on its way from one of our chains to the next


class Settling:
    """`wake` is called when it is time to ask again."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._seen: dict[str, int] = {}
        self._next: asyncio.TimerHandle | None = None

    def ready(self, unsettled: Mapping[str, int]) -> list[str]:
        """Of the pods that wait (interfaces, with their last renewal), those that waited at the last look already."""
        loop = asyncio.get_running_loop()
        if self._next is not None and loop.time() < self._next.when():
            return []
        found = [interface for interface, renewal in unsettled.items() if self._seen.get(interface) == renewal]
        self._seen = dict(unsettled)
        self._next = loop.call_later(SETTLE, self._wake) if len(found) < len(unsettled) else None
        return found
