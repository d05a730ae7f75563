"""A node is prepared for its configuration before a pod is attached by it; what stands in the way is shown and tried
again."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from telling import tell, told

from flock.agent import preparing
from flock.agent.configured import Configured
from flock.agent.happened import Happened
from flock.agent.preparing import Preparing
from flock.core.errors import TryAgain
from flock.core.facts import NodeFacts
from flock.edge.kernel.threads import Kernel
from harness import Node, run
from namespaces import within

SWITCHES = {"ipv4/ip_forward": "0", "ipv6/conf/all/forwarding": "0", "ipv6/conf/eth0/accept_ra": "1"}


class SlowKernel:
    """A kernel that answers only when it is let: between a question and its answer anything may happen."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.let = asyncio.Event()
        self.let.set()
        self.uplink = 1500

    async def facts(self, node: str) -> NodeFacts:
        return NodeFacts(node=node)

    async def uplink_mtu(self, _: Any) -> int:
        now = self.uplink
        self.asked.set()
        await self.let.wait()
        return now

    async def enable_forwarding(self, **_: bool) -> list[str]:
        return []


def config(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n1"}, "spec": {"cidr4": ["192.0.2.0/24"], **spec}}


def node_with(kernel: Any, own: Any = None) -> tuple[Preparing, Any]:
    cache = told(own)
    return Preparing(configured=Configured(cache=cache, happened=Happened()), kernel=kernel), cache


def test_nobody_is_attached_by_a_new_configuration_with_the_old_mtu() -> None:
    async def story() -> None:
        kernel = SlowKernel()
        node, cache = node_with(kernel, config(mtu=1400))
        assert (await node.prepared()).mtu == 1400
        kernel.let.clear()
        tell(cache, config(cidr6=["2001:db8:1::/64"]))  # the MTU is the uplink's now
        first, second = asyncio.create_task(node.prepared()), asyncio.create_task(node.prepared())
        await kernel.asked.wait()
        await asyncio.sleep(0)
        assert node.mtu == 1400 and not second.done(), "an ADD that comes meanwhile waits for the rest of it"
        kernel.let.set()
        for prepared in await asyncio.gather(first, second):
            assert (bool(prepared.config.cidr6), prepared.mtu) == (True, 1500)

    asyncio.run(story())


def test_a_look_at_the_uplink_that_is_overtaken_by_a_new_configuration_changes_nothing() -> None:
    async def story() -> None:
        kernel = SlowKernel()
        node, cache = node_with(kernel, config())
        await node.prepared()
        kernel.let.clear()
        kernel.asked.clear()
        looking = asyncio.create_task(node.reconcile())
        await kernel.asked.wait()
        tell(cache, config(mtu=1400))
        taking = asyncio.create_task(node.prepared())
        await asyncio.sleep(0)
        kernel.let.set()
        await looking
        assert (await taking).mtu == node.mtu == 1400

    asyncio.run(story())


def test_without_a_configuration_no_pod_is_attached_and_the_reason_is_its_absence() -> None:
    async def story() -> None:
        node, cache = node_with(SlowKernel())
        with pytest.raises(TryAgain, match="no NodeConfig named n1"):
            await node.prepared()
        tell(cache, config())
        assert (await node.prepared()).mtu == 1500

    asyncio.run(story())


# --- against the kernel, with switches that may be read-only ---


@pytest.fixture
def switches(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with a node's switches in it."""
    directory = tmp_path / "sysctl"
    directory.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", directory)
    try:
        for name, value in SWITCHES.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(value)
        yield directory
    finally:
        run("umount", directory)


@pytest.fixture
def kernel(fresh: Node, switches: Path) -> Iterator[Kernel]:
    made = within(f"/run/netns/{fresh.netns}", lambda: Kernel(sysctl=switches))
    yield made
    made.close()


@contextlib.asynccontextmanager
async def running(node: Preparing) -> Any:
    task = asyncio.create_task(node.run())
    try:
        async with asyncio.timeout(30):
            yield
    finally:
        task.cancel()


async def until(what: Any) -> None:
    while not what():  # noqa: ASYNC110 - bounded by `running`
        await asyncio.sleep(0.01)


def values(switches: Path) -> dict[str, str]:
    return {name: (switches / name).read_text().strip() for name in SWITCHES}


def test_switches_that_are_read_only_for_a_while_are_the_reason_and_set_as_soon_as_they_can_be(
    switches: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "SPACING", 0.05)

    async def story() -> None:
        node, _ = node_with(kernel, config(cidr6=["2001:db8:1::/64"], mtu=1400))
        heard = asyncio.Event()
        node.subscribe(heard.set)
        run("mount", "-o", "remount,ro", switches)
        with pytest.raises(TryAgain, match=r"accept_ra.*Read-only file system"):
            await node.prepared()
        assert heard.is_set() and "198.18.0.1" in map(str, node.facts.own), "its addresses are known all the same"
        assert await node.differences() == [
            "forwarding: ipv6/conf/all/forwarding is off",
            "forwarding: ipv4/ip_forward is off",
        ]
        async with running(node):
            await asyncio.sleep(0.2)
            assert "Read-only" in node.problem and values(switches) == SWITCHES
            run("mount", "-o", "remount,rw", switches)
            await until(lambda: not node.problem)
        assert values(switches) == dict.fromkeys(SWITCHES, "1") | {"ipv6/conf/eth0/accept_ra": "2"}
        assert (await node.prepared()).mtu == 1400 and not await node.differences()

    asyncio.run(story())


def test_a_switch_that_can_not_be_set_any_more_keeps_pods_out_although_the_node_was_prepared(
    switches: Path, kernel: Kernel
) -> None:
    async def story() -> None:
        node, _ = node_with(kernel, config())
        await node.prepared()
        (switches / "ipv4" / "ip_forward").write_text("0")
        run("mount", "-o", "remount,ro", switches)
        assert not await node.reconcile()
        with pytest.raises(TryAgain, match="ip_forward"):
            await node.prepared()
        run("mount", "-o", "remount,rw", switches)
        await node.reconcile()
        assert (await node.prepared()).config.cidr4

    asyncio.run(story())


def test_an_address_that_comes_and_goes_is_told_and_nothing_else_is(
    fresh: Node, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "SPACING", 0.01)

    async def story() -> None:
        node, _ = node_with(kernel, config())
        told: list[bool] = []
        node.subscribe(lambda: told.append("203.0.113.7" in map(str, node.facts.own)))
        await node.prepared()
        async with running(node):
            for verb in ("add", "del"):
                fresh.ip("addr", verb, "203.0.113.7/32", "dev", "lo")
                before = len(told)
                node.trigger()
                await until(lambda seen=before: len(told) > seen)
        await node.reconcile()
        assert told == [False, True, False]

    asyncio.run(story())
