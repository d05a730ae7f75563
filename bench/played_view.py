"""`flockctl view` about a played cluster: the gatherer and server as they are, whose agents are sockets in a directory.

    python bench/played_view.py DIRECTORY

Prints the address and serves until it is ended.
"""

import asyncio
import sys
from functools import partial
from pathlib import Path

from flock.view.following import Following
from flock.view.picture import Picture
from flock.view.showing import show
from flock.view.source import CannotTell

EVERY = 2.0  # seconds between two looks: ten times as often as the turns of a cluster that large would come


class PlayedSource:
    origin, name, live = "played", "two hundred nodes", True

    def __init__(self, directory: Path) -> None:
        self._sockets = sorted(directory.glob("*.sock"))

    async def run(self, picture: Picture) -> None:
        async with asyncio.TaskGroup() as tasks:
            for path in self._sockets:
                connect = partial(asyncio.open_unix_connection, path)
                tasks.create_task(Following(picture, connect, name=path.stem, every=EVERY).run())

    async def ask(self, node: str, *command: str) -> bytes:
        raise CannotTell("nobody is there to be asked")

    def look_at(self, nodes: tuple[str, ...]) -> None:
        """All are followed."""


if __name__ == "__main__":
    asyncio.run(show(PlayedSource(Path(sys.argv[1])), ready=lambda address: print(address, flush=True)))
