"""What the agent believes about its node: taken in as a whole, or not at all; what is refused changes nothing."""

import asyncio
from types import SimpleNamespace
from typing import Any

from looking import addresses_of

from flock.agent.nodeview import NodeView
from flock.core.facts import NodeFacts
from harness import Node, eventually


class SlowKernel:
    """A kernel that answers only when it is let: between a question and its answer anything may happen."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.let = asyncio.Event()
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


def view_of(kernel: Any, **objects: Any) -> tuple[NodeView, Any]:
    source: Any = SimpleNamespace(node=None, templates=(), node_config=None, **objects)
    return NodeView(node="n1", source=source, kernel=kernel), source


def test_nobody_sees_a_new_configuration_with_the_old_mtu() -> None:
    async def story() -> None:
        kernel = SlowKernel()
        kernel.let.set()
        view, source = view_of(kernel)
        source.node_config = config(mtu=1400)
        await view.take_in()
        assert view.mtu == 1400
        kernel.let.clear()
        source.node_config = config(cidr6=["2001:db8:1::/64"])  # the MTU is the uplink's now
        first, second = asyncio.create_task(view.take_in()), asyncio.create_task(view.take_in())
        await kernel.asked.wait()
        await asyncio.sleep(0)
        assert view.config is not None
        assert (bool(view.config.cidr6), view.mtu) == (False, 1400), "old with old, or new with new"
        assert not second.done(), "an ADD that comes meanwhile waits for the rest of it"
        kernel.let.set()
        await asyncio.gather(first, second)
        assert (bool(view.config.cidr6), view.mtu) == (True, 1500)

    asyncio.run(story())


def test_a_look_at_the_uplink_that_is_overtaken_by_a_new_configuration_changes_nothing() -> None:
    async def story() -> None:
        kernel = SlowKernel()
        kernel.let.set()
        view, source = view_of(kernel)
        source.node_config = config()
        await view.take_in()
        kernel.let.clear()
        kernel.asked.clear()
        looking = asyncio.create_task(view.refresh())
        await kernel.asked.wait()
        source.node_config = config(mtu=1400)
        taking = asyncio.create_task(view.take_in())
        await asyncio.sleep(0)
        kernel.let.set()
        await asyncio.gather(looking, taking)
        assert view.mtu == 1400

    asyncio.run(story())


def test_an_input_that_could_not_be_understood_is_refused_and_not_forgotten() -> None:
    """Also what nobody thought of: the second look at the same input says the same as the first."""

    async def story() -> None:
        kernel = SlowKernel()
        kernel.let.set()
        view, source = view_of(kernel)
        source.node_config = config()
        await view.take_in()
        nested: Any = 1400
        for _ in range(5000):
            nested = {"mtu": nested}
        source.node_config = config(bgp=nested)
        for _ in range(2):
            await view.take_in()
            assert view.config is not None and "RecursionError" in view.config_problem
        source.node_config = config(mtu=1400)
        await view.take_in()
        assert view.mtu == 1400 and not view.config_problem

    asyncio.run(story())


def test_a_pod_cidr_that_is_none_is_shown_and_the_last_good_configuration_serves(fresh: Node) -> None:
    fresh.write("nodeconfig", {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig",
                               "metadata": {"name": "n1"}, "spec": {"mtu": 1400}})  # fmt: skip

    def node_object(cidr: str) -> None:
        fresh.write("node", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
                             "spec": {"podCIDRs": [cidr]}})  # fmt: skip

    node_object("192.0.2.0/24")
    fresh.start()
    node_object("192.0.2.0/33")
    eventually(lambda: "Node spec.podCIDRs" in " ".join(fresh.ask("status")["degraded"]), what="the refusal is shown")
    assert addresses_of(fresh.pod("a"))[0].startswith("192.0.2.")
    node_object("198.51.100.0/24")
    eventually(lambda: not fresh.ask("status")["degraded"] or "podCIDRs" not in str(fresh.ask("status")["degraded"]))
    assert addresses_of(fresh.pod("b"))[0].startswith("198.51.100.")
