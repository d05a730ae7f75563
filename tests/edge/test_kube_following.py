"""As many of the cluster's pods are followed as are needed, and those stay known while watches are regrouped."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from feeding import NODE, problems, started, until

from apiserver import ApiServer
from flock.core.kinds import ALL, CLUSTER_PODS, ENDPOINT_SLICES, PODS, Extent, Kind
from flock.edge.cache import Cache, Reader
from flock.edge.kube import following, reflector
from servicing import endpoints

SHOP, BANK, DNS = Extent("shop"), Extent("bank"), Extent(labels="k8s-app=kube-dns")
OWN, ELSEWHERE = "nodeName%3D", "fieldSelector=spec.nodeName%21%3D"  # as a query puts it
Story = Callable[[Cache, Reader], Awaitable[None]]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        for namespace in ("shop", "bank", "kube-system"):
            server.put(pod("a", namespace))
        server.put(pod("dns", "kube-system", **{"k8s-app": "kube-dns"}))
        yield server


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "LONGEST_PAUSE", 0.2)
    monkeypatch.setattr(following, "LINGER", 0.2)


@pytest.fixture
def lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LINGER", 600.0)


def pod(name: str, namespace: str, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n2"}}


def play(server: ApiServer, directory: Path, story: Story) -> None:
    async def run() -> None:
        async with started(server, directory) as (known, _):
            await until(lambda: known.complete, "the first listing")
            await story(known, known.reader(CLUSTER_PODS))

    asyncio.run(run())


async def need(known: Cache, *extents: Extent) -> None:
    known.need(CLUSTER_PODS, extents)
    await until(lambda: known.complete, "what is needed")


def pods(known: Cache) -> set[str]:
    return {"/".join(key) for key in known.table(CLUSTER_PODS)}


def followed(known: Cache, kind: Kind[Any] = CLUSTER_PODS) -> set[str]:
    return {watch.extent for watch in known.watches if watch.kind == kind.name}


def lists(server: ApiServer, path: str) -> list[str]:
    return [asked for asked in server.asked(path) if "watch=true" not in asked and OWN not in asked]


def test_nothing_is_asked_for_that_nobody_needs(server: ApiServer, tmp_path: Path) -> None:
    async def story(known: Cache, _: Reader) -> None:
        await asyncio.sleep(0.1)
        assert not pods(known) and not followed(known) and not lists(server, "/api/v1/pods?")

    play(server, tmp_path, story)


def test_of_a_needed_namespace_all_pods_are_known_and_of_others_none(server: ApiServer, tmp_path: Path) -> None:
    async def story(known: Cache, _: Reader) -> None:
        await need(known, SHOP)
        assert pods(known) == {"shop/a"} and followed(known) == {"shop"}
        server.put(pod("b", "shop"), pod("b", "bank"))
        await until(lambda: pods(known) == {"shop/a", "shop/b"}, "the watch")
        server.delete("Pod", "a", "shop")
        await until(lambda: pods(known) == {"shop/b"}, "the deletion")
        assert not lists(server, "/api/v1/pods?") and not server.asked("/api/v1/namespaces/bank/pods")

    play(server, tmp_path, story)


def test_pods_of_this_node_are_not_told_a_second_time(server: ApiServer, tmp_path: Path) -> None:
    async def story(known: Cache, reader: Reader) -> None:
        await need(known, SHOP)
        reader.changes()
        server.put({**pod("b", "shop"), "spec": {}})
        await until(lambda: pods(known) == {"shop/a", "shop/b"}, "one that is on no node yet")
        server.put({**pod("b", "shop"), "spec": {"nodeName": NODE}})
        await until(lambda: ("shop", "b") in known.table(PODS), "it to be here")
        await until(lambda: pods(known) == {"shop/a"}, "and nowhere else")

    play(server, tmp_path, story)


def test_pods_of_all_namespaces_are_followed_by_their_labels(server: ApiServer, tmp_path: Path) -> None:
    async def story(known: Cache, _: Reader) -> None:
        await need(known, DNS)
        assert pods(known) == {"kube-system/dns"}
        server.put(pod("b", "bank", **{"k8s-app": "kube-dns"}), pod("dns", "kube-system"))
        await until(lambda: pods(known) == {"bank/b"}, "one to gain the label, and one to lose it")

    play(server, tmp_path, story)


def test_lists_by_label_come_from_the_servers_memory_and_never_from_before_what_was_told(
    server: ApiServer, tmp_path: Path
) -> None:
    """An API server has no index of labels: it would read all pods from its disk to find a few."""

    def versions() -> list[int]:
        paths = lists(server, "/api/v1/pods?")
        return [int(path.split("resourceVersion=")[1].split("&")[0]) for path in paths if "limit=" not in path]

    async def story(known: Cache, _: Reader) -> None:
        await need(known, DNS)
        assert versions() == [0]
        server.put(pod("b", "bank", **{"k8s-app": "kube-dns"}))
        await until(lambda: "bank/b" in pods(known), "the watch")
        server.forget("Pod", "dns", "kube-system")
        server.hang_up()
        await until(lambda: pods(known) == {"bank/b"}, "another list")
        assert len(versions()) == 2 and versions()[1] > 0

    play(server, tmp_path, story)


def test_a_pod_that_two_extents_mean_stays_while_one_does(server: ApiServer, tmp_path: Path) -> None:
    async def story(known: Cache, reader: Reader) -> None:
        await need(known, DNS, Extent("kube-system"))
        assert pods(known) == {"kube-system/a", "kube-system/dns"}
        reader.changes()
        server.put(pod("dns", "kube-system", other="label"))
        await until(reader.changes, "the label")
        await need(known, DNS, SHOP)
        await until(lambda: pods(known) == {"shop/a"}, "the rest to be forgotten")

    play(server, tmp_path, story)


def test_what_belongs_to_others_is_dropped_on_arrival_and_found_when_it_is_needed(
    server: ApiServer, tmp_path: Path
) -> None:
    def owners(known: Cache) -> list[str]:
        return sorted(found.service[1] for found in known.table(ENDPOINT_SLICES).values())

    async def story(known: Cache, _: Reader) -> None:
        server.put(*(endpoints(name) for name in ("web", "db", "late")))
        of = "kubernetes.io/service-name"
        shared = Extent(labels=of, owners=(("bank", "db"), ("shop", "web")))
        known.need(ENDPOINT_SLICES, [shared])
        await until(lambda: owners(known) == ["web"], "the list")
        server.put(endpoints("new"), endpoints("web", node="n2"))
        await until(lambda: owners(known) == ["web", "web"], "the watch")
        known.need(ENDPOINT_SLICES, [shared, Extent("shop", f"{of}=late")])
        await until(lambda: owners(known) == ["late", "web", "web"], "what nobody told since")
        another = endpoints("web", node="n2")
        another["metadata"]["labels"][of] = "db"
        server.put(another)
        await until(lambda: owners(known) == ["late", "web"], "one that is another's now to be forgotten")

    play(server, tmp_path, story)


def test_what_is_needed_stays_known_while_all_is_followed_and_when_it_is_not_any_more(
    server: ApiServer, tmp_path: Path
) -> None:
    async def story(known: Cache, reader: Reader) -> None:
        await need(known, SHOP, DNS)
        for _ in range(3):
            reader.changes()
            await need(known, ALL)
            await until(lambda: followed(known) == {""}, "one watch of all")
            assert len(pods(known)) == 4
            await need(known, SHOP, DNS)
            await until(lambda: followed(known) == {"shop", str(DNS)}, "watches of what is needed")
            assert pods(known) == {"shop/a", "kube-system/dns"}
            changed = {key[1:] for key in reader.changes()}
            assert changed == {("bank", "a"), ("kube-system", "a")}, "the others came and went, these did not"

    play(server, tmp_path, story)


def test_nothing_is_let_go_of_before_all_that_is_needed_is_listed(server: ApiServer, tmp_path: Path) -> None:
    async def story(known: Cache, reader: Reader) -> None:
        await need(known, SHOP, BANK)
        reader.changes()
        server.errors[f"/api/v1/pods?{ELSEWHERE}"] = 503
        known.need(CLUSTER_PODS, [ALL])
        await until(lambda: "503" in problems(known), "the trouble")
        await asyncio.sleep(3 * following.LINGER)
        assert known.lacking(CLUSTER_PODS).keys() == {ALL}
        server.put(pod("b", "bank"))
        await until(lambda: "bank/b" in pods(known), "those that are followed to be followed on")
        server.errors.clear()
        await until(lambda: known.complete and followed(known) == {""}, "the list of all")
        assert {key[1:] for key in reader.changes()} == {("bank", "b"), ("kube-system", "a"), ("kube-system", "dns")}

    play(server, tmp_path, story)


def test_one_namespace_that_cannot_be_listed_keeps_no_other_from_being_followed(
    server: ApiServer, tmp_path: Path
) -> None:
    async def story(known: Cache, _: Reader) -> None:
        server.errors["/api/v1/namespaces/bank/pods"] = 403
        known.need(CLUSTER_PODS, [SHOP, BANK])
        await until(lambda: "403" in problems(known) and "shop/a" in pods(known), "one of them")
        assert known.lacking(CLUSTER_PODS).keys() == {BANK}
        server.put(pod("b", "shop"))
        await until(lambda: "shop/b" in pods(known), "its watch")
        server.errors.clear()
        await until(lambda: known.complete, "the other")

    play(server, tmp_path, story)


@pytest.mark.usefixtures("lingering")
def test_who_needs_and_needs_not_by_turns_has_nothing_listed_again_and_again(server: ApiServer, tmp_path: Path) -> None:
    async def story(known: Cache, _: Reader) -> None:
        for _ in range(5):
            await need(known, SHOP)
            await need(known)
        assert len(lists(server, "/api/v1/namespaces/shop/pods?")) == 1 and pods(known) == {"shop/a"}
        for _ in range(5):
            await need(known, ALL)
            await need(known, SHOP, BANK)
        assert len(lists(server, "/api/v1/pods?")) == 1 and not lists(server, "/api/v1/namespaces/bank/pods?")

    play(server, tmp_path, story)


@pytest.mark.usefixtures("lingering")
def test_who_needs_ever_others_has_no_more_watches_kept_than_some(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LINGERING", 2)

    async def story(known: Cache, _: Reader) -> None:
        for number in range(5):
            await need(known, Extent(f"ns{number}"), SHOP)
        await until(lambda: followed(known) == {"shop", "ns4", "ns3", "ns2"}, "the oldest to go")
        await need(known, Extent("ns2"), Extent("ns5"), SHOP)  # what is listed says that all of it was heard
        await need(known, Extent("ns0"), SHOP)
        await until(lambda: followed(known) == {"shop", "ns0", "ns2", "ns5"}, "the longest unneeded to go")
        assert len(lists(server, "/api/v1/namespaces/ns2/pods?")) == 1 and pods(known) == {"shop/a"}

    play(server, tmp_path, story)


@pytest.mark.usefixtures("lingering")
def test_a_watch_for_many_owners_that_is_made_anew_takes_the_place_of_the_old_one(
    server: ApiServer, tmp_path: Path
) -> None:
    async def story(known: Cache, _: Reader) -> None:
        for owners in ((("shop", "a"),), (("shop", "b"),), (("shop", "c"), ("shop", "d"))):
            known.need(ENDPOINT_SLICES, [Extent(owners=owners)])
            await until(lambda: known.complete, "what is needed")
        await until(lambda: followed(known, ENDPOINT_SLICES) == {"of 2"}, "the others to go")

    play(server, tmp_path, story)


def test_a_reflector_that_fails_is_told_of_and_all_are_followed_again(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake of ours in one of them: what is known stays, and is right again after the next list."""
    taken = reflector.Reflector._event

    def failing(self: reflector.Reflector, event: Any) -> None:
        monkeypatch.setattr(reflector.Reflector, "_event", taken)
        raise RuntimeError("a mistake")

    async def story(known: Cache, _: Reader) -> None:
        await need(known, SHOP, BANK)
        await until(lambda: all(watch.up for watch in known.watches), "all watches")
        monkeypatch.setattr(reflector.Reflector, "_event", failing)
        server.put(pod("b", "shop"), pod("b", "bank"))
        await until(lambda: pods(known) == {"shop/a", "shop/b", "bank/a", "bank/b"}, "both")

    server.bookmarks = 60.0
    play(server, tmp_path, story)
