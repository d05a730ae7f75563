"""A kind that an API server may not know: ClusterNetworkPolicy, whose definition comes early, late or never."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from feeding import NODE, policy, problems, started, until

import apiserver
from apiserver import ApiServer
from flock.core.kinds import CLUSTER_NODES, CLUSTER_POLICIES, NODES, POLICIES, Extent
from flock.edge.cache import Cache
from flock.edge.kube import lastknown, reflector

PATH = apiserver.PATHS["ClusterNetworkPolicy"]
Story = Callable[[Cache], Awaitable[None]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lastknown, "RECALL_AFTER", 0.2)
    monkeypatch.setattr(lastknown, "SAVE_AFTER", 0.05)
    monkeypatch.setattr(reflector, "LONGEST_PAUSE", 0.4)


def play(server: ApiServer, directory: Path, story: Story) -> None:
    async def run() -> None:
        async with started(server, directory) as (known, _):
            await until(lambda: known.complete, "the first listing")
            await story(known)

    asyncio.run(run())


def cluster_policy(name: str) -> dict[str, Any]:
    spec = {"tier": "Admin", "priority": 1, "subject": {"namespaces": {}}}
    return {"kind": "ClusterNetworkPolicy", "metadata": {"name": name}, "spec": spec}


def known_names(known: Cache) -> set[str]:
    return {name for _, name in known.table(CLUSTER_POLICIES)}


def asked(server: ApiServer) -> int:
    return len(server.asked(PATH))


async def is_remembered(directory: Path, name: str) -> None:
    file = directory / "cluster.json"
    await until(lambda: file.exists() and f'"{name}"' in file.read_text(), "the memory")


def test_a_server_without_the_kind_is_no_trouble_and_nothing_is_watched(server: ApiServer, tmp_path: Path) -> None:
    server.errors[PATH] = 404

    async def story(known: Cache) -> None:
        times = asked(server)
        await until(lambda: asked(server) > times, "it is asked again")
        assert not known.troubles and not known.problems
        assert "ClusterNetworkPolicy" not in {watch.kind for watch in known.watches}
        assert not [path for path in server.asked(PATH) if "watch=true" in path]

    play(server, tmp_path, story)


def test_a_definition_that_comes_later_is_noticed(server: ApiServer, tmp_path: Path) -> None:
    server.errors[PATH] = 404

    async def story(known: Cache) -> None:
        server.put(cluster_policy("late"))
        server.errors.clear()
        await until(lambda: known_names(known) == {"late"}, "the first of them")
        server.put(cluster_policy("later"))
        await until(lambda: known_names(known) == {"late", "later"}, "the watch")
        assert "ClusterNetworkPolicy" in {watch.kind for watch in known.watches}

    play(server, tmp_path, story)


def test_it_is_noticed_within_a_minute() -> None:
    assert reflector.LONGEST_PAUSE < 60


def test_a_server_that_has_not_loaded_the_definition_again_takes_nothing_out_of_force(
    server: ApiServer, tmp_path: Path
) -> None:
    server.put(cluster_policy("kept"))

    async def story(known: Cache) -> None:
        with server.away():
            server.errors[PATH] = 404
        await until(lambda: "404" in problems(known), "its answer")
        assert known_names(known) == {"kept"}
        server.forget("ClusterNetworkPolicy", "kept")
        server.put(cluster_policy("new"))
        server.errors.clear()
        await until(lambda: known_names(known) == {"new"}, "what is there, once it tells")
        await until(lambda: not known.problems, "the others, whose place is lost, to list again")

    play(server, tmp_path, story)


def test_what_an_earlier_life_knew_stays_where_agent_and_server_start_together(
    server: ApiServer, tmp_path: Path
) -> None:
    server.put(cluster_policy("kept"))
    play(server, tmp_path, lambda _: is_remembered(tmp_path, "kept"))
    server.errors[PATH] = 404

    async def second(known: Cache) -> None:
        assert known_names(known) == {"kept"}
        assert "404" in problems(known)
        server.put(policy("other"))
        await until(lambda: known.table(POLICIES), "another change")
        await is_remembered(tmp_path, "other")
        assert '"kept"' in (tmp_path / "cluster.json").read_text(), "for the next life too"
        server.errors.clear()
        await until(lambda: not known.problems, "the definition")
        assert known_names(known) == {"kept"}

    play(server, tmp_path, second)


def test_a_definition_that_is_really_gone_takes_its_objects_along_after_some_minutes(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.put(cluster_policy("doomed"))
    monkeypatch.setattr(reflector, "DISBELIEF", 1.0)

    async def story(known: Cache) -> None:
        server.errors[PATH] = 404
        server.hang_up()
        await until(lambda: "404" in problems(known), "disbelief")
        assert known_names(known) == {"doomed"}
        await until(lambda: not known_names(known), "belief")
        assert not known.problems

    play(server, tmp_path, story)


def test_who_was_away_in_between_has_said_nothing_for_long(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.put(cluster_policy("kept"))
    monkeypatch.setattr(reflector, "DISBELIEF", 1.5)

    async def story(known: Cache) -> None:
        for _ in range(6):
            server.errors[PATH] = 404
            server.hang_up()
            await until(lambda: "404" in problems(known), "one that has not loaded it")
            await asyncio.sleep(0.4)
            server.errors[PATH] = 503
            await until(lambda: "503" in problems(known), "one that starts")
            assert known_names(known) == {"kept"}

    play(server, tmp_path, story)


def test_all_nodes_are_followed_while_they_are_needed_and_remembered(server: ApiServer, tmp_path: Path) -> None:
    def node(name: str, **labels: str) -> dict[str, Any]:
        conditions = [{"type": "Ready", "status": "True", "message": name}]
        addresses = [{"type": "InternalIP", "address": "192.0.2.1"}]
        status = {"addresses": addresses, "conditions": conditions}
        return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}

    server.put(node(NODE), node("n2", role="db"))

    async def story(known: Cache) -> None:
        assert set(known.table(NODES)) == {("", NODE)} and not known.table(CLUSTER_NODES)
        known.need(CLUSTER_NODES, [Extent()])
        assert not known.complete
        await until(lambda: known.complete, "their listing")
        assert set(known.table(CLUSTER_NODES)) == {("", NODE), ("", "n2")}
        told = known.table(CLUSTER_NODES)["", "n2"]
        assert told.metadata.labels == {"role": "db"} and told.status.addresses
        assert told.status.conditions is None, "what a kubelet writes all the time is no change"
        server.put(node("n3"))
        await until(lambda: ("", "n3") in known.table(CLUSTER_NODES), "one more")

    play(server, tmp_path, story)


def test_what_went_just_before_an_agent_ended_does_not_come_back_with_the_next(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its definition is gone as well: nobody could tell the next one better."""
    server.put(cluster_policy("p"))

    async def remembered(_: Cache) -> None:
        await is_remembered(tmp_path, "p")

    async def removed(known: Cache) -> None:
        await until(lambda: known_names(known) == {"p"}, "the policy")
        server.delete("ClusterNetworkPolicy", "p", "")
        await until(lambda: not known_names(known), "its end")

    async def after(known: Cache) -> None:
        assert not known_names(known) and not problems(known)

    play(server, tmp_path, remembered)
    monkeypatch.setattr(lastknown, "SAVE_AFTER", 600.0)
    play(server, tmp_path, removed)
    server.errors[PATH] = 404
    play(server, tmp_path, after)
