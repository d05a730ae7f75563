"""The node this runs on."""

import asyncio
from pathlib import Path

from flock.view.following import Following
from flock.view.picture import Picture
from flock.view.source import CannotTell, ask_socket


class NodeSource:
    """Its agent serves its pages at `http`, and has its socket in `run_dir`."""

    origin, live = "node", True

    def __init__(self, *, run_dir: Path, http: str) -> None:
        self.name = http
        self._run_dir = run_dir
        host, _, port = http.rpartition(":")
        if not host or not port.isdecimal():
            raise CannotTell(f"--http: {http!r} is not HOST:PORT", wrong=True)
        self._host, self._port = host.strip("[]"), int(port)

    async def run(self, picture: Picture) -> None:
        await Following(picture, lambda: asyncio.open_connection(self._host, self._port)).run()

    async def ask(self, node: str, *command: str) -> bytes:
        return await ask_socket(self._run_dir, *command)

    def look_at(self, nodes: tuple[str, ...]) -> None:
        """There is one only."""
