"""What of a cluster is followed, what is asked for beside that, and what is known when nobody answers."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from feeding import NODE, names, pod, policy, problems, started, until

from apiserver import ApiServer
from flock.core.kinds import CLUSTER_PODS, NODE_CONFIGS, PODS, POLICIES, Extent
from flock.edge.cache import Cache
from flock.edge.kube import feeder as feeding
from flock.edge.kube import lastknown
from flock.edge.kube.feeder import KubeFeeder

Story = Callable[[Cache, KubeFeeder], Awaitable[None]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lastknown, "RECALL_AFTER", 0.2)
    monkeypatch.setattr(lastknown, "SAVE_AFTER", 0.05)


def play(server: ApiServer, directory: Path, story: Story, *, listed: bool = True) -> None:
    async def run() -> None:
        async with started(server, directory) as (known, feeder):
            if listed:
                await until(lambda: known.complete, "the first listing")
            await story(known, feeder)

    asyncio.run(run())


def elsewhere(name: str) -> dict[str, Any]:
    return {**pod(name), "spec": {"nodeName": "n2"}}


# --- one pod, for an ADD ---


def test_a_pod_that_is_not_there_yet_is_asked_for_once_and_then_waited_for(server: ApiServer, tmp_path: Path) -> None:
    async def story(known: Cache, feeder: KubeFeeder) -> None:
        asking = asyncio.create_task(feeder.pod("evil", "late", uid=""))
        await until(lambda: server.asked("/api/v1/namespaces/evil/pods/late"), "the question")
        for number in range(20):
            server.put(pod(f"other{number}"))
        await until(lambda: len(known.table(PODS)) == 20, "other changes")
        server.put(pod("late", tier="front"))
        found = await asking
        assert found is not None and found.labels == {"tier": "front"}
        assert len(server.asked("/api/v1/namespaces/evil/pods/late")) == 1

    play(server, tmp_path, story)


def test_a_namesake_is_not_taken_for_the_pod_that_is_waited_for(server: ApiServer, tmp_path: Path) -> None:
    def called(uid: str) -> dict[str, Any]:
        named = pod("web")
        return {**named, "metadata": {**named["metadata"], "uid": uid}}

    server.put(called("old"))

    async def story(known: Cache, feeder: KubeFeeder) -> None:
        asking = asyncio.create_task(feeder.pod("evil", "web", uid="new"))
        await until(lambda: server.asked("/api/v1/namespaces/evil/pods/web"), "the question")
        server.delete("Pod", "web", "evil")
        server.put(called("new"))
        found = await asking
        assert found is not None and found.metadata.uid == "new"

    play(server, tmp_path, story)


def test_the_wait_is_bounded_also_where_the_server_holds_its_answer_back(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "PATIENCE", 0.3)

    async def story(known: Cache, feeder: KubeFeeder) -> None:
        assert await feeder.pod("evil", "nobody", uid="") is None
        server.held.clear()
        async with asyncio.timeout(20):
            assert await feeder.pod("evil", "nobody", uid="") is None
        server.held.set()

    play(server, tmp_path, story)


# --- watches ---


def test_a_watch_goes_on_where_bookmarks_have_brought_it(server: ApiServer, tmp_path: Path) -> None:
    """A kind that never changes would else ask for what a busy server has long forgotten."""

    def places() -> list[int]:
        watches = (path for path in server.asked("/api/v1/namespaces?") if "watch=true" in path)
        return [int(path.split("resourceVersion=")[1].split("&")[0]) for path in watches]

    server.bookmarks = 0.02

    async def story(known: Cache, _: KubeFeeder) -> None:
        await until(places, "the watch")
        server.put(*(pod(f"p{number}") for number in range(50)))
        await until(lambda: len(known.table(PODS)) == 50, "changes of another kind")
        for _ in range(20):
            await asyncio.sleep(0.3)  # a few bookmarks
            before = len(places())
            server.hang_up()
            await until(lambda before=before: len(places()) > before, "the watch, again")
            if places()[-1] - places()[0] >= 50:
                return
        raise AssertionError(f"the watch did not move on: {places()}")

    play(server, tmp_path, story)


def test_a_slow_reader_catches_up_and_hears_of_each_object_once(server: ApiServer, tmp_path: Path) -> None:
    async def story(known: Cache, _: KubeFeeder) -> None:
        reader = known.reader(PODS)
        assert reader.changes() == []
        for turn in range(3):
            for number in range(100):
                server.put(pod(f"p{number}", turn=str(turn), fat="x" * 20_000))
        time.sleep(0.5)  # noqa: ASYNC251 - the loop reads nothing meanwhile, and the server's answers pile up
        await until(lambda: len(known.table(PODS)) == 100, "all of them")
        await until(lambda: {p.labels["turn"] for p in known.table(PODS).values()} == {"2"}, "their last versions")
        heard = reader.changes()
        assert len(heard) == len(set(heard)) == 100

    play(server, tmp_path, story)


# --- the last known state ---


def test_the_last_known_state_is_in_force_while_the_server_is_away_at_start(server: ApiServer, tmp_path: Path) -> None:
    server.put({"kind": "NodeConfig", "metadata": {"name": NODE}, "spec": {"mtu": 1400}})
    server.put(policy("closed"), pod("a"), elsewhere("b"), elsewhere("c"))
    file = tmp_path / "cluster.json"

    async def first(known: Cache, _: KubeFeeder) -> None:
        reader = known.reader(CLUSTER_PODS)
        known.need(CLUSTER_PODS, [Extent("evil")])
        await until(lambda: file.exists() and '"kind":"ClusterPod",' in file.read_text(), "the state on disk")
        assert reader.changes() == [("ClusterPod", "evil", "b"), ("ClusterPod", "evil", "c")]

    async def second(known: Cache, _: KubeFeeder) -> None:
        reader = known.reader(CLUSTER_PODS)
        await until(lambda: known.synced, "the memory to serve")
        assert known.complete and "last known state" in problems(known)
        assert known.own(NODE_CONFIGS) and ("evil", "closed") in known.table(POLICIES) and names(known) == {"a"}
        assert reader.changes() == [("ClusterPod", "evil", "b"), ("ClusterPod", "evil", "c")]
        known.need(CLUSTER_PODS, [Extent("evil")])
        assert not known.lacking(CLUSTER_PODS), "a memory of it is there"
        server.forget("Pod", "a", "evil")
        server.forget("Pod", "b", "evil")
        server.errors.clear()
        server.errors["/api/v1/namespaces/evil/pods"] = 503
        await until(lambda: "last known state" not in problems(known), "the server")
        assert len(known.table(CLUSTER_PODS)) == 2 and known.lacking(CLUSTER_PODS), "others may be needed than then"
        server.errors.clear()
        await until(lambda: set(known.table(CLUSTER_PODS)) == {("evil", "c")}, "what is there in place of the memory")
        assert names(known) == set() and known.complete

    play(server, tmp_path, first)
    server.errors["/"] = 503
    play(server, tmp_path, second, listed=False)


def test_a_state_without_configuration_is_no_state_to_live_on(server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('[{"kind": "Namespace", "namespace": "", "name": "a", "object": {}}]')
    server.errors["/"] = 503

    async def story(known: Cache, _: KubeFeeder) -> None:
        await until(lambda: "503" in problems(known), "the trouble")
        await asyncio.sleep(3 * lastknown.RECALL_AFTER)
        assert not known.synced and "last known state" not in problems(known)

    play(server, tmp_path, story, listed=False)
