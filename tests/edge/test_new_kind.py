"""A kind nobody has heard of yet needs its row and whoever reads it, and nothing else: both feeders go by the row."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from feeding import NODE, started, until

import apiserver
from apiserver import ApiServer
from flock.core.decoding import decode_config
from flock.core.kinds import KINDS, Kind, Raw
from flock.edge.cache import Cache
from flock.edge.manifests import ManifestFeeder

GADGETS = Kind[Raw]("Gadget", "example.org/v2", "gadgets", namespaced=True, decode=decode_config)


class Consumer:
    """Knows the size of every gadget there is."""

    def __init__(self, cache: Cache) -> None:
        self._gadgets, self._reader = cache.table(GADGETS), cache.reader(GADGETS)
        self.sizes: dict[str, Any] = {}

    def look(self) -> dict[str, Any]:
        for _, namespace, name in self._reader.changes():
            gadget = self._gadgets.get((namespace, name))
            if gadget is None:
                del self.sizes[name]
            else:
                self.sizes[name] = gadget["spec"]["size"]
        return self.sizes


def gadget(name: str, size: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.org/v2",
        "kind": "Gadget",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"size": size},
    }


def test_it_is_listed_and_watched_at_the_api_server_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(apiserver.KINDS, "/apis/example.org/v2/gadgets", "Gadget")
    monkeypatch.setattr("flock.edge.kube.lastknown.RECALL_AFTER", 0.1)
    monkeypatch.setattr("flock.edge.kube.lastknown.SAVE_AFTER", 0.1)

    async def story(server: ApiServer) -> None:
        async with started(server, tmp_path, GADGETS) as (known, _):
            consumer = Consumer(known)
            await until(lambda: known.complete and consumer.look() == {"a": 1}, "the list")
            server.put(gadget("b", 2))
            server.delete("Gadget", "a", "shop")
            await until(lambda: consumer.look() == {"b": 2}, "the watch")
            assert "Gadget" in {watch.kind for watch in known.watches}
            file = tmp_path / "cluster.json"
            await until(lambda: file.exists() and '"size":2' in file.read_text(), "the memory")
        server.errors["/"] = 503
        async with started(server, tmp_path, GADGETS) as (known, _):
            consumer = Consumer(known)
            await until(lambda: consumer.look() == {"b": 2} and known.synced, "what was remembered")

    with ApiServer() as server:
        server.put({"kind": "NodeConfig", "metadata": {"name": NODE}, "spec": {}}, gadget("a", 1))
        asyncio.run(story(server))


def test_it_is_read_from_manifests(tmp_path: Path) -> None:
    async def story() -> None:
        cache = Cache(node=NODE, kinds=(*KINDS, GADGETS))
        feeder, consumer = ManifestFeeder(cache, tmp_path), Consumer(cache)
        (tmp_path / "a.yaml").write_bytes(apiserver.encoded(gadget("a", 1)))
        await feeder.start()
        assert consumer.look() == {"a": 1}
        (tmp_path / "b.yaml").write_bytes(apiserver.encoded(gadget("b", 2)))
        (tmp_path / "c.yaml").write_bytes(apiserver.encoded({**gadget("c", 3), "apiVersion": "example.org/v1"}))
        (tmp_path / "a.yaml").unlink()
        feeder.refresh()
        assert consumer.look() == {"b": 2}
        assert "apiVersion must be example.org/v2" in str(cache.problems)
        await feeder.close()

    asyncio.run(story())
