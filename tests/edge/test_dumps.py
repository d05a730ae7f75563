"""Lists that the kernel could not finish in peace are not taken for the truth."""

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import Any

import pytest

from flock.core.errors import KernelRefused
from flock.core.policy.elements import Element, Operation
from flock.edge.kernel.netns import inside, open_netns, own_netns
from flock.edge.netlink import route as r
from flock.edge.netlink.socket import ATTEMPTS, Netlink
from flock.edge.nft import batch as b
from flock.edge.nft.socket import NftSocket

PATIENCE = 20
MANY = 2000  # more than the kernel tells at a time
TABLE = "inet flock"
_numbers = itertools.count()

Disturb = Callable[[], None]


class DisturbedNetlink(Netlink):
    """Between two parts of an answer somebody changes something, `disturb`."""

    disturb: Disturb = staticmethod(lambda: None)

    def receive(self) -> bytes:
        self.disturb()
        return super().receive()


class DisturbedNft(NftSocket):
    disturb: Disturb = staticmethod(lambda: None)

    def receive(self) -> bytes:
        self.disturb()
        return super().receive()


@pytest.fixture
def space() -> Iterator[str]:
    name = f"fdu{os.getpid()}x{next(_numbers)}"
    subprocess.run(["ip", "netns", "add", name], check=True, timeout=PATIENCE)
    yield name
    subprocess.run(["ip", "netns", "del", name], check=True, timeout=PATIENCE)


def feed(command: list[str], text: str) -> None:
    subprocess.run(command, input=text, text=True, check=True, timeout=PATIENCE)


def opened(space: str, *kinds: Callable[[], Any]) -> list[Any]:
    home, there = own_netns(), open_netns(f"/run/netns/{space}")
    with inside(there, home=home):
        made = [kind() for kind in kinds]
    home.close()
    there.close()
    return made


def times(number: int, change: Disturb) -> Disturb:
    left = iter(range(number))
    return lambda: change() if next(left, None) is not None else None


def check(socket: Any, change: Disturb, staying: Callable[[], int]) -> None:
    """A list is taken again until it was not disturbed, and refused if it always is."""
    socket.disturb = times(3, change)
    assert staying() == MANY
    socket.disturb = change
    with pytest.raises(KernelRefused, match=f"changed {ATTEMPTS} times"):
        staying()
    socket.disturb = lambda: None
    assert staying() == MANY


def test_a_list_of_addresses_is_whole_or_refused(space: str) -> None:
    addresses = "".join(f"addr add 10.{n >> 8}.{n & 255}.1/32 dev lo\n" for n in range(MANY))
    feed(["ip", "-n", space, "-b", "-"], f"link set lo up\n{addresses}")
    netlink, other = opened(space, DisturbedNetlink, Netlink)
    passing = ip_address("172.16.0.1").packed

    def change() -> None:
        other.run([r.add_address(1, passing, 32), r.delete_address(1, passing, 32)])

    def staying() -> int:
        found = netlink.dump(r.dump_addresses(), r.Address.decode)
        return len([a for a in found if a.address.startswith(b"\x0a")])

    with netlink, other:
        check(netlink, change, staying)


def test_a_list_of_chains_is_whole_or_refused(space: str) -> None:
    chains = "".join(f"\tchain c{n} {{}}\n" for n in range(MANY))
    nft = ["ip", "netns", "exec", space, "nft", "-f", "-"]
    feed(nft, f"table {TABLE} {{\n\tset few {{ type ipv4_addr; }}\n{chains}}}\n")
    socket, other = opened(space, DisturbedNft, NftSocket)
    element = Element(TABLE, "few", (ip_address("192.0.2.1"),))

    def change() -> None:
        other.commit([Operation(True, element)])
        other.commit([Operation(False, element)])

    check(socket, change, lambda: len(socket.ask(b.GETCHAIN, b.header(TABLE), dump=True)))
    socket.close()
    other.close()
