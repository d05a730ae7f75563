"""A node that goes down is noticed by its units and by its Node object, whichever says so first; BIRD is told."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from flock.agent.departure import Departure
from flock.core.kinds import NODES
from flock.core.model import Metadata, Node, NodeCondition, NodeStatus
from flock.edge import inotify
from flock.edge.bird.room import GOING_DOWN
from flock.edge.cache import Cache
from flock.edge.hostunits import SIGN, HostUnits

SHUTTING_DOWN = Node(
    Metadata(name="n1"),
    status=NodeStatus(conditions=(NodeCondition(type="Ready", status="False", message="node is shutting down"),)),
)


class Host:
    """Its units and BIRD's room as directories, and what is known of its Node; `heard` counts what others were told."""

    def __init__(self, directory: Path) -> None:
        self.units, self.room = directory / "units", directory / "room"
        self.units.mkdir()
        self.up()
        self.known = Cache(node="n1")
        self.heard = 0

    def up(self) -> None:
        (self.units / SIGN).symlink_to("anything")

    def shut_down(self) -> None:
        (self.units / SIGN).unlink()

    @property
    def marked(self) -> bool:
        return (self.room / GOING_DOWN).exists()

    def hear(self) -> None:
        self.heard += 1

    def run(self, story: Callable[[Departure], Awaitable[None]]) -> None:
        async def within() -> None:
            departure = Departure(cache=self.known, units=HostUnits(self.units), bird_room=self.room)
            departure.subscribe(self.hear)
            running = asyncio.create_task(departure.run())
            try:
                await until(lambda: departure.runs)
                await story(departure)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

        asyncio.run(within())


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_shutdown_of_the_host_is_noticed_told_and_taken_back(host: Host) -> None:
    async def story(departure: Departure) -> None:
        assert not departure.begun and not host.marked and not host.heard
        host.shut_down()
        await until(lambda: host.marked)
        assert departure.begun and host.heard == 1
        host.up()
        await until(lambda: not host.marked)
        assert not departure.begun and host.heard == 2

    host.run(story)


def test_a_node_whose_object_says_so_goes_down_as_well(host: Host) -> None:
    async def story(departure: Departure) -> None:
        host.known.put(NODES, ("", "n1"), SHUTTING_DOWN)
        departure.trigger()
        await until(lambda: host.marked)
        assert departure.begun

    host.run(story)


def test_a_host_that_never_showed_the_sign_never_goes_down(host: Host) -> None:
    host.shut_down()

    async def story(departure: Departure) -> None:
        (host.units / "another").touch()
        await departure.reconcile()
        assert not departure.begun

    host.run(story)


def test_what_an_earlier_life_told_goes_when_this_one_knows_better(host: Host) -> None:
    host.room.mkdir()
    (host.room / GOING_DOWN).touch()

    async def story(departure: Departure) -> None:
        assert not host.marked

    host.run(story)


def test_without_notices_it_is_seen_all_the_same(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: inotify.Inotify) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(inotify.Inotify, "__init__", none_left)
    monkeypatch.setattr("flock.agent.departure.UNWATCHED", 0.01)

    async def story(departure: Departure) -> None:
        host.shut_down()
        await until(lambda: host.marked)

    host.run(story)


def test_a_room_that_cannot_be_written_to_is_told_and_tried_again(host: Host) -> None:
    host.room.touch()  # no directory

    async def story(departure: Departure) -> None:
        host.shut_down()
        await until(lambda: departure.problem and departure.begun)  # anycast is withdrawn nevertheless
        host.room.unlink()
        await until(lambda: host.marked)
        assert not departure.problem and host.heard == 1

    host.run(story)
