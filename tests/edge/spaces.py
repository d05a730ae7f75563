"""Throw-away network namespaces with our netlink in them, and `ip -j` as the second opinion."""

import asyncio
import functools
import itertools
import json
import os
import subprocess
from collections.abc import Callable, Coroutine
from ipaddress import ip_address
from typing import Any

from flock.core.model import Allocation
from flock.core.naming import format_mac, host_interface, pod_mac
from flock.edge.kernel.monitor import Event, Monitor
from flock.edge.kernel.netns import inside, open_netns, own_netns
from flock.edge.netlink import route as r
from flock.edge.netlink.socket import Netlink
from looping import PATIENCE, looped

HOST, POD = b"\x02\0\0\0\0\x01", b"\x0a\0\0\0\0\x02"
GATEWAY = ip_address("fe80::1").packed
LOOPBACK = 1
numbers = itertools.count()


def packed(text: str) -> bytes:
    return ip_address(text).packed


class Space:
    """One network namespace and our netlink socket in it."""

    def __init__(self) -> None:
        self.name = f"fnl{os.getpid()}x{next(numbers)}"
        subprocess.run(["ip", "netns", "add", self.name], check=True, timeout=PATIENCE)
        self.netlink: Netlink = self.open(Netlink)

    def open(self, make: Callable[[], Any]) -> Any:
        """Make something that belongs to this namespace."""
        home, there = own_netns(), open_netns(f"/run/netns/{self.name}")
        try:
            with inside(there, home=home):
                return make()
        finally:
            home.close()
            there.close()

    def remove(self) -> None:
        self.netlink.close()
        subprocess.run(["ip", "netns", "del", self.name], check=True, timeout=PATIENCE)

    def ip(self, *command: object) -> Any:
        full = ["ip", "-n", self.name, "-j", "-d", *map(str, command)]
        done = subprocess.run(full, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, f"{full}: {done.stderr}"
        return json.loads(done.stdout) if done.stdout.strip() else []

    def link(self, name_or_index: str | int) -> r.Link:
        link = self.netlink.link(name_or_index)
        assert link is not None
        return link

    def index(self, name: str) -> int:
        return self.link(name).index


def veth(node: Space, pod: Space, name: str = "flock00000001", peer: str = "eth0", mtu: int = 1400) -> int:
    """A pair between the namespaces, the host side up; returns its index."""
    there = open_netns(f"/run/netns/{pod.name}")
    try:
        wanted = r.create_veth(name=name, mac=HOST, mtu=mtu, peer_name=peer, peer_mac=POD, peer_netns_fd=there.fd)
        node.netlink.run([wanted])
    finally:
        there.close()
    index = node.index(name)
    node.netlink.run([r.describe_host_side(index, alias=f"flock pod=shop/{name}", has_ipv6=True), r.set_up(index)])
    pod.netlink.run([r.set_up(pod.index(peer))])
    return index


class Ear:
    """A monitor in a namespace, and what it said."""

    def __init__(self, space: Space) -> None:
        self.heard: list[tuple[int, int]] = []
        self.links: list[Event] = []
        self.overruns = 0
        self._space = space
        self._news = asyncio.Event()
        space.netlink.run([r.set_up(LOOPBACK)])  # the kernel keeps changes of a link that is down to itself
        self.monitor: Monitor = space.open(lambda: Monitor(on_event=self._event, on_overrun=self._overrun))

    async def __aenter__(self) -> "Ear":
        self.monitor.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.monitor.close()

    def _event(self, event: Event) -> None:
        self.heard.append((event.kind, event.index))
        if event.name:
            self.links.append(event)
        self._news.set()

    def _overrun(self) -> None:
        self.overruns += 1
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    async def listen(self) -> list[tuple[int, int]]:
        """All that was said up to now: a change of our own marks the end."""
        mark = f"mark {next(numbers)}"
        self._space.netlink.run([r.set_alias(LOOPBACK, mark)])
        await self.until(lambda: any(mark.encode() + b"\0" in link._body for link in self.links))
        heard, self.heard = self.heard, []
        return [event for event in heard if event[1] != LOOPBACK]


Test = Callable[..., Coroutine[Any, Any, None]]


def on_the_node(test: Test) -> Callable[..., None]:
    """The test's loop runs in the node's namespace, as an agent's does."""

    @functools.wraps(test)
    def run(node: Space, **others: Any) -> None:
        node.open(lambda: looped(test)(node, **others))

    return run


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
