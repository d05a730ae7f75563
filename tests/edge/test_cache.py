"""One cache: tables that are always whole, changes that every reader reads at its own pace, subscribers, problems."""

import asyncio
import gc
import itertools
from functools import partial

import msgspec
import pytest

from flock.core.kinds import ALL, CLUSTER_PODS, KINDS, NAMESPACES, NODE_CONFIGS, PODS, POLICIES, Aspect, Extent, Kind
from flock.core.model import Metadata, Namespace, Pod
from flock.edge.cache import Cache, Problem

VERSION = itertools.count()


def pod(name: str) -> Pod:
    """Another version each time."""
    return Pod(Metadata(name=name, namespace="shop", uid=str(next(VERSION))))


def put(cache: Cache, *names: str, kind: Kind[Pod] = PODS) -> None:
    for name in names:
        cache.put(kind, ("shop", name), pod(name))


def changed(*names: str) -> list[tuple[str, str, str]]:
    return [("Pod", "shop", name) for name in names]


@pytest.fixture
def cache() -> Cache:
    return Cache(node="n1")


# --- tables ---


def test_a_table_taken_once_stays_current(cache: Cache) -> None:
    table = cache.table(NAMESPACES)
    cache.put(NAMESPACES, ("", "shop"), Namespace(Metadata(name="shop")))
    assert list(table) == [("", "shop")]
    cache.drop(NAMESPACES, ("", "shop"))
    assert not table


def test_a_node_has_its_own_object_of_some_kinds(cache: Cache) -> None:
    cache.put(NODE_CONFIGS, ("", "n2"), {"spec": {"mtu": 1}})
    assert cache.own(NODE_CONFIGS) is None
    cache.put(NODE_CONFIGS, ("", "n1"), {"spec": {"mtu": 2}})
    assert cache.own(NODE_CONFIGS) == {"spec": {"mtu": 2}}


# --- the log of changes ---


def test_a_reader_hears_first_of_everything_then_of_what_changed_in_order(cache: Cache) -> None:
    put(cache, "a", "b")
    reader = cache.reader(PODS)
    assert reader.changes() == changed("a", "b")
    assert reader.changes() == []
    put(cache, "c", "a")
    cache.drop(PODS, ("shop", "b"))
    assert reader.changes() == changed("c", "a", "b")
    assert reader.changes() == []


def test_everything_comes_by_kinds_in_the_order_the_reader_names_them(cache: Cache) -> None:
    put(cache, "a")
    cache.put(NAMESPACES, ("", "shop"), Namespace(Metadata(name="shop")))
    assert [key[0] for key in cache.reader(NAMESPACES, PODS).changes()] == ["Namespace", "Pod"]
    assert [key[0] for key in cache.reader(PODS, NAMESPACES).changes()] == ["Pod", "Namespace"]


def test_each_reader_has_its_own_pace_and_its_own_kinds(cache: Cache) -> None:
    slow, fast, other = cache.reader(PODS), cache.reader(PODS), cache.reader(NAMESPACES)
    for reader in (slow, fast, other):
        assert reader.changes() == []
    put(cache, "a")
    assert fast.changes() == changed("a")
    put(cache, "b")
    assert fast.changes() == changed("b")
    assert slow.changes() == changed("a", "b")
    assert other.changes() == []


def test_what_is_kept_for_the_slowest_reader_is_bounded_by_the_objects(cache: Cache) -> None:
    slow, fast = cache.reader(PODS), cache.reader(PODS)
    slow.changes()
    for turn in range(1000):
        put(cache, "a", f"b{turn % 10}")
        fast.changes()
    assert len(slow._unread or ()) == 11
    assert slow.changes() == changed(*(f"b{n}" for n in range(9)), "a", "b9")
    assert slow.changes() == [] and not slow._unread


def test_nothing_is_kept_for_readers_that_have_not_begun_or_are_gone(cache: Cache) -> None:
    waiting = cache.reader(PODS)
    put(cache, "a")
    cache.drop(PODS, ("shop", "a"))
    assert not waiting._unread
    gone = cache.reader(PODS)
    gone.changes()
    del gone
    gc.collect()
    put(cache, "b")
    assert list(cache._readers) == [waiting] and not waiting._unread
    assert waiting.changes() == changed("b")


def test_dropping_what_is_not_there_is_no_change(cache: Cache) -> None:
    reader = cache.reader(PODS)
    reader.changes()
    cache.drop(PODS, ("shop", "nobody"))
    assert reader.changes() == []


def test_putting_what_is_known_already_is_no_change(cache: Cache) -> None:
    reader, same = cache.reader(PODS), pod("a")
    cache.put(PODS, ("shop", "a"), same)
    assert reader.changes() == changed("a")
    cache.refuse(PODS, ("shop", "a"), "no status")
    cache.put(PODS, ("shop", "a"), msgspec.structs.replace(same))
    assert reader.changes() == [] and not cache.problems


# --- subscribers ---


def test_subscribers_are_told_once_for_all_that_happens_in_a_turn_of_the_loop() -> None:
    async def story() -> None:
        cache, told = Cache(node="n1"), [0]

        def hear() -> None:
            told[0] += 1

        cache.subscribe(hear)
        put(cache, "a", "b", "c")
        cache.listed(PODS)
        cache.refuse(PODS, ("shop", "d"), "no")
        assert told == [0]
        await asyncio.sleep(0)
        assert told == [1]
        cache.listed(PODS)
        cache.complain("x")
        await asyncio.sleep(0)
        assert told == [1]

    asyncio.run(story())


def test_whoever_waits_for_a_change_goes_on_at_the_next() -> None:
    async def story() -> None:
        cache = Cache(node="n1")
        put(cache, "before")
        waiting = asyncio.create_task(cache.changed())
        await asyncio.sleep(0)
        assert not waiting.done()
        put(cache, "a")
        async with asyncio.timeout(5):
            await waiting

    asyncio.run(story())


def test_a_subscriber_of_some_kinds_hears_of_them_and_of_what_is_no_object() -> None:
    async def story() -> None:
        cache, told = Cache(node="n1"), list[str]()
        for name, kinds in (("pods", [PODS]), ("namespaces", [NAMESPACES]), ("nothing", []), ("all", None)):
            cache.subscribe(partial(told.append, name), of=kinds)

        async def heard() -> list[str]:
            await asyncio.sleep(0)
            found = told.copy()
            told.clear()
            return found

        put(cache, "a")
        assert await heard() == ["pods", "all"]
        put(cache, "a")
        cache.put(NAMESPACES, ("", "shop"), Namespace(Metadata(name="shop")))
        assert await heard() == ["pods", "namespaces", "all"]
        cache.need(CLUSTER_PODS, [ALL])
        cache.listed(CLUSTER_PODS)
        assert await heard() == ["pods", "namespaces", "nothing", "all"]

    asyncio.run(story())


def test_a_change_of_what_nobody_sees_of_an_object_is_told_to_nobody() -> None:
    """A kubelet writes about a pod some eight times, and each reader has use for two or three of them."""
    uids = Aspect(PODS, lambda pod: pod and pod.metadata.uid)
    names = Aspect(PODS, lambda pod: pod and pod.metadata.name)

    async def story() -> None:
        cache, told = Cache(node="n1"), list[str]()
        reader = cache.reader(names, NAMESPACES)
        reader.changes()
        for name, seen in (("uids", uids), ("names", names), ("all of it", PODS)):
            cache.subscribe(partial(told.append, name), of=[seen])

        async def heard() -> list[str]:
            await asyncio.sleep(0)
            found = told.copy()
            told.clear()
            return found

        put(cache, "a")
        assert await heard() == ["uids", "names", "all of it"] and reader.changes() == changed("a")
        put(cache, "a")  # with another uid
        assert await heard() == ["uids", "all of it"] and reader.changes() == []
        labelled = cache.table(PODS)["shop", "a"]
        cache.put(PODS, ("shop", "a"), Pod(msgspec.structs.replace(labelled.metadata, labels={"app": "web"})))
        assert await heard() == ["all of it"] and reader.changes() == []
        cache.drop(PODS, ("shop", "a"))
        assert await heard() == ["uids", "names", "all of it"] and reader.changes() == changed("a")

    asyncio.run(story())


# --- problems ---


def test_a_refused_object_keeps_its_last_good_version_and_is_told_until_it_is_put_or_dropped(cache: Cache) -> None:
    put(cache, "a")
    cache.refuse(PODS, ("shop", "a"), "no status")
    assert ("shop", "a") in cache.table(PODS)
    assert cache.problems == (Problem("Pod shop/a", "no status"),)
    put(cache, "a")
    assert cache.problems == ()
    cache.refuse(PODS, ("shop", "b"), "no status")
    assert cache.known(PODS) == {("shop", "a"), ("shop", "b")}
    cache.drop(PODS, ("shop", "b"))
    assert cache.problems == ()


def test_what_is_refused_twice_for_the_same_reason_is_one_problem(cache: Cache) -> None:
    for kind in (PODS, CLUSTER_PODS):
        cache.refuse(kind, ("shop", "a"), "no status")
    assert cache.problems == (Problem("Pod shop/a", "no status"),)


def test_a_feeder_complains_about_one_thing_until_it_takes_that_back(cache: Cache) -> None:
    cache.complain("b", Problem("b.yaml", "one"), Problem("b.yaml", "two"))
    cache.complain("a", Problem("a.yaml", "three"))
    assert [problem.where for problem in cache.problems] == ["a.yaml", "b.yaml", "b.yaml"]
    cache.complain("b")
    assert cache.problems == (Problem("a.yaml", "three"),)


def test_what_keeps_feeders_from_reading_is_told_without_what_tenants_wrote(cache: Cache) -> None:
    cache.complain("a", Problem("a.yaml", "three"))
    cache.refuse(PODS, ("shop", "a"), "no status")
    cache.watch(POLICIES).problem = "403"
    policies = Problem("watch of /apis/networking.k8s.io/v1/networkpolicies", "403")
    assert cache.troubles == (Problem("a.yaml", "three"), policies)
    assert set(cache.problems) == {*cache.troubles, Problem("Pod shop/a", "no status")}


def test_the_trouble_of_a_watch_is_a_problem_and_in_its_state(cache: Cache) -> None:
    watch = cache.watch(POLICIES)
    watch.problem = "403"
    assert cache.problems == (Problem("watch of /apis/networking.k8s.io/v1/networkpolicies", "403"),)
    (told,) = cache.watches
    assert (told.kind, told.up, told.problem, told.silences) == ("NetworkPolicy", False, "403", 0)
    assert 0 <= told.heard < 60


# --- what is needed, and what is listed ---


def test_of_a_partial_kind_is_lacking_what_is_needed_and_not_listed(cache: Cache) -> None:
    shop, dns = Extent("shop"), Extent(labels="k8s-app=kube-dns")
    assert not cache.lacking(CLUSTER_PODS)
    cache.need(CLUSTER_PODS, [shop, dns])
    assert cache.lacking(CLUSTER_PODS).keys() == set(cache.needed(CLUSTER_PODS)) == {shop, dns}
    cache.listed(CLUSTER_PODS, shop)
    assert cache.lacking(CLUSTER_PODS).keys() == {dns}
    cache.listed(CLUSTER_PODS, ALL)
    assert not cache.lacking(CLUSTER_PODS), "all of it is more than enough"
    cache.unlisted(CLUSTER_PODS, ALL)
    since = cache.lacking(CLUSTER_PODS)[dns]
    cache.need(CLUSTER_PODS, [dns, Extent("bank")])
    assert cache.lacking(CLUSTER_PODS)[dns] == since, "for as long as it is needed"


def test_the_first_listing_is_over_when_every_kind_was_listed_and_complete_when_what_is_needed_was(
    cache: Cache,
) -> None:
    for kind in (kind for kind in KINDS if not kind.partial):
        assert not cache.synced and not cache.complete
        cache.listed(kind)
    assert cache.synced and cache.complete and not cache.is_listed(CLUSTER_PODS)
    cache.need(CLUSTER_PODS, [Extent("shop")])
    assert cache.synced and not cache.complete, "from the very moment it is needed"
    cache.listed(CLUSTER_PODS, Extent("shop"))
    assert cache.complete
