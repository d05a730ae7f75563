"""The kernel, off the event loop.

A netlink request is worked off inside the send and may wait for a lock that all of the host's network
configuration shares, so it never runs on the loop.  Pods are set up by a process (`making`).  Threads, each with
sockets of its own: one announces and sets up what that process does not, one makes dumps and what else takes long, some
delete (`deleting`).  One more forgets flows, for which nobody waits.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from flock.core.announcing import Via
from flock.core.model import Allocation
from flock.core.whose import Whose
from flock.edge.kernel import adopt, node, original, podcheck, services
from flock.edge.kernel.announce import Changes, announce, announced
from flock.edge.kernel.conntrack import Sweeper
from flock.edge.kernel.deleting import Deleting
from flock.edge.kernel.linkmessages import Announced, packed
from flock.edge.kernel.linkprocess import Begun
from flock.edge.kernel.making import Making
from flock.edge.kernel.observe import observe
from flock.edge.kernel.podlink import Attached, Claimed, PodLinks, prepare_host_side
from flock.edge.kernel.podnetns import whose_is_at_its_path
from flock.edge.netlink.socket import Netlink
from flock.edge.worker import Worker

P = ParamSpec("P")
T = TypeVar("T")
Tool = TypeVar("Tool")
LONG = 30.0  # seconds for one piece of work: a thousand links are deleted in less


def _in_slow_thread(
    work: Callable[Concatenate[Tool, P], T], tool: Callable[[PodLinks], Tool]
) -> Callable[Concatenate["Kernel", P], Awaitable[T]]:
    """A method of Kernel: `work` with the `tool` that belongs to that thread."""

    def method(kernel: "Kernel", /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return kernel._slow.run(work, tool(kernel._slow_links), *args, **kwargs)

    return method


def _links(links: PodLinks) -> PodLinks:
    return links


def _host(links: PodLinks) -> Netlink:
    return links.host


def _sysctl(links: PodLinks) -> Path:
    return Path(links.sysctl)


class Kernel:
    """Every method may raise KernelRefused; all may run concurrently."""

    def __init__(self, *, sysctl: Path) -> None:
        self._making = Making(sysctl=sysctl)
        self._fast, self._fast_links = self._making.thread, self._making.links
        self.transactions = self._making.transactions  # of rules, while a pod's link is made
        self._slow, self._slow_links = Worker("kernel"), PodLinks(sysctl=sysctl)
        self._deleting = Deleting(sysctl=sysctl)
        self._sweeper = Sweeper(sysctl=str(sysctl))

    @property
    def stuck(self) -> str:
        """Work that the kernel does not finish: nothing else is done in its thread, and no thread can be ended.  (The
        process of links can, and is.)"""
        workers = self._fast, self._slow, *self._deleting.workers
        busy = {worker.name: worker.busy_for for worker in workers} | {"links": self._making.busy_for}
        held_up = [f"{name} for {seconds:.0f} s" for name, seconds in busy.items() if seconds > LONG]
        return f"the kernel does not answer: {', '.join(held_up)}" if held_up else ""

    def close(self) -> None:
        self._fast.close()
        self._slow.close()
        self._deleting.close()
        self._sweeper.close()
        self.transactions.close()

    # --- pods ---

    async def make_links(self, lock: int) -> None:
        await self._making.run(lock)

    def begun(self, netns: str) -> AbstractAsyncContextManager[Begun | None]:
        return self._making.begun(netns)

    async def give_up(self, begun: Begun) -> None:
        await self._making.give_up(begun)

    async def attach(
        self,
        allocation: Allocation,
        *,
        announced: Announced,
        claimed: Claimed,
        begun: Begun | None = None,
    ) -> Attached:
        """`begun`: a link for it that is created."""
        self._sweeper.spare(_carried(allocation))
        return await self._making.attach(allocation, begun, announced=announced, claimed=claimed)

    async def is_intact(self, allocation: Allocation, netns: str) -> bool:
        return await self._fast.run(self._fast_links.is_intact, allocation, netns)

    async def whose_is_at_its_path(self, allocation: Allocation) -> Whose:
        return await self._fast.run(whose_is_at_its_path, self._fast_links.home, allocation)

    async def detach(self, allocation: Allocation) -> None:
        """Take a pod's link down."""
        try:
            await self._deleting.delete(allocation)
        finally:
            self._sweeper.forget(_carried(allocation))

    delete_links = _in_slow_thread(PodLinks.delete_links, _links)
    pod_differences = _in_slow_thread(podcheck.pod_differences, _links)
    prepare_host_side = _in_slow_thread(prepare_host_side, _sysctl)
    unrecorded = _in_slow_thread(adopt.unrecorded, _links)
    placed = _in_slow_thread(adopt.placed, _links)

    # --- what is announced ---

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
            announce, self._fast_links.host, desired, leaving=leaving, indexes=indexes, lingers=lingers
        )
        self._sweeper.forget([*changes.withdrawn, *map(packed, changes.moved)])
        return changes

    async def announce_services(self, announce: Iterable[bytes], withdraw: Iterable[bytes]) -> None:
        """More addresses of Services, and fewer."""
        changes = {"announce": list(announce), "withdraw": list(withdraw)}
        await self._fast.run(services.change, self._fast_links.host, **changes)

    announced_services = _in_slow_thread(services.announced, _host)
    announced = _in_slow_thread(announced, _host)
    remove_originals = _in_slow_thread(original.remove_routes, _host)

    # --- the node ---

    apply = _in_slow_thread(Netlink.run, _host)
    observe = _in_slow_thread(observe, _host)
    facts = _in_slow_thread(node.read_facts, _host)
    uplink_mtu = _in_slow_thread(node.uplink_mtu, _host)
    enable_forwarding = _in_slow_thread(node.enable_forwarding, _sysctl)
    forwarding_off = _in_slow_thread(node.forwarding_off, _sysctl)


def _carried(allocation: Allocation) -> list[bytes]:
    return [packed(a) for a in allocation.carried]
