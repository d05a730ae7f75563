"""A node's own addresses, by which it is decided what no pod may have: pods' links are not among them."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spaces import LOOPBACK, Space, packed, veth

from flock.edge.kernel.node import read_facts, ways_out
from flock.edge.netlink import route as r
from flock.edge.netlink.socket import Netlink
from namespaces import within


class Interrupted:
    """The node's netlink, with something that happens between the first dump and the next."""

    def __init__(self, node: Space, then: Callable[[], object]) -> None:
        self._node, self._then = node, then
        self._dumps = 0

    def dump(self, *args: Any) -> Any:
        self._dumps += 1
        if self._dumps == 2:
            self._then()
        return self._node.netlink.dump(*args)


def test_an_interface_s_addresses_are_the_node_s_and_a_pod_s_link_has_none_of_them(node: Space, pod: Space) -> None:
    node.netlink.run([r.set_up(LOOPBACK), r.add_address(LOOPBACK, packed("198.51.100.7"), 32)])
    gateway = veth(node, pod)
    node.netlink.run([r.add_address(gateway, packed("fe80::1"), 64)])
    facts = read_facts(node.netlink, "n1")
    assert [(a.interface, str(a.address)) for a in facts.addresses] == [("lo", "198.51.100.7/32")]


def test_addresses_of_privacy_extensions_are_told_from_those_that_stay() -> None:
    def look() -> list[tuple[int, bool]]:
        Path("/proc/sys/net/ipv6/conf/default/use_tempaddr").write_text("2\n")
        for command in (
            "link add up0 type bridge",
            "link set up0 up",
            "address add 2001:db8::1:2:3:4/64 dev up0 mngtmpaddr valid_lft 9000 preferred_lft 9000 nodad",
            "address add 198.51.100.7/24 dev up0",
            "address add 198.51.100.8/24 dev up0",  # secondary: the same bit, and it stays
        ):
            subprocess.run(["ip", *command.split()], check=True)
        with Netlink() as netlink:
            addresses = read_facts(netlink, "n1").addresses
        return sorted((a.address.version, a.temporary) for a in addresses if not a.address.ip.is_link_local)

    assert within(None, look) == [(4, False), (4, False), (6, False), (6, True)]


def test_a_pod_s_link_that_comes_while_the_node_is_looked_at_is_not_taken_for_the_node_s(
    node: Space, pod: Space
) -> None:
    """Else its gateway would be an address of the node until the next look."""

    def attach() -> None:
        node.netlink.run([r.add_address(veth(node, pod), packed("fe80::1"), 64)])

    netlink: Any = Interrupted(node, attach)
    assert read_facts(netlink, "n1").addresses == ()


def test_a_way_out_is_a_default_route_that_leads_somewhere_whoever_made_it() -> None:
    def looks() -> list[frozenset[str]]:
        found = [ways_out()]
        for command in (
            "link add up0 type bridge",
            "link set up0 up",
            "-6 route add unreachable default metric 4278198272",
            "-6 route add 2001:db8::/32 dev up0",
            "route add 0.0.0.0/1 dev up0",  # half of all, as some VPNs have it
            "-6 route add default dev up0 proto ra metric 1024",
        ):
            subprocess.run(["ip", *command.split()], check=True)
            found.append(ways_out())
        return found

    none, four = frozenset[str](), frozenset({"ipv4"})
    assert within(None, looks) == [none, none, none, none, none, four, frozenset({"ipv6", "ipv4"})]
