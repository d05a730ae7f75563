"""What is ours in a namespace, as it is read at once and as we are told of changes."""

import socket
from ipaddress import ip_address

from spaces import GATEWAY, LOOPBACK, POD, Ear, Space, packed, veth

from flock.core.naming import PROTO_POD
from flock.edge.kernel.observe import observe
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w
from looping import looped

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
        told = [x for x in ear.links if x.index == index]
        assert told[-1].mac == bytes.fromhex("02aaaaaaaaaa")
        assert told[-1].up
        node.ip("link", "set", "flock00000001", "down")
        await ear.listen()
        assert not [x for x in ear.links if x.index == index][-1].up
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
