"""What ADD finds in its way: leftovers of our own are replaced, what belongs to others is left alone."""

from pathlib import Path

import pytest
from looking import (
    OWN,
    addresses_of,
    assert_sound,
    failure,
    pod_routes,
)

from harness import CniFailure, Node, with_spec

# Found by search: both names have the same FNV-1a-32, which names the host interface.
COLLIDING = ("c693596", "c1170850")


def test_a_stale_link_of_the_same_name_is_replaced(node: Node) -> None:
    """An unrelated veth that happens to carry the name that this container's host interface will get."""
    name = node.pod("a")["interfaces"][0]["name"]
    node.cni("DEL", "a")
    node.ip("link", "add", name, "type", "veth", "peer", "name", "other")
    result = node.cni("ADD", "a")
    assert result["interfaces"][0]["name"] == name
    assert all(map(node.ping, addresses_of(result)))
    assert_sound(node)


def test_our_own_leftover_is_replaced(node: Node) -> None:
    """The link of a container whose entry was lost, its peer still in the pod, addresses and all."""
    node.pod("a")
    node.kill()
    (node.state_dir / "allocations.json").unlink()
    node.start()
    result = node.cni("ADD", "a")
    assert all(map(node.ping, addresses_of(result)))
    assert_sound(node)


def test_a_leftover_of_another_container_in_the_same_namespace_is_replaced(node: Node) -> None:
    """One that nothing tells the owner of; else it would be adopted."""
    link = node.pod("a")["interfaces"][0]["name"]
    node.kill()
    (node.state_dir / "allocations.json").unlink()
    node.ip("link", "set", link, "alias", "somebody's")
    node.start()
    result = node.cni("ADD", "b", netns=node.path("a"))
    assert all(map(node.ping, addresses_of(result)))
    assert_sound(node)


def test_two_containers_whose_interface_names_collide_both_work(node: Node) -> None:
    results = [node.pod(name) for name in COLLIDING]
    assert results[0]["interfaces"][0]["name"] != results[1]["interfaces"][0]["name"]
    for result in results:
        assert all(map(node.ping, addresses_of(result)))
    assert_sound(node)
    node.kill()
    node.start()
    assert_sound(node)
    node.cni("DEL", COLLIDING[0])
    assert all(map(node.ping, addresses_of(results[1])))
    assert node.cni("ADD", COLLIDING[1])["ips"] == results[1]["ips"]
    assert_sound(node)
    node.cni("DEL", COLLIDING[1])
    assert_sound(node)


def test_two_colliding_containers_added_at_once_both_work(node: Node) -> None:
    for name in COLLIDING:
        node.namespace(name)
    started = [node.cni_start("ADD", name) for name in COLLIDING]
    assert all(process.wait(30) == 0 for process in started)
    assert_sound(node)
    assert len(node.links()) == 2


def test_an_interface_in_the_pod_that_is_not_ours_is_an_error_and_stays(node: Node) -> None:
    node.namespace("a")
    node.ip("link", "add", "eth0", "type", "veth", "peer", "name", "other", inside="a")
    failed = failure(node, "ADD", "a")
    assert failed.code >= 100 and "eth0" in failed.msg
    assert {x["ifname"] for x in node.ip_json("link", inside="a")} == {"lo", "eth0", "other"}
    assert not node.allocations() and not node.links() and not pod_routes(node)
    assert node.cni("ADD", "a", ifname="net1")["interfaces"][1]["name"] == "net1"


def test_the_nodes_own_namespace_is_an_error(node: Node) -> None:
    failed = failure(node, "ADD", "a", netns=f"/run/netns/{node.netns}")
    assert failed.code >= 100 and "own" in failed.msg
    assert not node.allocations() and not node.links()


@pytest.mark.parametrize("what", ["file", "directory", "missing", "other namespace"])
def test_a_path_that_is_no_network_namespace_is_an_error(node: Node, tmp_path: Path, what: str) -> None:
    path = tmp_path / "ns"
    if what == "file":
        path.write_text("no namespace")
    elif what == "directory":
        path.mkdir()
    elif what == "other namespace":
        path = Path("/proc/self/ns/uts")
    failed = failure(node, "ADD", "a", netns=str(path))
    assert failed.code == 4 and "CNI_NETNS" in failed.msg and str(path) in failed.msg
    assert not node.allocations() and not node.links()
    assert len(node.ask("pods")) == 0


def test_the_namespace_of_another_pod_is_refused_and_that_pod_unharmed(fresh: Node) -> None:
    """Also its anycast addresses, which the refused container asks for too."""
    grants = {"allowed": [{"prefixes": ["2001:db8:53::/64"]}]}
    fresh.write("nodeconfig", with_spec(anycast=grants))
    fresh.start()
    asked = {OWN + "anycast": "2001:db8:53::53"}
    result = fresh.pod("a", annotations=asked)
    with pytest.raises(CniFailure):
        fresh.cni("ADD", "b", netns=fresh.path("a"), annotations=asked)
    assert all(map(fresh.ping, addresses_of(result)))
    assert_sound(fresh)


def test_a_link_of_another_pod_that_only_has_the_same_numbers_is_left_alone(node: Node) -> None:
    """Numbers of links are each namespace's own: what is in the way leads to a third one, to the number that a link of
    ours, which nobody has on record, has on the node."""
    for name in ("z", "x", "third"):
        node.namespace(name)
    far = ("netns", f"{node.prefix}z", "index", 7)
    node.ip("link", "add", "flockdeadbeef", "index", 4711, "type", "veth", "peer", "name", "eth0", *far)
    third = ("netns", f"{node.prefix}third", "index", 4711)
    node.ip("link", "add", "eth0", "index", 7, "type", "veth", "peer", "name", "other", *third, inside="x")
    assert failure(node, "ADD", "x").code == 106
    assert set(node.links()) == {"flockdeadbeef"}
    assert {link["ifname"] for link in node.ip_json("link", inside="x")} == {"lo", "eth0"}
