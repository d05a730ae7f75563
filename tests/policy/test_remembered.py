"""Drops are shown as soon as they can be heard, also where somebody else heard them first."""

import asyncio

from playground import Playground

from flock.agent.remembered import RememberedDrops
from flock.edge.nft.drops import Drops


def test_who_finds_another_listening_says_so_and_listens_when_that_one_is_gone(ground: Playground) -> None:
    async def scenario() -> None:
        other = Drops(on_drop=lambda _: None)
        shown = RememberedDrops(str)
        shown.start()
        assert "NFLOG group 133" in shown.problem
        other._socket.close()
        shown.start()
        assert not shown.problem

    with ground.node.inside():
        asyncio.run(scenario())
