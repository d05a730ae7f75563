"""The state file follows the journal by itself, and is alone after a clean stop."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from looking import addresses_of, assert_sound, undisturbed

from flock.agent.folding import Folding
from flock.core.faults import Faults
from flock.core.model import Allocation
from flock.edge import statedir
from flock.edge.store import Store
from harness import Node, eventually
from looping import looped


def names(directory: Path) -> set[str]:
    path = directory / "allocations.json"
    return {a["container_id"] for a in json.loads(path.read_text())["allocations"]} if path.exists() else set()


def entry(name: str) -> Allocation:
    return Allocation(container_id=name, namespace="n", pod_name=name, owner_uid="", state="committed", allocated_at="")


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.01)


@asynccontextmanager
async def folding(directory: Path) -> AsyncIterator[tuple[Store, Folding]]:
    store = Store(directory, node="n1", cooldown=120, half_done=directory / "pending")
    folding = Folding(store)
    store.load()
    running = asyncio.create_task(folding.run())
    yield store, folding
    running.cancel()
    await store.close()


@looped
async def test_the_file_follows_what_was_answered(tmp_path: Path) -> None:
    async with folding(tmp_path) as (store, _):
        await store.put(entry("first"))
        await until(lambda: (tmp_path / "allocations.journal").exists())
        for name in "abc":
            await store.put(entry(name))
            await until(lambda name=name: name in names(tmp_path))  # type: ignore[misc]
        await store.forget("a", released=())
        await until(lambda: "a" not in names(tmp_path))


@looped
async def test_many_changes_are_folded_together(tmp_path: Path) -> None:
    async with folding(tmp_path) as (store, folder):
        await store.put(entry("first"))
        await until(lambda: folder.runs >= 2)
        before = folder.runs
        for n in range(30):
            await store.put(entry(f"c{n}"))
        await until(lambda: len(names(tmp_path)) == 31)
        assert folder.runs - before < 30


@looped
async def test_a_file_that_cannot_be_written_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with folding(tmp_path) as (store, folder):
        await store.put(entry("first"))
        await store.fold()
        faults = Faults()
        faults.arm("store.sync=EIO@1-2")
        monkeypatch.setattr(statedir, "faults", faults)
        await store.put(entry("a"))
        await until(lambda: bool(folder.problem))
        assert store.last_error and "a" in store.entries
        await until(lambda: not folder.problem)
        assert not store.last_error and names(tmp_path) == {"first", "a"}


def test_an_agent_s_file_is_complete_soon_and_alone_after_it_stopped(node: Node) -> None:
    node.pod("a")
    journal = node.state_dir / "allocations.journal"
    eventually(journal.exists, what="a journal is made")
    node.pod("b")
    eventually(lambda: names(node.state_dir) == {"a", "b"}, what="the file follows")
    node.cni("DEL", "a")
    node.stop()
    assert names(node.state_dir) == {"b"} and not journal.exists()


def test_an_agent_that_was_killed_has_folded_as_soon_as_it_serves_again(node: Node) -> None:
    node.pod("a")
    eventually((node.state_dir / "allocations.journal").exists, what="a journal is made")
    results = [node.pod(name) for name in ("b", "c")]
    node.cni("DEL", "a")
    node.kill()
    assert set(node.allocations()) == {"b", "c"}
    node.start()
    assert names(node.state_dir) == {"b", "c"}
    assert [node.cni("ADD", name) for name in ("b", "c")] == results


def test_a_version_that_knows_no_journal_gives_out_no_address_of_a_pod_that_only_the_journal_has(node: Node) -> None:
    """It finds the file without its last second, and the pod's link in the kernel."""
    node.pod("a")
    journal = node.state_dir / "allocations.journal"
    eventually(journal.exists, what="a journal is made")
    eventually(lambda: "a" in names(node.state_dir), what="the file has it")
    before = (node.state_dir / "allocations.json").read_bytes()
    result = node.pod("b")
    node.kill()
    (node.state_dir / "allocations.json").write_bytes(before)
    journal.unlink()
    with undisturbed(node, *addresses_of(result)):
        node.start()
        assert set(node.allocations()) == {"a", "b"}
        assert not set(addresses_of(node.pod("c"))) & set(addresses_of(result))
    assert addresses_of(node.cni("ADD", "b")) == addresses_of(result)
    assert_sound(node)
