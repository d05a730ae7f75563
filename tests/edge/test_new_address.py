"""An IPv6 address takes packets in from the moment it is given: the kernel itself sees to that later, at leisure."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flock.core.model import Allocation
from flock.core.naming import format_mac, host_interface, pod_mac
from flock.edge.kernel.netns import Netns, inside, open_netns, own_netns
from flock.edge.kernel.podlink import PodLinks, new_group

ROUNDS = 20  # about half of the first packets were lost while the kernel was left its leisure
PATIENCE = 20.0  # seconds; what was dropped never comes
POD, PORT = "2001:db8:1::7", 4000


@pytest.fixture
def spaces() -> Iterator[list[str]]:
    """The paths of a node's network namespace and of a pod's."""
    names = [f"fna{os.getpid()}{side}" for side in ("node", "pod")]
    for name in names:
        subprocess.run(["ip", "netns", "add", name], check=True, timeout=PATIENCE)
    yield [f"/run/netns/{name}" for name in names]
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=True, timeout=PATIENCE)


def entry(number: int, netns: str) -> Allocation:
    container = f"c{number}"
    return Allocation(
        container_id=container,
        namespace="default",
        pod_name="web",
        owner_uid="",
        ip6=POD,
        state="pending",
        allocated_at="",
        netns=netns,
        ifname="eth0",
        host_interface=host_interface(container),
        mac=format_mac(pod_mac(container)),
        mtu=1500,
    )


def listening(netns: Netns, home: Netns) -> socket.socket:
    with inside(netns, home=home):
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    made.settimeout(PATIENCE)
    made.bind(("", PORT))
    return made


def test_the_first_packet_to_a_new_address_and_its_answer_arrive(spaces: list[str]) -> None:
    """The node has no address but the link's own: the answer goes to that."""
    home, node, pod = own_netns(), open_netns(spaces[0]), open_netns(spaces[1])
    with inside(node, home=home), listening(node, node) as here, listening(pod, node) as there:
        links = PodLinks(sysctl=Path("/proc/sys/net"))
        for number in range(ROUNDS):
            allocation = entry(number, spaces[1])
            links.attach(allocation, announced=(), claimed=lambda _: False)
            links.host.link(allocation.host_interface)  # who asks about a link gets one that works
            here.sendto(b"%d" % number, (POD, PORT))
            heard, sender = there.recvfrom(100)
            assert heard == b"%d" % number
            there.sendto(b"answer", sender)
            assert here.recv(100) == b"answer"
            assert not links.detach([allocation], group=new_group())
        links.host.close()
        links.home.close()
    for opened in (home, node, pod):
        opened.close()
