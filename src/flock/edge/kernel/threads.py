"""The kernel, off the event loop.

A netlink request is worked off inside the send and may wait for a lock that all of the host's network
configuration shares, so it never runs on the loop.  Two threads, each with sockets of its own: one sets pods up,
the other does what takes long (deletions, dumps), so that a burst of DELs does not hold up an ADD.  A third forgets
flows, for which nobody waits.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from flock.core.announcing import Via
from flock.core.errors import FlockError
from flock.core.facts import NodeFacts
from flock.core.model import Allocation
from flock.edge.batching import Rounds
from flock.edge.kernel import adopt, node, observe, original, podcheck
from flock.edge.kernel.announce import Changes, announce, announced
from flock.edge.kernel.conntrack import Sweeper
from flock.edge.kernel.podlink import Announced, Attached, Claimed, PodLinks, packed, prepare_host_side
from flock.edge.netlink.route import Request

T = TypeVar("T")
LONG = 30.0  # seconds for one piece of work: a thousand links are deleted in less


class _Thread:
    """One thread and the PodLinks that belong to it.

    Not an executor: handing work over and its result back is done once per ADD and more, and takes half as long so.
    """

    def __init__(self, name: str, sysctl: Path) -> None:
        self._work: SimpleQueue[tuple[Callable[[PodLinks], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        ready: SimpleQueue[BaseException | None] = SimpleQueue()
        self.name = name
        self.since = 0.0  # when the work under way began; 0: there is none
        self._thread = threading.Thread(target=self._serve, args=(sysctl, ready), name=name, daemon=True)
        self._thread.start()
        failure = ready.get()
        if failure is not None:
            raise failure

    def run(self, work: Callable[[PodLinks], T]) -> "asyncio.Future[T]":
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._work.put((work, done))
        return done

    def close(self) -> None:
        self._work.put(None)
        self._thread.join()

    def _serve(self, sysctl: Path, ready: "SimpleQueue[BaseException | None]") -> None:
        try:
            links = PodLinks(sysctl=sysctl)
        except BaseException as error:
            ready.put(error)
            return
        ready.put(None)
        while (item := self._work.get()) is not None:
            work, done = item
            result, failure = None, None
            self.since = time.monotonic()
            try:
                result = work(links)
            except BaseException as error:
                failure = error
            self.since = 0.0
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
                done.get_loop().call_soon_threadsafe(_settle, done, result, failure)


def _settle(done: "asyncio.Future[Any]", result: Any, failure: BaseException | None) -> None:
    if done.cancelled():
        return
    if failure is None:
        done.set_result(result)
    else:
        done.set_exception(failure)


class Kernel:
    """Every method may raise KernelRefused; all may run concurrently."""

    def __init__(self, *, sysctl: Path) -> None:
        self._sysctl = sysctl
        self._fast = _Thread("attach", sysctl)
        self._slow = _Thread("kernel", sysctl)
        self._sweeper = Sweeper(sysctl=str(sysctl))
        self._deletions = Rounds(self._delete)

    @property
    def stuck(self) -> str:
        """Work that the kernel does not finish: nothing else is done in its thread, and no thread can be ended."""
        now = time.monotonic()
        held_up = [
            f"{t.name} for {now - t.since:.0f} s" for t in (self._fast, self._slow) if t.since and now - t.since > LONG
        ]
        return f"the kernel does not answer: {', '.join(held_up)}" if held_up else ""

    async def attach(self, allocation: Allocation, *, announced: Announced, claimed: Claimed) -> Attached:
        self._sweeper.spare(_carried(allocation))
        return await self._fast.run(lambda links: links.attach(allocation, announced=announced, claimed=claimed))

    async def is_intact(self, allocation: Allocation, netns: str) -> bool:
        return await self._fast.run(lambda links: links.is_intact(allocation, netns))

    async def detach(self, allocation: Allocation) -> None:
        """Take a pod's link down.  Calls that come while a deletion is under way share the next one."""
        failures = await self._deletions.join(allocation)
        if allocation.container_id in failures:
            raise failures[allocation.container_id]

    async def _delete(self, doomed: list[Allocation]) -> dict[str, FlockError | OSError]:
        """What went wrong, by container."""
        failures = await self._slow.run(lambda links: links.detach(doomed))
        self._sweeper.forget(address for allocation in doomed for address in _carried(allocation))
        return failures

    async def prepare_host_side(self, name: str, *, ipv6: bool) -> None:
        await self._slow.run(lambda _: prepare_host_side(str(self._sysctl), name, ipv6=ipv6))

    async def announce(
        self,
        desired: Mapping[str, tuple[Via, ...]],
        *,
        leaving: Mapping[str, tuple[Via, ...]],
        indexes: Mapping[str, int],
        lingers: Callable[[bytes], bool],
    ) -> Changes:
        """Make these the announced addresses; flows to what was withdrawn or moved are forgotten."""
        changes = await self._fast.run(
            lambda links: announce(links.host, desired, leaving=leaving, indexes=indexes, lingers=lingers)
        )
        self._sweeper.forget([*changes.withdrawn, *map(packed, changes.moved)])
        return changes

    async def unrecorded(self, *, recorded: Collection[str], sources: adopt.Sources, now: str) -> list[Allocation]:
        """Pods that run and are not on record, as entries."""
        return await self._slow.run(lambda links: adopt.unrecorded(links, recorded=recorded, sources=sources, now=now))

    async def remove_originals(self, carriers: Mapping[bytes, Collection[int]]) -> list[bytes]:
        """Routes of the original flock to addresses that are announced, or not, by us now."""
        return await self._slow.run(lambda links: original.remove_routes(links.host, carriers))

    async def announced(self) -> dict[bytes, frozenset[tuple[int, bytes]]]:
        return await self._slow.run(lambda links: announced(links.host))

    async def delete_links(self, indexes: Collection[int]) -> None:
        await self._slow.run(lambda links: links.delete_links(indexes))

    async def apply(self, requests: list[Request], *, ignore: Collection[int] = ()) -> None:
        await self._slow.run(lambda links: links.host.run(requests, ignore=tuple(ignore)))

    async def observe(self) -> observe.Observed:
        return await self._slow.run(lambda links: observe.observe(links.host))

    async def pod_differences(self, allocation: Allocation, netns: str) -> list[str]:
        return await self._slow.run(lambda links: podcheck.pod_differences(links, allocation, netns))

    async def facts(self, node_name: str) -> NodeFacts:
        return await self._slow.run(lambda links: node.read_facts(links.host, node=node_name))

    async def uplink_mtu(self, peers: Iterable[bytes]) -> int:
        return await self._slow.run(lambda links: node.uplink_mtu(links.host, peers))

    async def enable_forwarding(self, *, ipv6: bool, ipv4: bool) -> list[str]:
        return await self._slow.run(lambda _: node.enable_forwarding(self._sysctl, ipv6=ipv6, ipv4=ipv4))

    async def forwarding_off(self, *, ipv6: bool, ipv4: bool) -> list[str]:
        return await self._slow.run(lambda _: node.forwarding_off(self._sysctl, ipv6=ipv6, ipv4=ipv4))

    def close(self) -> None:
        self._fast.close()
        self._slow.close()
        self._sweeper.close()


def _carried(allocation: Allocation) -> list[bytes]:
    return [packed(a) for a in (*allocation.held, *allocation.anycast)]
