"""A pod's link is gone for whoever waits as soon as the kernel says so, which is long before it answers."""

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from spaces import LOOPBACK, Space, entry, on_the_node, packed, veth

from flock.core.errors import FlockError, KernelRefused
from flock.core.model import Allocation
from flock.core.whose import Identity
from flock.edge.boot import boot_id
from flock.edge.kernel.deleting import Deleting
from flock.edge.kernel.netns import own_netns
from flock.edge.netlink import route as r
from flock.edge.netlink import sieve
from looping import PATIENCE, until


class Held:
    """Threads that stop before a link is deleted, all else of its pod being taken down, or before they say so."""

    def __init__(self, deleting: Deleting, *, at: str, failing: Exception | None = None) -> None:
        """`failing`: what they say then."""
        self._failing = failing
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.rounds: list[list[str | int]] = []
        for _, links in deleting._threads:
            links.delete_links = self._stopping(links.delete_links, at)  # type: ignore[method-assign]

    def _stopping(self, delete_links: Any, at: str) -> Any:
        def stop(where: str) -> None:
            if where == at:
                self.reached.set()
                assert self.go_on.wait(60)

        def deleted(links: list[str | int], *, group: int) -> None:
            self.rounds.append(links)
            stop("before the link")
            delete_links(links, group=group)
            stop("before the answer")
            if self._failing is not None:
                raise self._failing

        return deleted

    async def until_reached(self) -> None:
        await until(self.reached.is_set)


@contextlib.contextmanager
def deleting() -> Iterator[Deleting]:
    made = Deleting(sysctl=Path("/proc/sys/net"))
    try:
        yield made
    finally:
        made.close()


def attached(node: Space, pod: Space, number: int = 0, **fields: Any) -> Allocation:
    """With a link and its route."""
    allocation = msgspec.structs.replace(
        entry(pod, f"c{number}"), ip4=f"192.0.2.{number + 1}", ifname=f"eth{number}", **fields
    )
    index = veth(node, pod, name=allocation.host_interface, peer=allocation.ifname)
    node.netlink.run([r.add_route(r.host_route(packed(allocation.ip4), index=index, protocol=133, metric=20))])
    return allocation


def identity(pod: Space) -> dict[str, Any]:
    there = own_netns()
    there.close()
    return Identity(there.id, pod.netlink.netns_cookie, boot_id())._asdict()


def of_ours(node: Space) -> Mapping[str, Any]:
    return {link["ifname"]: link for link in node.ip("link") if link["ifname"].startswith("flock")}


async def told_all(made: Deleting, node: Space) -> None:
    """Everything that the kernel said until now has been heard, and whoever waited for it has gone on: the kernel says
    one thing more, of nobody's."""
    heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    take = made._notices._take

    def taking(data: bytes) -> None:
        take(data)
        if b"lastword\0" in data and not heard.done():
            heard.set_result(None)

    made._notices._take = taking  # type: ignore[method-assign]
    node.ip("link", "add", "name", "lastword", "type", "bridge")
    node.ip("link", "del", "lastword")
    await heard
    for _ in range(20):
        await asyncio.sleep(0)


@on_the_node
async def test_who_waits_goes_on_when_the_link_is_gone_though_the_kernel_has_not_answered(
    node: Space, pod: Space
) -> None:
    with deleting() as made:
        held = Held(made, at="before the answer")
        await made.delete(attached(node, pod))
        assert not held.go_on.is_set() and made.workers[0].load
        assert not of_ours(node) and pod.netlink.link("eth0") is None
        assert not node.ip("route", "show", "proto", 133)
        held.go_on.set()


@on_the_node
async def test_the_next_round_waits_for_no_answer_either(node: Space, pod: Space) -> None:
    with deleting() as made:
        held = Held(made, at="before the answer")
        doomed = [attached(node, pod, number) for number in range(3)]
        for one in doomed:
            await made.delete(one)
        assert held.rounds == [[one.host_interface] for one in doomed] and not of_ours(node)
        held.go_on.set()


@on_the_node
async def test_where_nothing_is_heard_the_answer_is_good_enough(node: Space, pod: Space) -> None:
    with deleting() as made:
        sieve.only_types(made._notices._socket, [])
        await made.delete(attached(node, pod))
        assert not of_ours(node) and not any(worker.load for worker in made.workers)


@on_the_node
async def test_what_the_kernel_tells_of_many_is_heard_though_the_loop_has_other_things_to_do(
    node: Space, pod: Space
) -> None:
    with deleting() as made:
        doomed = [attached(node, pod, number) for number in range(200)]
        held = Held(made, at="before the answer")
        waits = [asyncio.create_task(made.delete(one)) for one in doomed]
        while not held.reached.is_set():
            await asyncio.sleep(0)
            if len(held.rounds) == 1:
                held.reached.wait(60)  # the loop has
        await asyncio.wait(waits, timeout=PATIENCE / 2)
        heard = all(wait.done() for wait in waits)
        held.go_on.set()
        await asyncio.gather(*waits)
        assert heard


@on_the_node
async def test_a_link_that_is_not_there_is_gone(node: Space, pod: Space) -> None:
    with deleting() as made:
        there, absent = attached(node, pod), entry(pod, "c9")
        await asyncio.gather(made.delete(there), made.delete(absent))
        await made.delete(absent)
        assert not of_ours(node)


@on_the_node
async def test_many_go_together_and_nobody_elses_goes_with_them(node: Space, pod: Space) -> None:
    with deleting() as made:
        held = Held(made, at="")
        doomed = [attached(node, pod, number) for number in range(40)]
        stays = attached(node, pod, 40)
        await asyncio.gather(*map(made.delete, doomed))
        assert len(held.rounds) <= 2
        assert set(of_ours(node)) == {stays.host_interface} and pod.link("eth40").up


@pytest.mark.parametrize("others", [0, 3], ids=["alone", "in a group"])
@on_the_node
async def test_who_waits_does_not_go_on_because_somebody_else_deleted_the_link(
    node: Space, pod: Space, others: int
) -> None:
    """The deletion is still to come, by name: it would take the link that the container's next ADD makes."""
    with deleting() as made:
        beside = [attached(node, pod, 1 + number) for number in range(others)]
        lost = attached(node, pod)
        held = Held(made, at="before the link")
        waits = [asyncio.create_task(made.delete(one)) for one in (lost, *beside)]
        await held.until_reached()
        node.ip("link", "del", lost.host_interface)
        await told_all(made, node)
        assert not any(one.done() for one in waits)
        held.go_on.set()
        await asyncio.gather(*waits)
        assert not of_ours(node)


@on_the_node
async def test_what_a_pod_carries_on_lo_is_taken_off_before_its_link_is_deleted(node: Space, pod: Space) -> None:
    """In a namespace that stays."""
    carried = "2001:db8:53::1"
    with deleting() as made:
        allocation = attached(node, pod, anycast=(carried,), **pod.open(lambda: identity(pod)))
        pod.netlink.run([r.set_up(LOOPBACK), r.add_address(LOOPBACK, packed(carried), 128)])
        held = Held(made, at="before the link")
        waits = asyncio.create_task(made.delete(allocation))
        await held.until_reached()
        assert carried not in str(pod.ip("addr"))
        held.go_on.set()
        await waits


@on_the_node
async def test_a_link_that_leaves_a_bridge_is_not_gone(node: Space, pod: Space) -> None:
    with deleting() as made:
        allocation = attached(node, pod)
        node.ip("link", "add", "name", "br0", "type", "bridge")
        node.ip("link", "set", allocation.host_interface, "master", "br0")
        held = Held(made, at="before the link")
        waits = asyncio.create_task(made.delete(allocation))
        await held.until_reached()
        node.ip("link", "set", allocation.host_interface, "nomaster")
        await told_all(made, node)
        assert not waits.done() and of_ours(node)
        held.go_on.set()
        await waits
        assert not of_ours(node)


@on_the_node
async def test_an_earlier_link_of_that_name_says_nothing(node: Space, pod: Space) -> None:
    with deleting() as made:
        await made.delete(entry(pod, "c9"))  # from now on it listens
        lost = attached(node, pod)
        node.ip("link", "del", lost.host_interface)
        again = attached(node, pod)
        held = Held(made, at="before the link")
        asyncio.get_running_loop().remove_reader(made._notices._socket)  # so late is it heard
        waits = asyncio.create_task(made.delete(again))
        await held.until_reached()
        made._notices.start()
        await told_all(made, node)
        assert not waits.done()
        held.go_on.set()
        await waits
        assert not of_ours(node)


@on_the_node
async def test_what_cannot_be_taken_down_fails_alone(node: Space, pod: Space) -> None:
    """A namespace that cannot be looked into for want of descriptors, as when a node has none left for a moment."""
    with deleting() as made:
        doomed = [attached(node, pod, number) for number in range(4)]
        for _, links in made._threads:
            clear = links._clear_loopback

            def short_of(allocation: Allocation, clear: Any = clear) -> None:
                if allocation.container_id == "c2":
                    raise OSError(errno.EMFILE, "Too many open files")
                clear(allocation)

            links._clear_loopback = short_of  # type: ignore[method-assign]
        ends = await asyncio.gather(*map(made.delete, doomed), return_exceptions=True)
        assert [type(end) for end in ends] == [type(None), type(None), OSError, type(None)]
        assert set(of_ours(node)) == {doomed[2].host_interface}


@on_the_node
async def test_while_no_socket_can_be_had_the_answer_is_good_enough(
    node: Space, pod: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    with deleting() as made:
        await made.delete(attached(node, pod))
        monkeypatch.setattr(made._notices, "_open", none)
        spoiled = os.open(os.devnull, os.O_RDONLY)
        os.dup2(spoiled, made._notices._socket.fileno())  # whatever is asked of it is refused
        os.close(spoiled)
        made._notices._drain()
        for number in range(3):
            await made.delete(attached(node, pod, number))
        assert not of_ours(node)


@on_the_node
async def test_a_round_that_fails_when_its_links_are_gone_is_not_done_again(node: Space, pod: Space) -> None:
    """A link of that name may be the container's next by then."""
    with deleting() as made:
        doomed = [attached(node, pod, number) for number in range(2)]
        held = Held(
            made, at="before the answer", failing=KernelRefused("no memory for the answer", errno=errno.ENOBUFS)
        )
        await asyncio.gather(*map(made.delete, doomed))
        again = attached(node, pod, 0)
        held.go_on.set()
        await until(lambda: not any(worker.load for worker in made.workers))
        assert set(of_ours(node)) == {again.host_interface}


@on_the_node
async def test_after_the_end_nobody_is_left_waiting(node: Space, pod: Space) -> None:
    with deleting() as made:
        allocation = attached(node, pod)
    with pytest.raises(FlockError, match="the agent is ending"):
        await made.delete(allocation)
