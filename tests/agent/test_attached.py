"""Who is attached: one owner of names, links and records, which the verbs change and everybody may ask."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from flock.agent.attached import Attached
from flock.core.errors import StoreFailure
from flock.core.model import Allocation
from flock.core.naming import host_interface
from flock.edge.store import Store

COLLIDING = ("c693596", "c1170850")  # their host interfaces would have one name


def entry(container: str, *, state: str = "committed", interface: str = "") -> Allocation:
    raw = {
        "container_id": container,
        "namespace": "shop",
        "pod_name": container,
        "owner_uid": "",
        "ip4": "192.0.2.7",
        "state": state,
        "allocated_at": "2026-01-01T00:00:00Z",
        "host_interface": interface or host_interface(container),
    }
    return msgspec.convert(raw, Allocation)


def told(directory: Path, story: Callable[[Attached], Awaitable[None]]) -> None:
    """A story about the containers of one state directory, from one start of the agent to its end."""

    async def whole() -> None:
        store = Store(directory, node="n1", cooldown=120, half_done=directory / "pending")
        attached = Attached(store)
        attached.load()
        try:
            await story(attached)
        finally:
            await store.close()

    asyncio.run(whole())


def test_a_container_is_known_by_its_interface_from_the_moment_work_on_it_begins(tmp_path: Path) -> None:
    async def story(attached: Attached) -> None:
        a = entry("a", state="pending")
        attached.begin(a)
        assert attached.owner_of(a.host_interface) == "a" and attached.of("a") == a and attached.entries == (a,)
        assert not attached.has_link(a.host_interface)
        await attached.record(entry("a"), link=7)
        assert attached.links == {a.host_interface: 7} and attached.interface_at(7) == a.host_interface
        assert (attached.pod_on(a.host_interface), attached.pod_at(7)) == ("shop/a", "shop/a")
        attached.begin(a)
        assert not attached.links and attached.interface_at(7) is None, "events about it are the verb's own now"
        await attached.forget(a, released=())
        assert attached.owner_of(a.host_interface) is None and not attached.entries

    told(tmp_path, story)


def test_what_begins_and_cannot_be_noted_changes_nothing(tmp_path: Path) -> None:
    async def story(attached: Attached) -> None:
        (tmp_path / "pending").rmdir()
        with pytest.raises(StoreFailure):
            attached.begin(entry("a", state="pending"))
        assert attached.owner_of(host_interface("a")) is None and not attached.entries

    told(tmp_path, story)


def test_what_cannot_be_forgotten_keeps_its_name(tmp_path: Path) -> None:
    async def story(attached: Attached) -> None:
        await attached.record(entry("a"), link=7)
        (tmp_path / "allocations.json").unlink()
        (tmp_path / "allocations.json").mkdir()  # nothing can be renamed over it
        with pytest.raises(StoreFailure):
            await attached.forget(entry("a"), released=())
        assert attached.owner_of(host_interface("a")) == "a" and attached.of("a") == entry("a")
        (tmp_path / "allocations.json").rmdir()

    told(tmp_path, story)


def test_names_are_known_again_after_a_restart_and_links_once_the_kernel_was_looked_at(tmp_path: Path) -> None:
    async def before(attached: Attached) -> None:
        await attached.record(entry("a"), link=7)
        attached.begin(entry("b", state="pending"))

    async def after(attached: Attached) -> None:
        assert attached.owner_of(host_interface("a")) == "a" and attached.owner_of(host_interface("b")) == "b"
        assert not attached.links
        attached.note_links({7: host_interface("a"), 8: host_interface("b"), 9: "flock00000000"})
        assert attached.links == {host_interface("a"): 7}, "not what is half done, nor what nobody owns"

    told(tmp_path, before)
    told(tmp_path, after)


def test_a_link_made_anew_replaces_the_old_one_whenever_the_kernel_tells(tmp_path: Path) -> None:
    async def story(attached: Attached) -> None:
        name = host_interface("a")
        await attached.record(entry("a"), link=7)
        await attached.record(entry("a"), link=8)
        attached.drop_link(7)  # told late
        assert attached.links == {name: 8} and attached.interface_at(7) is None
        assert attached.pod_at(7) == "7", "a link of nobody is called by its number"
        attached.note_links({7: name})  # so does an observation that was under way
        assert attached.links == {name: 8}
        attached.note_links({9: name})
        assert attached.links == {name: 9} and attached.interface_at(8) is None
        attached.drop_link(9)
        assert not attached.links and attached.owner_of(name) == "a"

    told(tmp_path, story)


def test_containers_whose_names_hash_alike_have_interfaces_of_their_own(tmp_path: Path) -> None:
    async def story(attached: Attached) -> None:
        one, other = COLLIDING
        assert host_interface(one) == host_interface(other) == attached.name_for(one)
        attached.begin(entry(one, state="pending"))
        assert attached.name_for(one) == host_interface(one), "its own name is no obstacle"
        second = attached.name_for(other)
        assert second == host_interface(other, 1)
        await attached.record(entry(other, interface=second))
        assert (attached.owner_of(host_interface(one)), attached.owner_of(second)) == (one, other)

    told(tmp_path, story)


def test_whoever_works_on_a_container_does_so_alone_and_is_seen(tmp_path: Path) -> None:
    async def story(attached: Attached) -> None:
        seen: list[str] = []

        async def work(name: str) -> None:
            async with attached.hold("a"):
                seen.append(name)
                await asyncio.sleep(0)
                seen.append(name)

        async with asyncio.TaskGroup() as group:
            group.create_task(work("one"))
            group.create_task(work("two"))
            await asyncio.sleep(0)
            assert attached.is_busy("a") and not attached.is_busy("b")
        assert seen == ["one", "one", "two", "two"] and not attached.is_busy("a")

    told(tmp_path, story)


def test_what_is_on_record_may_be_walked_while_it_changes(tmp_path: Path) -> None:
    async def story(attached: Attached) -> None:
        for name in ("a", "b"):
            await attached.record(entry(name))
        for known in attached.entries:
            await attached.forget(known, released=())
        assert not attached.entries

    told(tmp_path, story)
