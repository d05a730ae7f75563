"""Ending tasks that one has begun."""

import asyncio
from typing import Any


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancelled, and waited for; what one of them failed with is raised.

    To wait for a task and overlook its CancelledError would be to overlook one's own as well: who is cancelled while it
    waits here, is so as soon as they have ended."""
    for task in tasks:
        task.cancel()
    own: asyncio.CancelledError | None = None
    while running := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError as error:
            own = error
    if own is not None:
        raise own
    for task in tasks:
        if not task.cancelled():
            task.result()
