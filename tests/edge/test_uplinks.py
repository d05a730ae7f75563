"""By which links what is beyond a host is reached: of one next hop, of several, and not at all."""

from spaces import Space

from flock.edge.kernel.uplinks import uplinks
from namespaces import within


def found(node: Space) -> dict[int, list[str]]:
    return within(
        f"/run/netns/{node.name}", lambda: {v: [link.name for link in links] for v, links in uplinks().items()}
    )


def wire(node: Space, *names: str) -> None:
    for number, name in enumerate(names, start=1):
        node.ip("link", "add", name, "type", "veth", "peer", "name", f"far{number}")
        for end in (name, f"far{number}"):
            node.ip("link", "set", end, "up")
        node.ip("addr", "add", f"198.51.{number}.1/24", "dev", name)
        node.ip("addr", "add", f"2001:db8:{number}::1/64", "dev", name, "nodad")


def test_without_a_default_route_none_is_known(node: Space) -> None:
    node.ip("link", "set", "lo", "up")
    wire(node, "eth0")
    assert found(node) == {4: [], 6: []}
    node.ip("route", "add", "blackhole", "default")
    assert found(node) == {4: [], 6: []}


def test_each_family_has_its_own(node: Space) -> None:
    wire(node, "eth0", "eth1")
    node.ip("route", "add", "default", "via", "198.51.1.2")
    node.ip("-6", "route", "add", "default", "via", "2001:db8:2::2")
    assert found(node) == {4: ["eth0"], 6: ["eth1"]}


def test_all_next_hops_of_a_route_count(node: Space) -> None:
    wire(node, "eth0", "eth1")
    node.ip("route", "add", "default", "nexthop", "via", "198.51.1.2", "nexthop", "via", "198.51.2.2")
    both = ("nexthop", "via", "2001:db8:1::2", "nexthop", "via", "2001:db8:2::2")
    node.ip("-6", "route", "add", "default", *both)
    assert {version: sorted(names) for version, names in found(node).items()} == {
        4: ["eth0", "eth1"],
        6: ["eth0", "eth1"],
    }


def test_pods_links_are_none(node: Space) -> None:
    wire(node, "flock00000001")
    node.ip("route", "add", "default", "via", "198.51.1.2")
    assert found(node)[4] == []
