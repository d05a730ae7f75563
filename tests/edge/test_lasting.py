"""Parts that serve for as long as the agent lives go on after what nobody thought of."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from manifested import folder, pod, watching
from spaces import LOOPBACK, Ear, Space
from store_parts import containers, entry, opened

from flock.core.errors import StoreFailure
from flock.core.manifest import Manifest, parse_manifest
from flock.edge import manifests
from flock.edge.kernel import threads
from flock.edge.kernel.monitor import Event
from flock.edge.kernel.threads import Kernel
from flock.edge.netlink import route as r
from looping import looped

__all__ = ["folder"]  # a fixture


@looped
async def test_an_event_that_is_not_taken_well_does_not_end_the_monitor(node: Space) -> None:
    async with Ear(node) as ear:
        well = ear.monitor._on_event

        def badly(_: Event) -> None:
            ear.monitor._on_event = well
            raise ValueError("what is this?")

        ear.monitor._on_event = badly
        node.netlink.run([r.set_alias(LOOPBACK, "first")])
        await ear.until(lambda: ear.overruns == 1)
        assert await ear.listen() == []


@looped
async def test_a_mistake_while_the_state_file_is_written_fails_its_callers_and_nobody_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as store:
        with monkeypatch.context() as broken:
            broken.setattr(store._disk, "commit", lambda *_, **__: 1 / 0)
            with pytest.raises(StoreFailure):
                await store.put(entry("a"))
        await store.put(entry("b"))
        assert containers(tmp_path) == ["b"] and not store.last_error


@looped
async def test_a_mistake_about_one_manifest_concerns_that_file_alone(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mistaken(data: bytes, **how: Any) -> Manifest:
        assert b"two" not in data
        return parse_manifest(data, **how)

    (folder / "a.yaml").write_text(pod("a"))
    async with watching(folder) as known:
        with monkeypatch.context() as broken:
            broken.setattr(manifests, "parse_manifest", mistaken)
            (folder / "a.yaml").write_text(pod("a", label="two"))
            (folder / "b.yaml").write_text(pod("b"))
            await known.quiet()
        assert known.labels() == {"a": "x", "b": "x"}
        assert "cannot be understood" in str(known.problems)
        (folder / "a.yaml").write_text(pod("a", label="three"))
        await known.quiet()
        assert known.labels()["a"] == "three" and not known.problems


@looped
async def test_a_queue_of_notices_that_fails_is_made_anew(folder: Path) -> None:
    async with watching(folder) as known:
        assert known.feeder._inotify is not None
        spoiled = os.open(os.devnull, os.O_RDONLY)
        os.dup2(spoiled, known.feeder._inotify.fileno())  # whatever is asked of it is refused
        os.close(spoiled)
        (folder / "a.yaml").write_text(pod("a"))
        known.feeder.refresh()
        await known.news()
        assert known.labels() == {"a": "x"}
        (folder / "b.yaml").write_text(pod("b"))
        await known.news()
        assert known.labels() == {"a": "x", "b": "x"}


def test_work_that_the_kernel_does_not_finish_is_shown_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LONG", 0.1)

    async def test() -> None:
        kernel, answered = Kernel(sysctl=Path("/proc/sys/net")), threading.Event()
        try:
            assert not kernel.stuck
            work = kernel._slow.run(answered.wait, 60)
            while not kernel.stuck:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.02)
            assert "does not answer: kernel for" in kernel.stuck
            answered.set()
            await work
            assert not kernel.stuck
        finally:
            answered.set()
            kernel.close()

    asyncio.run(asyncio.wait_for(test(), 20))
