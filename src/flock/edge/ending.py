"""Ending what one has begun, and waiting for ends."""

import asyncio
from typing import Any, TypeVar

T = TypeVar("T")


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancelled, and waited for; what one of them failed with is raised.

    To wait for a task and overlook its CancelledError would be to overlook one's own as well."""
    for task in tasks:
        task.cancel()
    await outlast(*tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def outlast(*begun: "asyncio.Future[Any]") -> None:
    """Return once all have ended, however.  Who is cancelled while it waits here, is so then and not before."""
    own: asyncio.CancelledError | None = None
    while running := [one for one in begun if not one.done()]:
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError as error:
            own = error
    if own is not None:
        raise own


async def settled(begun: "asyncio.Future[T]") -> T:
    """What came of it, for whom nothing else may begin before that: who is cancelled hears so then."""
    await outlast(begun)
    return begun.result()


async def first(*begun: "asyncio.Future[Any]") -> None:
    """Return once one of them has ended, however."""
    await asyncio.wait(begun, return_when=asyncio.FIRST_COMPLETED)
