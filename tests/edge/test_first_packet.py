"""A pod that was attached can be reached at once: not when the kernel gets round to starting its link's queue.

The host side comes up first, while its other end is down; the kernel starts its queue later, in a work item that needs
the lock of all network configuration.  Where others hold that lock, packets to a new pod were dropped until then.
"""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from spaces import Space

from flock.core.model import Allocation
from flock.edge.kernel.podlink import PodLinks
from flock.edge.netlink import route as r

PODS = 20
PATIENCE = 60
RUNNING = 0x40  # IFF_RUNNING: the kernel has taken note of the carrier
_BUSY = "while ip link add a type veth peer b && ip link del a; do :; done"


@pytest.fixture
def busy() -> Iterator[None]:
    """Namespaces in which links are made and deleted all the time."""
    with ExitStack() as stack:
        for _ in range(3):
            command = ["timeout", str(PATIENCE), "ip", "netns", "exec", _space(stack).name, "sh", "-c", _BUSY]
            process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            stack.callback(process.terminate)
        yield


def _space(stack: ExitStack) -> Space:
    space = Space()
    stack.callback(space.remove)
    return space


def test_a_links_queues_run_when_attach_returns(node: Space, busy: None) -> None:
    with ExitStack() as stack:
        pods = [_space(stack) for _ in range(PODS)]

        def attach() -> list[int]:
            links, late = PodLinks(sysctl=Path("/proc/sys/net")), []
            for number, pod in enumerate(pods):
                found = links.attach(_allocation(number, pod.name), announced=(), claimed=lambda _: False)
                running = {index for index, flags in links.host.dump(r.dump_links(), _state) if flags & RUNNING}
                if found.host_index not in running:
                    late.append(number)
            return late

        assert node.open(attach) == []


def test_a_link_that_was_only_begun_is_down_at_both_ends(node: Space) -> None:
    """It may be there before its pod's rules are: nothing passes it."""
    with ExitStack() as stack:
        pod = _space(stack)

        def begin() -> tuple[list[bool], list[bool]]:
            links, allocation = PodLinks(sysctl=Path("/proc/sys/net")), _allocation(0, pod.name)
            bare = links.create(allocation, links.open(allocation.netns), lambda _: False)
            ends = [links.host.link(bare.host.index), bare.pod.link(allocation.ifname)]
            down = [end is not None and not end.up for end in ends]
            attached = links.bring_up(allocation, bare, announced=())
            host = links.host.link(attached.host_index)
            return down, [host is not None and host.up]

        assert node.open(begin) == ([True, True], [True])


def _state(body: bytes) -> tuple[int, int]:
    """Of a listing: a link asked for by itself is brought up to date by the question."""
    return int.from_bytes(body[4:8], "little"), int.from_bytes(body[8:12], "little")


def _allocation(number: int, pod: str) -> Allocation:
    return Allocation(
        container_id=f"c{number}",
        namespace="default",
        pod_name=pod,
        owner_uid="",
        ip6=f"2001:db8::{number + 2:x}",
        ip4=f"192.0.2.{number + 2}",
        anycast=(),
        addresses=(),
        allocated_at="",
        state="pending",
        netns=f"/run/netns/{pod}",
        ifname="eth0",
        mac=f"0a:00:00:00:00:{number:02x}",
        host_interface=f"flock{number:08x}",
        mtu=1500,
    )
