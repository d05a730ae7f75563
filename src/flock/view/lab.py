"""All nodes and routers of a lab.  Agents listen inside their namespaces, so sockets that ask them are made there."""

import asyncio
import subprocess
from functools import partial

import msgspec

from flock.core.errors import FlockError
from flock.lab import namespaces
from flock.lab.fabric import Lab
from flock.lab.home import Home
from flock.lab.nodes import HTTP
from flock.lab.status import RouterStatus, observe_routers
from flock.view.following import Following
from flock.view.picture import Picture
from flock.view.source import ask_socket

ROUTERS_EVERY = 1.0  # seconds between two rounds; one takes a few processes for each router


class LabSource:
    """A lab that is up; LabError if there is none.  One that is taken down meanwhile is shown as it was last seen."""

    origin, live = "lab", True

    def __init__(self, home: Home) -> None:
        self._lab = Lab(home)
        self.name = self._lab.name

    async def run(self, picture: Picture) -> None:
        nodes = [element.name for element in self._lab.plan.role("node")]
        for name in nodes:
            picture.expect(name)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._routers(picture))
            for name in nodes:
                tasks.create_task(Following(picture, partial(self._connect, name), name=name).run())

    async def ask(self, node: str, *command: str) -> bytes:
        return await ask_socket(self._lab.node(node).run_dir, *command)

    def look_at(self, nodes: tuple[str, ...]) -> None:
        """All are followed anyway."""

    async def _connect(self, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        made = namespaces.tcp_socket(namespaces.netns(self.name, name))
        try:
            made.setblocking(False)
            await asyncio.get_running_loop().sock_connect(made, HTTP)
            return await asyncio.open_connection(sock=made)
        except BaseException:
            made.close()
            raise

    async def _routers(self, picture: Picture) -> None:
        seen: dict[str, RouterStatus] = {}
        while True:
            try:
                seen = {router.name: router for router in await asyncio.to_thread(observe_routers, self._lab)}
                picture.fabric(await asyncio.to_thread(namespaces.cut_links, self.name, self._lab.plan))
            except (FlockError, OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
                trouble = error.msg if isinstance(error, FlockError) else f"cannot be asked: {error}"
                gone = (msgspec.structs.replace(router, trouble=trouble) for router in seen.values())
                seen = {router.name: router for router in gone}
            for name, router in seen.items():
                picture.router(name, msgspec.json.encode(router))
            await asyncio.sleep(ROUTERS_EVERY)
