"""What is known of the cluster, whatever the API server sends and however it falls silent.

`make e2e` shows the same with a real one (e2e/test_reflector.py, e2e/test_hostile_objects.py).
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from feeding import names, pod, policy, problems, started, until

from apiserver import ApiServer, nested
from flock.core.kinds import PODS, POLICIES
from flock.edge.cache import Cache
from flock.edge.kube import client, reflector

Test = Callable[[Cache], Awaitable[None]]


def watch(server: ApiServer, tmp_path: Path, test: Test) -> None:
    """Run `test` beside a cache in which everything is listed."""

    async def run() -> None:
        async with started(server, tmp_path) as (known, _):
            await until(lambda: known.complete, "the first listing")
            await test(known)

    asyncio.run(run())


# --- objects of tenants ---


@pytest.mark.parametrize("levels", [1_500, 5_000, 9_000, 100_000])
def test_a_deeply_nested_object_is_read_and_ends_no_watch(server: ApiServer, tmp_path: Path, levels: int) -> None:
    async def test(known: Cache) -> None:
        server.put(policy("deep", deep=levels, policyTypes=["Ingress"]), pod("deep", deep=levels, tier="front"))
        server.put(policy("later"), pod("later"))
        await until(lambda: ("evil", "later") in known.table(POLICIES) and "later" in names(known), "what follows")
        assert known.table(POLICIES)["evil", "deep"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
        assert known.table(PODS)["evil", "deep"].labels == {"tier": "front"}
        server.delete("NetworkPolicy", "deep", "evil")
        await until(lambda: ("evil", "deep") not in known.table(POLICIES), "its deletion")
        assert not problems(known)

    watch(server, tmp_path, test)


def test_a_deeply_nested_object_spoils_no_page_of_a_list(server: ApiServer, tmp_path: Path) -> None:
    server.put(*(pod(f"p{i}") for i in range(20)), pod("deep", deep=9_000, tier="front"), policy("deep", deep=9_000))

    async def test(known: Cache) -> None:
        assert len(known.table(PODS)) == 21 and known.table(PODS)["evil", "deep"].labels == {"tier": "front"}
        assert ("evil", "deep") in known.table(POLICIES) and not problems(known)

    watch(server, tmp_path, test)


def test_a_pod_that_is_asked_for_directly_may_be_nested_deeply(server: ApiServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with started(server, tmp_path) as (known, feeder):
            await until(lambda: known.complete, "the first listing")
            server.silent = True
            server.put(pod("deep", deep=9_000, tier="front"))
            found = await feeder.pod("evil", "deep", uid="")
            assert found is not None and found.labels == {"tier": "front"} and "deep" not in names(known)

    asyncio.run(run())


@pytest.mark.parametrize("levels", [500, 5_000])  # a decoder reads that, or not; which, depends on the Python
def test_what_is_nested_deeply_where_it_is_read_is_refused_by_who_reads_it(
    server: ApiServer, tmp_path: Path, levels: int
) -> None:
    async def test(known: Cache) -> None:
        server.put(policy("deep", ingress=nested(levels)), policy("later"))
        await until(lambda: ("evil", "later") in known.table(POLICIES), "what follows")
        assert "nested too deeply" in str(known.table(POLICIES)["evil", "deep"])

    watch(server, tmp_path, test)


def test_an_object_that_cannot_be_read_is_refused_alone_and_keeps_its_last_good_version(
    server: ApiServer, tmp_path: Path
) -> None:
    async def test(known: Cache) -> None:
        server.put(pod("a", tier="front"))
        await until(lambda: "a" in names(known), "the good version")
        server.put({**pod("a"), "status": "no status"}, pod("b"))
        await until(lambda: "b" in names(known), "what follows")
        assert known.table(PODS)["evil", "a"].labels == {"tier": "front"}
        assert "Pod evil/a" in problems(known)
        server.put(pod("a", tier="back"))
        await until(lambda: known.table(PODS)["evil", "a"].labels == {"tier": "back"}, "a good version again")
        assert not problems(known)

    watch(server, tmp_path, test)


def test_an_object_that_does_not_tell_its_name_spoils_no_page_and_lets_nothing_be_forgotten(
    server: ApiServer, tmp_path: Path
) -> None:
    async def test(known: Cache) -> None:
        server.put(pod("a"), pod("b"))
        await until(lambda: names(known) == {"a", "b"}, "the pods")
        nameless = pod("a")
        nameless["metadata"]["labels"] = []  # and what tells its name is no metadata
        server._objects["Pod", "evil", "a"] = {**nameless, "metadata": {"name": 5}}
        server.compact()
        server.put(pod("c"))
        await until(lambda: "c" in names(known), "a new list")
        assert names(known) == {"a", "b", "c"} and "Pod ?" in problems(known)

    watch(server, tmp_path, test)


def test_a_policy_without_readable_metadata_is_handed_on_to_be_refused(server: ApiServer, tmp_path: Path) -> None:
    """Whoever enforces policies closes what such a policy may select: it has to hear of it."""

    async def test(known: Cache) -> None:
        wrong = policy("wrong")
        wrong["metadata"]["annotations"] = {"flock.fritzlab.net/strict": 1}
        server.put(wrong)
        await until(lambda: ("evil", "wrong") in known.table(POLICIES), "the policy")
        handed_on = known.table(POLICIES)["evil", "wrong"]
        assert handed_on["metadata"]["name"] == "wrong" and "cannot be read" in handed_on["spec"]

    watch(server, tmp_path, test)


def test_what_the_server_keeps_for_itself_is_not_kept(server: ApiServer, tmp_path: Path) -> None:
    async def test(known: Cache) -> None:
        server.put(policy("a", deep=5))
        await until(lambda: ("evil", "a") in known.table(POLICIES), "the policy")
        assert "managedFields" not in str(known.table(POLICIES)["evil", "a"])

    watch(server, tmp_path, test)


def test_pages_that_would_fill_the_memory_are_taken_smaller(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_LIMIT", 50_000)
    fat = [pod(f"p{i}", fat="x" * 20_000) for i in range(10)]
    server.put(*fat)

    async def test(known: Cache) -> None:
        assert len(known.table(PODS)) == 10 and not problems(known)

    watch(server, tmp_path, test)


# --- the server and the way to it ---


def test_deletes_that_nobody_told_are_found(server: ApiServer, tmp_path: Path) -> None:
    server.put(pod("a"), pod("b"))

    async def test(known: Cache) -> None:
        server.forget("Pod", "a", "evil")
        await until(lambda: names(known) == {"b"}, "the deletion")

    watch(server, tmp_path, test)


def test_a_server_that_is_away_changes_nothing_and_is_told_with_the_time_since(
    server: ApiServer, tmp_path: Path
) -> None:
    server.put(pod("a"))

    async def test(known: Cache) -> None:
        with server.away():
            await until(lambda: "not reachable" in problems(known), "the trouble")
            assert "since" in problems(known) and names(known) == {"a"}
            await until(lambda: not any(w.up or not w.problem for w in known.watches), "all watches to be told of")
        server.put(pod("b"))
        await until(lambda: names(known) == {"a", "b"} and not problems(known), "the end of it")
        await until(lambda: all(watch.up for watch in known.watches), "all watches")

    watch(server, tmp_path, test)


def test_a_watch_that_falls_silent_is_begun_anew(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bookmarks come every minute; when not even they do, the connection leads nowhere."""
    monkeypatch.setattr(reflector, "SILENCE", 1.0)

    async def test(known: Cache) -> None:
        await until(lambda: all(watch.up for watch in known.watches), "the watches that are to fall silent")
        server.silent = True
        server.put(pod("a"))
        before = len(server.asked("/api/v1/pods?"))
        await until(lambda: len(server.asked("/api/v1/pods?")) > before, "another watch")
        server.silent = False
        await until(lambda: names(known) == {"a"}, "what was missed")
        assert any(watch.silences for watch in known.watches)

    watch(server, tmp_path, test)


def test_an_answer_that_dribbles_is_given_up(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "WHOLE_TIMEOUT", 1.0)
    server.dribble = 0.1

    async def run() -> None:
        async with started(server, tmp_path) as (known, _):
            await until(lambda: "no answer in time" in problems(known), "the trouble")
            server.dribble = 0.0
            await until(lambda: known.complete and not problems(known), "the end of it")

    asyncio.run(run())


@pytest.mark.parametrize("status", [403, 410, 429, 500, 503])
def test_an_error_is_told_and_healed(server: ApiServer, tmp_path: Path, status: int) -> None:
    async def test(known: Cache) -> None:
        server.errors["/api/v1/pods"] = status
        server.hang_up()
        await until(lambda: str(status) in problems(known), "the trouble")
        server.errors.clear()
        server.put(pod("a"))
        await until(lambda: names(known) == {"a"} and not problems(known), "the end of it")

    watch(server, tmp_path, test)
