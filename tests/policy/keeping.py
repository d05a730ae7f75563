"""The agent's part that keeps rules in force, in a process and a namespace of the test's, with a real kernel."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from playground import Playground

from flock.agent.attached import Attached
from flock.agent.happened import Happened
from flock.agent.policies import Policies
from flock.core.facts import NodeFacts
from flock.edge.cache import Cache
from flock.edge.nft.apply import Nft
from flock.edge.store import Store

Scenario = Callable[[Policies, Nft], Awaitable[None]]


def with_rules_in_force(ground: Playground, directory: Path, scenario: Scenario, *, cache: Cache | None = None) -> None:
    """Of a cluster without objects, or of what is in the cache."""
    believed: Any = SimpleNamespace(config=None, facts=NodeFacts(node="n1"))

    async def whole() -> None:
        nobody = Attached(Store(directory, node="n1", cooldown=0, half_done=directory / "pending"))
        kept = Policies(
            cache=cache or Cache(node="n1"),
            requires_pods=False,
            attached=nobody,
            configured=believed,
            preparing=believed,
            happened=Happened(),
            state_dir=directory,
            strict=False,
            antispoofing=True,
        )
        await kept.begin()
        running = asyncio.create_task(kept.run())
        try:
            await scenario(kept, cast(Nft, kept._nft))
        finally:
            running.cancel()

    with ground.node.inside():
        asyncio.run(whole())
