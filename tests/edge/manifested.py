"""A manifest directory on a real file system, watched by the real kernel, and the cache it feeds."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flock.core.kinds import PODS, Key
from flock.core.model import Pod
from flock.edge.cache import Cache, Problem
from flock.edge.manifests import ManifestFeeder


def pod(name: str, *, label: str = "x", uid: str = "") -> str:
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, uid: '{uid}', labels: {{l: {label}}}}}\n"


POLICY = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\nspec: {podSelector: {}}\n"


class Watched:
    """A cache that counts the batches its subscribers hear of, and lets a test wait for the next."""

    def __init__(self, directory: Path) -> None:
        self.cache = Cache(node="node1")
        self.feeder = ManifestFeeder(self.cache, directory)
        self.told = 0
        self._news = asyncio.Event()
        self.cache.subscribe(self._hear)

    def _hear(self) -> None:
        self.told += 1
        self._news.set()

    async def news(self) -> None:
        await self._news.wait()
        self._news.clear()

    async def quiet(self) -> int:
        """Take in what is pending, let callbacks run, and say how often subscribers were told so far."""
        self.feeder.refresh()
        await asyncio.sleep(0)
        return self.told

    async def pod(self, name: str, *, uid: str = "") -> Pod | None:
        return await self.feeder.pod("default", name, uid=uid)

    @property
    def synced(self) -> bool:
        return self.cache.synced

    @property
    def pods(self) -> Mapping[Key, Pod]:
        return self.cache.table(PODS)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self.cache.problems

    def labels(self) -> dict[str, str]:
        return {name: value.labels["l"] for (_, name), value in self.pods.items()}


@asynccontextmanager
async def watching(directory: Path) -> AsyncIterator[Watched]:
    """What is there is taken in, and was told."""
    watched = Watched(directory)
    await watched.feeder.start()
    try:
        await watched.news()
        watched.told = 0
        yield watched
    finally:
        await watched.feeder.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "manifests"
    path.mkdir()
    return path
