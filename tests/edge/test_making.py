"""Links of pods that are begun beside what has to be done before they come up."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from spaces import Space

from flock.core.errors import FlockError
from flock.core.model import Allocation
from flock.core.naming import format_mac, host_interface, pod_mac
from flock.core.whose import Identity
from flock.edge.boot import boot_id
from flock.edge.kernel import making as module
from flock.edge.kernel.making import Begun, Making
from flock.edge.kernel.netns import own_netns
from flock.edge.kernel.podlink import Claimed
from looping import looped


@pytest.fixture
def making(node: Space) -> Iterator[Making]:
    made: Making = node.open(lambda: Making(sysctl=Path("/proc/sys/net")))
    yield made
    made.thread.close()


def entry(pod: Space, container: str = "c1") -> Allocation:
    return Allocation(
        container_id=container,
        namespace="default",
        pod_name="web",
        owner_uid="",
        ip4="192.0.2.7",
        state="pending",
        allocated_at="",
        netns=f"/run/netns/{pod.name}",
        ifname="eth0",
        host_interface=host_interface(container),
        mac=format_mac(pod_mac(container)),
        mtu=1500,
    )


def nobody(_: str) -> bool:
    return False


def everybody(_: str) -> bool:
    return True


def begin(making: Making, allocation: Allocation, claimed: Claimed = nobody) -> Begun:
    begun = making.begin(allocation, claimed)
    assert begun is not None
    return begun


@looped
async def test_the_namespace_is_told_before_the_link_is_made_and_is_the_finished_links(
    making: Making, pod: Space
) -> None:
    begun = begin(making, entry(pod))
    order: list[str] = []
    begun.identified.add_done_callback(lambda _: order.append("identified"))
    begun.done.add_done_callback(lambda _: order.append("done"))
    link = await making.attach(entry(pod), begun, announced=(), claimed=nobody)
    assert order == ["identified", "done"]
    told = begun.identified.result()
    assert told == link.netns
    there = pod.open(own_netns)
    there.close()
    assert told == Identity(there.id, pod.netlink.netns_cookie, boot_id())


@looped
async def test_a_link_that_fails_after_its_namespace_was_told_raises_and_one_in_none_tells_nothing(
    making: Making, pod: Space, caplog: pytest.LogCaptureFixture
) -> None:
    await making.attach(entry(pod), begin(making, entry(pod)), announced=(), claimed=nobody)
    taken = entry(pod, "c2")
    nowhere = msgspec.structs.replace(taken, netns="/nowhere")
    for allocation, told in ((taken, True), (nowhere, False)):
        begun = begin(making, allocation, everybody)
        with pytest.raises(FlockError):
            await making.attach(allocation, begun, announced=(), claimed=everybody)
        assert begun.identified.cancelled() is not told
    del begun
    gc.collect()
    assert "never retrieved" not in caplog.text


@looped
async def test_who_gives_up_is_told_no_namespace_any_more(making: Making, pod: Space) -> None:
    begun = begin(making, entry(pod))
    await making.give_up(begun)
    assert begun.identified.cancelled()
    assert begun.made  # for whoever deletes links


@looped
async def test_who_is_cancelled_while_the_link_is_made_hears_so_when_nobody_makes_it_and_is_told_no_namespace(
    making: Making, pod: Space
) -> None:
    """Who undoes it would else do so before it is made."""
    held = threading.Event()
    making.thread.run(held.wait)
    begun = begin(making, entry(pod))
    attaching = asyncio.create_task(making.attach(entry(pod), begun, announced=(), claimed=nobody))
    await asyncio.sleep(0)
    for _ in range(3):
        attaching.cancel()
        await asyncio.sleep(0)
    assert not attaching.done()
    held.set()
    await asyncio.wait([attaching])
    assert attaching.cancelled() and begun.identified.cancelled() and not making.thread.load


@looped
async def test_of_many_that_are_begun_the_rest_waits_for_its_rules(
    making: Making, pod: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEGUN", 1)
    begun = begin(making, entry(pod))
    assert making.begin(entry(pod, "c2"), nobody) is None
    await making.give_up(begun)
    assert (await making.attach(entry(pod), None, announced=(), claimed=nobody)).netns.netns_cookie
    await making.give_up(begin(making, entry(pod)))
