"""Our netlink against the real kernel in throw-away namespaces, with `ip -j` as the second opinion."""

import asyncio
import errno
import functools
import itertools
import json
import os
import socket
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from ipaddress import ip_address
from typing import Any

import pytest

from flock.core.errors import Code, KernelRefused
from flock.core.faults import Faults
from flock.core.naming import PROTO_ANNOUNCE, PROTO_POD
from flock.edge.kernel.monitor import Event, Monitor
from flock.edge.kernel.netns import inside, open_netns, own_netns
from flock.edge.kernel.observe import observe
from flock.edge.netlink import route as r
from flock.edge.netlink import socket as socket_module
from flock.edge.netlink import wire as w
from flock.edge.netlink.socket import Netlink

PATIENCE = 20  # seconds until a test that waits gives up
HOST, POD = b"\x02\0\0\0\0\x01", b"\x0a\0\0\0\0\x02"
GATEWAY = ip_address("fe80::1").packed
LOOPBACK = 1
_numbers = itertools.count()


def packed(text: str) -> bytes:
    return ip_address(text).packed


class Space:
    """One network namespace and our netlink socket in it."""

    def __init__(self) -> None:
        self.name = f"fnl{os.getpid()}x{next(_numbers)}"
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


@pytest.fixture
def node() -> Iterator[Space]:
    space = Space()
    yield space
    space.remove()


@pytest.fixture
def pod() -> Iterator[Space]:
    space = Space()
    yield space
    space.remove()


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


# --- links ---


def test_both_ends_of_a_veth_are_made_in_place(node: Space, pod: Space) -> None:
    index = veth(node, pod)
    [host] = node.ip("link", "show", "flock00000001")
    [peer] = pod.ip("link", "show", "eth0")
    assert (host["ifindex"], host["mtu"], host["address"]) == (index, 1400, "02:00:00:00:00:01")
    assert (peer["mtu"], peer["address"], peer["link_index"]) == (1400, "0a:00:00:00:00:02", index)
    assert host["linkinfo"]["info_kind"] == "veth"
    assert host["ifalias"] == "flock pod=shop/flock00000001"
    assert host["inet6_addr_gen_mode"] == "none"
    assert "UP" in host["flags"]


def test_links_read_back_are_what_ip_shows(node: Space, pod: Space) -> None:
    veth(node, pod)
    veth(node, pod, "other0", "eth1")
    read = {link.name: link for link in node.netlink.dump(r.dump_links(), r.Link.decode)}
    shown = {x["ifname"]: x for x in node.ip("link")}
    assert read.keys() == shown.keys()
    for name, link in read.items():
        theirs = shown[name]
        assert link.index == theirs["ifindex"]
        assert link.mac.hex(":") == theirs["address"]
        assert link.mtu == theirs["mtu"]
        assert link.up == ("UP" in theirs["flags"])
        assert link.loopback == ("LOOPBACK" in theirs["flags"])
        assert link.alias == theirs.get("ifalias", "")
        assert link.kind == theirs.get("linkinfo", {}).get("info_kind", "")
        assert link.peer_index == theirs.get("link_index", 0)
        assert node.netlink.link(name) == node.netlink.link(link.index) == link


def test_the_host_side_forwards_and_answers_arp_for_others(node: Space, pod: Space) -> None:
    veth(node, pod)
    assert node.link("flock00000001").forwards
    for switch in ("forwarding", "proxy_arp"):
        path = f"/proc/sys/net/ipv4/conf/flock00000001/{switch}"
        inside_node = ["nsenter", f"--net=/run/netns/{node.name}", "cat", path]
        assert subprocess.run(inside_node, capture_output=True, check=True, timeout=PATIENCE).stdout == b"1\n"


def test_each_switch_alone_is_not_enough_to_forward(node: Space, pod: Space) -> None:
    index = veth(node, pod)
    for switch in ("forwarding", "proxy_arp"):
        switched_off = f"echo 0 > /proc/sys/net/ipv4/conf/flock00000001/{switch}"
        command = ["nsenter", f"--net=/run/netns/{node.name}", "sh", "-c", switched_off]
        subprocess.run(command, check=True, timeout=PATIENCE)
        assert not node.link(index).forwards
        node.netlink.run([r.set_ipv4_switches(index)])
        assert node.link(index).forwards


def test_alias_and_mac_can_be_set_again(node: Space, pod: Space) -> None:
    index = veth(node, pod)
    node.netlink.run([r.set_alias(index, "another"), r.set_mac(index, POD)])
    [host] = node.ip("link", "show", "flock00000001")
    assert (host["ifalias"], host["address"]) == ("another", POD.hex(":"))


def test_the_longest_alias_fits_and_one_byte_more_does_not(node: Space, pod: Space) -> None:
    index = veth(node, pod)
    node.netlink.run([r.set_alias(index, "x" * 254)])
    [host] = node.ip("link", "show", "flock00000001")
    assert host["ifalias"] == "x" * 254
    with pytest.raises(KernelRefused):
        node.netlink.run([r.set_alias(index, "x" * 255)])


def test_a_link_that_is_not_there_is_none(node: Space) -> None:
    assert node.netlink.link("flock00000009") is None
    assert node.netlink.link(4711) is None


def test_deleting_one_end_deletes_both(node: Space, pod: Space) -> None:
    node.netlink.run([r.delete_link(veth(node, pod))])
    assert node.netlink.link("flock00000001") is None
    assert pod.netlink.link("eth0") is None


def test_a_group_is_deleted_at_once_and_nothing_else(node: Space, pod: Space) -> None:
    indexes = [veth(node, pod, f"flock0000000{n}", f"eth{n}") for n in range(4)]
    node.netlink.run([r.set_group(index, 1 << 30) for index in indexes[:3]])
    node.netlink.run([r.delete_group(1 << 30)])
    assert sorted(x["ifname"] for x in node.ip("link")) == ["flock00000003", "lo"]


# --- addresses, routes, neighbours ---


def test_addresses_are_usable_at_once(node: Space, pod: Space) -> None:
    index = veth(node, pod)
    wanted = [("2001:db8::2", 128), ("fe80::1", 64), ("192.0.2.2", 32)]
    node.netlink.run([r.add_address(index, packed(a), length) for a, length in wanted])
    [shown] = node.ip("addr", "show", "dev", "flock00000001")
    assert {(x["local"], x["prefixlen"]) for x in shown["addr_info"]} == set(wanted)
    assert not any(x.get("tentative") or x.get("dadfailed") for x in shown["addr_info"])
    read = [a for a in node.netlink.dump(r.dump_addresses(), r.Address.decode) if a.index == index]
    assert {(str(ip_address(a.address)), a.length) for a in read} == set(wanted)
    assert not any(a.flags & (w.IFA_F_TENTATIVE | w.IFA_F_DADFAILED) for a in read)


def test_adding_an_address_again_is_no_error_and_deleting_removes_it(node: Space, pod: Space) -> None:
    index = veth(node, pod)
    for text in ("2001:db8::2", "192.0.2.2"):
        length = 8 * len(packed(text))
        node.netlink.run([r.add_address(index, packed(text), length)] * 2)
        node.netlink.run([r.delete_address(index, packed(text), length)])
        with pytest.raises(KernelRefused) as caught:
            node.netlink.run([r.delete_address(index, packed(text), length)])
        assert caught.value.errno == errno.EADDRNOTAVAIL
    assert node.ip("addr", "show", "dev", "flock00000001")[0]["addr_info"] == []


@pytest.mark.parametrize(("family", "address"), [("-6", "2001:db8::2"), ("-4", "192.0.2.2")])
def test_a_host_route_is_what_ip_shows_and_what_is_read_back(
    node: Space, pod: Space, family: str, address: str
) -> None:
    index = veth(node, pod)
    wanted = r.host_route(packed(address), index=index, protocol=PROTO_POD, metric=20)
    node.netlink.run([r.add_route(wanted), r.add_route(wanted)])
    [shown] = [x for x in node.ip(family, "route") if x["dst"] == address]
    assert (shown["dev"], shown["protocol"], shown["metric"]) == ("flock00000001", str(PROTO_POD), 20)
    fam = r.family(packed(address))
    assert [x for x in node.netlink.dump(r.dump_routes(fam), r.Route.decode) if x.protocol == PROTO_POD] == [wanted]
    looked_up = r.Route.decode(node.netlink.get(r.get_route(packed(address))))
    assert looked_up.index == index


def test_a_default_route_over_an_on_link_gateway(node: Space, pod: Space) -> None:
    veth(node, pod)
    index = pod.index("eth0")
    pod.netlink.run([r.add_address(index, packed("192.0.2.2"), 32), r.add_address(index, packed("2001:db8::2"), 128)])
    v4 = r.Route(w.AF_INET, b"", 0, index, packed("169.254.1.1"), onlink=True)
    v6 = r.Route(w.AF_INET6, b"", 0, index, GATEWAY)
    pod.netlink.run([r.add_route(v4), r.add_route(v6)])
    [shown4] = pod.ip("-4", "route", "show", "default")
    [shown6] = pod.ip("-6", "route", "show", "default")
    assert (shown4["gateway"], shown4["dev"], shown4["flags"]) == ("169.254.1.1", "eth0", ["onlink"])
    assert (shown6["gateway"], shown6["dev"]) == ("fe80::1", "eth0")
    assert v4 in pod.netlink.dump(r.dump_routes(w.AF_INET), r.Route.decode)


@pytest.mark.parametrize("address", ["2001:db8::2", "192.0.2.2"])
def test_only_the_route_with_the_same_protocol_and_metric_is_deleted(node: Space, pod: Space, address: str) -> None:
    index = veth(node, pod)
    routes = [
        r.host_route(packed(address), index=index, protocol=protocol, metric=metric)
        for protocol, metric in [(PROTO_POD, 20), (w.RTPROT_BOOT, 1024), (PROTO_ANNOUNCE, 30)]
    ]
    node.netlink.run([r.add_route(route) for route in routes])
    wrong = r.host_route(packed(address), index=index, protocol=PROTO_POD, metric=30)
    with pytest.raises(KernelRefused) as caught:
        node.netlink.run([r.delete_route(wrong)])
    assert caught.value.errno == errno.ESRCH
    node.netlink.run([r.delete_route(routes[0])])
    left = [x for x in node.netlink.dump(r.dump_routes(r.family(packed(address))), r.Route.decode) if x.dst]
    assert {(x.protocol, x.metric) for x in left if x.dst == packed(address)} == {
        (w.RTPROT_BOOT, 1024),
        (PROTO_ANNOUNCE, 30),
    }


def test_neighbours_are_permanent_and_replaced(node: Space, pod: Space) -> None:
    index = veth(node, pod)
    for mac in (HOST, POD):
        node.netlink.run([r.add_neighbour(index, packed(a), mac) for a in ("2001:db8::2", "192.0.2.2")])
    shown = {x["dst"]: (x["lladdr"], x["state"]) for x in node.ip("neigh", "show", "dev", "flock00000001")}
    assert shown == {a: (POD.hex(":"), ["PERMANENT"]) for a in ("2001:db8::2", "192.0.2.2")}
    read = [n for n in node.netlink.dump(r.dump_neighbours(), r.Neighbour.decode) if n.permanent]
    assert {(n.index, n.address, n.mac) for n in read if n.mac == POD} == {
        (index, packed("2001:db8::2"), POD),
        (index, packed("192.0.2.2"), POD),
    }


# --- batches and errors ---


def missing_route(number: int) -> r.Request:
    address = bytes([10, 0, number >> 8, number & 255])
    return r.delete_route(r.host_route(address, index=LOOPBACK, protocol=PROTO_POD, metric=20))


def test_the_first_refusal_is_reported_in_the_kernel_s_words_and_the_rest_is_done(node: Space, pod: Space) -> None:
    index = veth(node, pod)
    unreachable = r.Route(w.AF_INET, packed("198.51.100.1"), 32, gateway=packed("203.0.113.1"))
    with pytest.raises(KernelRefused) as caught:
        node.netlink.run([r.add_route(unreachable), missing_route(1), r.set_alias(index, "done all the same")])
    assert caught.value.code == Code.KERNEL_REFUSED
    assert caught.value.errno == errno.ENETUNREACH
    assert caught.value.msg == "add a route: Network is unreachable (Nexthop has invalid gateway)"
    assert node.link(index).alias == "done all the same"


def test_expected_errors_are_passed_over_and_others_are_not(node: Space) -> None:
    node.netlink.run([missing_route(1), missing_route(2)], ignore=[errno.ESRCH])
    with pytest.raises(KernelRefused) as caught:
        node.netlink.run([missing_route(1), r.set_up(4711), missing_route(2)], ignore=[errno.ESRCH])
    assert caught.value.errno == errno.ENODEV


def test_an_empty_batch_asks_nothing(node: Space) -> None:
    node.netlink.run([])
    assert node.netlink.link("lo") is not None


def test_a_refusal_early_in_a_large_batch_does_not_stop_the_rest(node: Space) -> None:
    with pytest.raises(KernelRefused):
        node.netlink.run([missing_route(1), *[r.set_up(LOOPBACK)] * 600, r.set_alias(LOOPBACK, "the last")])
    assert node.link("lo").alias == "the last"


@pytest.mark.parametrize("size", [1, 255, 256, 257, 3000])
def test_batches_of_any_size_are_answered_even_if_all_of_it_is_refused(node: Space, size: int) -> None:
    node.netlink.run([missing_route(n) for n in range(size)], ignore=[errno.ESRCH])
    with pytest.raises(KernelRefused) as caught:
        node.netlink.run([missing_route(n) for n in range(size)])
    assert caught.value.errno == errno.ESRCH
    unreachable = r.Route(w.AF_INET, packed("198.51.100.1"), 32, gateway=packed("203.0.113.1"))
    node.netlink.run([r.add_route(unreachable)] * size, ignore=[errno.ENETUNREACH])
    assert node.link("lo").name == "lo"


def test_a_large_batch_is_carried_out_and_a_large_dump_is_complete(node: Space, pod: Space) -> None:
    index = veth(node, pod)
    wanted = [
        r.host_route(packed(f"2001:db8::{n:x}"), index=index, protocol=PROTO_POD, metric=20) for n in range(1, 2001)
    ]
    node.netlink.run([r.add_route(route) for route in wanted])
    read = [x for x in node.netlink.dump(r.dump_routes(w.AF_INET6), r.Route.decode) if x.protocol == PROTO_POD]
    assert sorted(read, key=lambda x: x.dst) == wanted
    node.netlink.run([r.delete_route(route) for route in wanted])
    assert not [x for x in node.ip("-6", "route") if x["protocol"] == str(PROTO_POD)]


def test_a_request_for_something_that_is_not_there_is_refused(node: Space) -> None:
    with pytest.raises(KernelRefused, match="look up link nothing0"):
        node.netlink.get(r.get_link("nothing0"))


def test_a_failing_socket_is_reported_as_a_refusal_and_works_again(
    node: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults()
    faults.arm("netlink.send=ENOBUFS")
    with monkeypatch.context() as patch:
        patch.setattr(socket_module, "faults", faults)
        with pytest.raises(KernelRefused) as caught:
            node.netlink.run([r.set_up(LOOPBACK)])
        assert caught.value.errno == errno.ENOBUFS
        with pytest.raises(KernelRefused):
            node.netlink.link("lo")
    node.netlink.run([r.set_up(LOOPBACK)])
    assert node.link("lo").up


def test_an_answer_to_an_earlier_request_is_not_taken_for_the_next_one(node: Space) -> None:
    stale = w.message(w.RTM_GETLINK, 0, 0, r.get_link("lo").body)
    node.netlink._socket.send(stale)
    with pytest.raises(KernelRefused):
        node.netlink.get(r.get_link("nothing0"))
    node.netlink._socket.send(stale)
    assert node.netlink.dump(r.dump_routes(w.AF_INET), r.Route.decode) == []


def test_a_socket_stays_in_the_namespace_it_was_opened_in(node: Space, pod: Space) -> None:
    veth(node, pod)
    assert pod.open(lambda: node.netlink.link("flock00000001")) is not None
    assert pod.netlink.link("flock00000001") is None


# --- what is ours ---


def test_an_observation_shows_our_links_and_what_is_on_them_and_nothing_else(node: Space, pod: Space) -> None:
    ours, other = veth(node, pod), veth(node, pod, "other0", "eth1")
    node.netlink.run([r.set_up(LOOPBACK)])
    for index, text in ((ours, "2001:db8::2"), (ours, "192.0.2.2"), (other, "2001:db8::3"), (other, "192.0.2.3")):
        route = r.host_route(packed(text), index=index, protocol=PROTO_POD, metric=20)
        node.netlink.run([r.add_route(route), r.add_neighbour(index, packed(text), POD)])
        node.netlink.run([r.add_address(index, GATEWAY, 64)])
    node.ip("route", "add", "198.51.100.0/24", "dev", "other0")
    node.ip("route", "add", "203.0.113.9", "dev", "flock00000001", "proto", "static")
    node.ip("route", "add", "203.0.113.10", "dev", "flock00000001", "proto", PROTO_POD, "table", "100")
    node.ip("neigh", "add", "192.0.2.77", "lladdr", "02:00:00:00:00:77", "dev", "flock00000001", "nud", "stale")

    seen = observe(node.netlink)
    assert {name: link.index for name, link in seen.links.items()} == {"flock00000001": ours}
    assert seen.gateways == {ours}
    assert seen.neighbours[ours].keys() == {packed("2001:db8::2"), packed("192.0.2.2")}
    assert seen.neighbours.keys() == {ours}
    assert {(x.dst, x.length) for x in seen.stray_routes} == {(packed("2001:db8::3"), 128), (packed("192.0.2.3"), 32)}
    shown = [x for family in ("-4", "-6") for x in node.ip(family, "route", "show", "dev", "flock00000001")]
    assert seen.routes.keys() == {ours}
    assert sorted(str(ip_address(x.dst)) for x in seen.routes[ours] if x.dst) == sorted(
        x["dst"].partition("/")[0] for x in shown
    )


def test_an_empty_namespace_has_nothing_of_ours(node: Space) -> None:
    seen = observe(node.netlink)
    assert (seen.links, seen.routes, seen.stray_routes, seen.neighbours, seen.gateways) == (
        {},
        {},
        [],
        {},
        frozenset(),
    )


# --- being told ---


def looped(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE))

    return run


class Ear:
    """A monitor in a namespace, and what it said."""

    def __init__(self, space: Space) -> None:
        self.heard: list[tuple[int, int]] = []
        self.links: list[r.Link] = []
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
        if event.link is not None:
            self.links.append(event.link)
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
        mark = f"mark {next(_numbers)}"
        self._space.netlink.run([r.set_alias(LOOPBACK, mark)])
        await self.until(lambda: any(link.alias == mark for link in self.links))
        heard, self.heard = self.heard, []
        return [event for event in heard if event[1] != LOOPBACK]


@looped
async def test_losses_on_a_link_are_told_with_its_index(node: Space, pod: Space) -> None:
    index = veth(node, pod)
    route = r.host_route(packed("192.0.2.2"), index=index, protocol=PROTO_POD, metric=20)
    node.netlink.run([r.add_route(route), r.add_neighbour(index, packed("192.0.2.2"), POD)])
    node.netlink.run([r.add_address(index, GATEWAY, 64)])
    async with Ear(node) as ear:
        node.ip("route", "del", "192.0.2.2", "dev", "flock00000001")
        assert (w.RTM_DELROUTE, index) in await ear.listen()
        node.ip("neigh", "del", "192.0.2.2", "dev", "flock00000001")
        assert (w.RTM_DELNEIGH, index) in await ear.listen()
        node.ip("addr", "del", "fe80::1/64", "dev", "flock00000001")
        assert (w.RTM_DELADDR, index) in await ear.listen()
        node.ip("link", "set", "flock00000001", "address", "02:aa:aa:aa:aa:aa")
        assert (w.RTM_NEWLINK, index) in await ear.listen()
        assert any(x.index == index and x.mac == bytes.fromhex("02aaaaaaaaaa") for x in ear.links)
        node.ip("link", "del", "flock00000001")
        assert (w.RTM_DELLINK, index) in await ear.listen()


@looped
async def test_new_routes_and_neighbours_do_not_wake_us(node: Space, pod: Space) -> None:
    index = veth(node, pod)
    async with Ear(node) as ear:
        await ear.listen()
        for text in ("192.0.2.2", "2001:db8::2"):
            route = r.host_route(packed(text), index=index, protocol=PROTO_POD, metric=20)
            node.netlink.run([r.add_route(route), r.add_neighbour(index, packed(text), POD)])
        assert await ear.listen() == []


@looped
async def test_other_namespaces_are_not_heard(node: Space, pod: Space) -> None:
    veth(node, pod)
    async with Ear(node) as ear:
        await ear.listen()
        pod.netlink.run([r.set_alias(pod.index("eth0"), "changed")])
        assert await ear.listen() == []


@looped
async def test_an_overrun_is_told_and_hearing_goes_on(node: Space) -> None:
    async with Ear(node) as ear:
        ear.monitor._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the kernel's least
        for n in range(200):  # the loop does not run meanwhile, so nobody reads
            node.netlink.run([r.set_alias(LOOPBACK, f"flood {n}")])
        await ear.until(lambda: ear.overruns > 0)
        await ear.listen()


@looped
async def test_the_changes_of_a_thousand_deletions_fit_the_buffer(node: Space) -> None:
    async with Ear(node) as ear:
        routes = [
            r.host_route(bytes([10, 0, n >> 8, n & 255]), index=LOOPBACK, protocol=PROTO_POD, metric=20)
            for n in range(4000)
        ]
        node.netlink.run([r.add_route(route) for route in routes])
        node.netlink.run([r.delete_route(route) for route in routes])
        await ear.listen()
        assert ear.overruns == 0
