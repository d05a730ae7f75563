"""Our netlink against the real kernel in throw-away namespaces, with `ip -j` as the second opinion."""

import errno
import subprocess
from ipaddress import ip_address

import pytest
from spaces import GATEWAY, HOST, POD, Space, packed, veth

from flock.core.errors import KernelRefused
from flock.core.naming import PROTO_ANNOUNCE, PROTO_POD
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w
from looping import PATIENCE

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


def test_both_ends_have_one_queue_from_the_beginning(node: Space, pod: Space) -> None:
    """However many cores there are: to give the others up, the kernel waits, once for each end."""
    veth(node, pod)
    for [link] in (node.ip("-d", "link", "show", "flock00000001"), pod.ip("-d", "link", "show", "eth0")):
        assert (link["num_tx_queues"], link["num_rx_queues"]) == (1, 1)


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


@pytest.mark.parametrize("by", ["name", "index"])
def test_deleting_one_end_deletes_both(node: Space, pod: Space, by: str) -> None:
    index = veth(node, pod)
    node.netlink.run([r.delete_link(index if by == "index" else "flock00000001")])
    assert node.netlink.link("flock00000001") is None
    assert pod.netlink.link("eth0") is None


@pytest.mark.parametrize("by", ["name", "index"])
def test_a_group_is_deleted_at_once_and_nothing_else(node: Space, pod: Space, by: str) -> None:
    """One of a name that is nobody's changes nothing, neither what is in the group nor what is in none."""
    indexes = [veth(node, pod, f"flock0000000{n}", f"eth{n}") for n in range(4)]
    some = [f"flock0000000{n}" for n in range(3)] if by == "name" else indexes[:3]
    gone = "flock00000009" if by == "name" else 4711
    requests = [*(r.set_group(link, 1 << 30) for link in some), r.set_group(gone, 1 << 30)]
    with pytest.raises(KernelRefused, match="No such device"):
        node.netlink.run(requests)
    assert [x["ifname"] for x in node.ip("link") if x["group"] == str(1 << 30)] == [
        f"flock0000000{n}" for n in range(3)
    ]
    node.netlink.run([*requests, r.delete_group(1 << 30)], ignore=[errno.ENODEV])
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
