"""BIRD runs what the NodeConfig says: the file is kept, what is wrong with it is told, a BIRD that comes takes it up.

BIRD is real, in a namespace of its own; what is known of node and configuration is the test's."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from flock.agent import routing as module
from flock.agent.happened import Happened
from flock.agent.routing import Routing
from flock.core.birdconf import protocol_name
from flock.core.birdreplies import Session
from flock.core.facts import NodeFacts
from flock.core.happenings import Share
from flock.core.nodeconfig import parse_node_config
from flock.edge.bird import room
from flock.edge.cache import Cache
from flock.edge.manifests import ManifestFeeder
from harness import Node

SOON = 0.01
OLD = "# somebody's\nrouter id 192.0.2.1;\nprotocol device device1 { }\n"


def configured(**peer: Any) -> Any:
    peers = [{"name": "tor", "address": "2001:db8:ffff::1", "asn": 64600, **peer}]
    spec = {"cidr6": ["2001:db8:1::/64"], "bgp": {"asn": 64601, "peers": peers}}
    return parse_node_config(
        {
            "apiVersion": "flock.fritzlab.net/v1alpha1",
            "kind": "NodeConfig",
            "metadata": {"name": "n1"},
            "spec": {"routerID": "192.0.2.1", **spec},
        }
    )


class Place:
    """Directories, what is known, and a BIRD that comes and goes."""

    def __init__(self, node: Node) -> None:
        self.run_dir, self.netns = node.run_dir, node.netns
        self.directory = node.directory / "bird"
        self.conf = self.directory / "bird.conf"
        self.known: Any = SimpleNamespace(facts=NodeFacts(node="n1"), config=None, announced_config=None)
        self._bird: subprocess.Popen[bytes] | None = None

    def configure(self, **peer: Any) -> None:
        self.known.config = self.known.announced_config = configured(**peer)

    def start_bird(self, socket: Path | None = None) -> None:
        command = ["bird", "-f", "-R", "-c", str(self.conf), "-s", str(socket or self.run_dir / "bird.ctl")]
        self._bird = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.netns}", *command], stderr=subprocess.DEVNULL
        )

    def stop_bird(self) -> None:
        if self._bird is not None:
            self._bird.kill()
            self._bird.wait()
            self._bird = None

    def routing(self, happened: Happened | None = None) -> Routing:
        known, feeder = self.known, ManifestFeeder(Cache(node="n1"), self.directory)
        return Routing(
            configured=known,
            aggregates=known,
            preparing=known,
            feeder=feeder,
            happened=happened or Happened(),
            bird_dir=self.directory,
            run_dir=self.run_dir,
        )

    def run(self, story: Callable[[Routing], Awaitable[None]]) -> None:
        async def within() -> None:
            routing = self.routing()
            running = asyncio.create_task(routing.run())
            try:
                await until(lambda: routing.runs)
                await story(routing)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

        asyncio.run(within())


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(SOON)
    raise AssertionError("it did not come to that")


@pytest.fixture
def place(fresh: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(room, "SOONEST", SOON)
    monkeypatch.setattr(module, "FIRST_RETRY", SOON)
    place = Place(fresh)
    yield place
    place.stop_bird()


def test_before_a_configuration_is_known_there_is_a_file_and_one_that_is_there_stays(place: Place) -> None:
    async def look() -> None:
        assert await place.routing().reconcile()

    asyncio.run(look())
    assert "protocol device" in place.conf.read_text()
    place.conf.write_text(OLD)
    asyncio.run(look())
    assert place.conf.read_text() == OLD


def test_a_bird_that_comes_takes_up_what_changed_while_it_was_away(place: Place) -> None:
    async def story(routing: Routing) -> None:
        place.start_bird()
        await until(lambda: not routing.bird_problem)
        place.stop_bird()
        await until(lambda: routing.bird_problem)
        place.configure()
        routing.trigger()
        await until(lambda: "bgp_tor" in place.conf.read_text())
        place.start_bird()
        await until(lambda: not routing.bird_problem)
        assert [row["peer"] for row in await routing.peers()] == ["tor"]

    place.run(story)


def test_a_bird_that_comes_is_noticed_and_need_not_be_asked_for_again_and_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "SOONEST", 3600.0)
    elsewhere = place.run_dir / "elsewhere" / "bird.ctl"
    elsewhere.parent.mkdir()

    def answers() -> bool:
        return (
            subprocess.run(["birdc", "-s", elsewhere, "show status"], capture_output=True, check=False).returncode == 0
        )

    async def story(routing: Routing) -> None:
        await until(lambda: "does not answer" in routing.bird_problem)
        place.start_bird(elsewhere)
        await until(answers)
        elsewhere.rename(place.run_dir / "bird.ctl")
        await until(lambda: not routing.bird_problem)

    place.run(story)


def test_a_burst_of_changes_costs_two_reloads_and_equal_text_none(place: Place) -> None:
    async def story(routing: Routing) -> None:
        place.start_bird()
        await until(lambda: not routing.bird_problem)
        before = routing.reloads
        for number in range(10):
            place.configure(asn=64610 + number)
            routing.trigger()
            await asyncio.sleep(SOON)
        await until(lambda: "64619" in place.conf.read_text() and routing.reloads == before + 2)
        runs = routing.runs
        routing.trigger()
        await until(lambda: routing.runs > runs)
        assert routing.reloads == before + 2

    place.run(story)


def test_a_password_that_cannot_be_read_keeps_the_old_file_until_it_can(place: Place, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    place.directory.mkdir(exist_ok=True)
    place.conf.write_text(OLD)
    place.configure(passwordFile=str(secret))

    async def story(routing: Routing) -> None:
        assert "password" in routing.problem and place.conf.read_text() == OLD
        place.start_bird()
        await until(lambda: not routing.bird_problem)  # it runs the old one
        secret.write_text("open sesame")
        await until(lambda: "open sesame" in place.conf.read_text())
        await until(lambda: not routing.problem)

    place.run(story)


def test_a_directory_that_cannot_be_made_is_told_and_tried_again(place: Place) -> None:
    place.directory.rmdir()
    place.directory.touch()

    async def story(routing: Routing) -> None:
        assert routing.problem
        place.directory.unlink()
        await until(place.conf.exists)
        await until(lambda: not routing.problem)

    place.run(story)


def test_a_file_that_is_no_text_is_replaced_once_a_configuration_is_known(place: Place) -> None:
    """A disk may leave anything behind."""
    place.directory.mkdir(exist_ok=True)
    place.conf.write_bytes(b"\xff\xfe\x00")

    async def look() -> None:
        routing = place.routing()
        assert await routing.reconcile() and place.conf.read_bytes() == b"\xff\xfe\x00"
        place.configure()
        assert await routing.reconcile() and "bgp_tor" in place.conf.read_text()

    asyncio.run(look())


def test_a_session_is_told_when_it_comes_and_when_it_goes_and_not_that_it_is_not_there_yet(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened = Happened()
    place.configure()
    routing = place.routing(happened)
    seen = Session(name=protocol_name("tor"), kind="BGP", up=False, state="Connect", since="")

    def told(**state: Any) -> list[str]:
        async def sessions() -> list[Session]:
            return [msgspec.structs.replace(seen, **state)]

        monkeypatch.setattr(routing, "sessions", sessions)
        before = len(happened.after(Share.NODE, 0)[0])
        asyncio.run(routing.peers())
        return [str(entry.what) for entry in happened.after(Share.NODE, before)[0]]

    assert told() == []
    assert told(up=True, state="Established") == ["session up peer=tor"]
    assert told(up=True, state="Established") == []
    lost = told(up=False, state="Active", last_error="Hold timer expired")
    assert lost == ["session down peer=tor state='Active' problem='Hold timer expired'"]
    assert told() == []
