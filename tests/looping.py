"""Coroutines as tests, each in a loop of its own and bounded."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

PATIENCE = 20  # seconds until a test that waits gives up


async def until(condition: Callable[[], object]) -> None:
    """What no event tells; whoever waits is bounded."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def looped(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE))

    return run
