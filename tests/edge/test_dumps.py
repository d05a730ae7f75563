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
from flock.edge.netlink.socket import ATTEMPTS, GLIMPSE, Netlink
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


# --- in a namespace that is somebody else's ---


def numbered(count: int, *, interface: str = "lo") -> str:
    return "link set lo up\n" + "".join(f"addr add 10.{n >> 8}.{n & 255}.1/32 dev {interface}\n" for n in range(count))


def test_of_a_list_that_somebody_filled_a_bounded_part_is_read_and_not_called_whole(space: str) -> None:
    feed(["ip", "-n", space, "-b", "-"], numbered(GLIMPSE + 1))
    (netlink,) = opened(space, Netlink)
    with netlink:
        found = netlink.glimpse(r.dump_addresses(), r.Address.decode)
    assert (len(found.seen), found.whole) == (GLIMPSE, False)


def test_a_list_that_somebody_changes_without_end_is_given_up_soon_and_not_called_whole(space: str) -> None:
    feed(["ip", "-n", space, "-b", "-"], numbered(GLIMPSE - 20))
    netlink, other = opened(space, DisturbedNetlink, Netlink)
    passing = ip_address("172.16.0.1").packed

    def change() -> None:
        other.run([r.add_address(1, passing, 32), r.delete_address(1, passing, 32)])

    with netlink, other:
        netlink.disturb = change
        assert not netlink.glimpse(r.dump_addresses(), r.Address.decode).whole
        netlink.disturb = times(3, change)
        found = netlink.glimpse(r.dump_addresses(), r.Address.decode)
    assert found.whole and len(found.seen) >= GLIMPSE - 20


def test_a_short_list_is_whole_and_of_one_link_alone(space: str) -> None:
    feed(
        ["ip", "-n", space, "-b", "-"],
        "link add eth0 type veth peer name other\nlink set eth0 up\nlink set other up\n"
        + "addr add 192.0.2.1/32 dev eth0\nroute add 198.51.100.0/24 dev eth0\nroute add 203.0.113.0/24 dev other\n"
        + "neigh add 192.0.2.9 lladdr 02:00:00:00:00:01 dev eth0 nud permanent\n"
        + "neigh add 192.0.2.8 lladdr 02:00:00:00:00:01 dev other nud permanent\n"
        + numbered(3),
    )
    looked, *sockets = opened(space, *[Netlink] * 5)
    with looked:
        eth0 = looked.link("eth0")
    assert eth0 is not None
    seen: list[set[bytes]] = []
    for request, decode, told in (
        (r.dump_addresses(eth0.index), r.Address.decode, "address"),
        (r.dump_addresses(1), r.Address.decode, "address"),
        (r.dump_routes(2, index=eth0.index), r.Route.decode, "dst"),
        (r.dump_neighbours(eth0.index), r.Neighbour.decode, "address"),
    ):
        with sockets.pop() as netlink:
            found = netlink.glimpse(request, decode)
        assert found.whole
        seen.append({getattr(x, told) for x in found.seen if len(getattr(x, told)) == 4})
    mine, loopback = ip_address("192.0.2.1").packed, {ip_address(a).packed for a in ("127.0.0.1", "10.0.2.1")}
    assert seen[0] == {mine} and loopback <= seen[1] and mine not in seen[1]
    assert seen[2] == {ip_address("198.51.100.0").packed}
    assert seen[3] == {ip_address("192.0.2.9").packed}
