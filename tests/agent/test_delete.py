"""DEL: from the store alone, twice, late, in any order, and never at another's cost."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from anycasting import OWN, granting
from looking import addresses_of, assert_sound, failure, outcome, pod_side, undisturbed

from harness import CniFailure, Node, eventually


def test_del_leaves_nothing(node: Node) -> None:
    result = node.pod("a")
    assert node.cni("DEL", "a", prevResult=result) is None
    assert not node.allocations() and not node.links()
    assert pod_side(node.path("a")) == {"lo": set()}
    assert_sound(node)


def test_del_as_containerd_calls_it(node: Node) -> None:
    """First with namespace and prevResult, then again with neither, when the namespace is gone."""
    result = node.pod("a")
    node.cni("DEL", "a", prevResult=result)
    node.remove_namespace("a")
    assert node.cni("DEL", "a", netns="") is None


def test_del_with_neither_namespace_nor_prevresult_works_from_the_store(node: Node) -> None:
    node.pod("a")
    node.cni("DEL", "a", netns="", args="")
    assert_sound(node)
    assert not node.allocations()


def test_del_after_the_namespace_is_gone(node: Node) -> None:
    node.pod("a")
    node.remove_namespace("a")
    node.cni("DEL", "a", netns="")
    assert_sound(node)
    assert not node.allocations()


@pytest.mark.parametrize("netns", ["", "/run/netns/no-such-namespace"])
def test_del_of_an_unknown_container_succeeds(node: Node, netns: str) -> None:
    assert node.cni("DEL", "stranger", netns=netns) is None


def test_del_of_another_interface_leaves_ours_alone(node: Node) -> None:
    result = node.pod("a")
    with undisturbed(node, *addresses_of(result)):
        assert node.cni("DEL", "a", ifname="net1") is None
    assert_sound(node)
    node.cni("CHECK", "a", prevResult=result)


def test_del_after_a_restart(node: Node) -> None:
    node.pod("a")
    node.kill()
    node.start()
    node.cni("DEL", "a")
    assert_sound(node)
    assert not node.allocations()


def test_twenty_dels_of_one_container_at_once_all_succeed(node: Node) -> None:
    node.pod("a")
    outcomes = [outcome(p) for p in [node.cni_start("DEL", "a") for _ in range(20)]]
    assert outcomes == [None] * 20
    assert_sound(node)


def test_a_late_del_of_the_old_sandbox_leaves_the_new_one_alone(node: Node) -> None:
    """The new sandbox holds the address the old one had, because the pool has no other."""
    spec = {"cidr6": ["2001:db8:1::/64"], "cidr4": ["192.0.2.0/30"]}
    node.write("nodeconfig", {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig",
                              "metadata": {"name": "n1"}, "spec": spec})  # fmt: skip
    node.pod("old")
    node.cni("DEL", "old")
    new = node.pod("new")
    with undisturbed(node, *addresses_of(new)):
        for netns in (None, "", "/run/netns/gone"):
            node.cni("DEL", "old", netns=netns)
    assert_sound(node)


def test_a_del_with_the_namespace_of_another_pod_leaves_that_pod_alone(node: Node) -> None:
    node.pod("a")
    other = node.pod("b")
    with undisturbed(node, *addresses_of(other)):
        node.cni("DEL", "a", netns=node.path("b"))
    assert_sound(node)
    assert set(node.allocations()) == {"b"}


@pytest.mark.parametrize("stdin", [{"version": "9.9.9"}, {"version": "0.1.0"}])
def test_an_unknown_version_is_code_1_and_frees_nothing(node: Node, stdin: dict[str, Any]) -> None:
    node.pod("a")
    assert failure(node, "DEL", "a", **stdin).code == 1
    assert "a" in node.allocations()


def test_released_ipv4_addresses_rest_across_a_restart(node: Node) -> None:
    first = addresses_of(node.pod("a"))[1]
    node.cni("DEL", "a")
    node.kill()
    node.start()
    later = [addresses_of(node.pod(f"p{n}"))[1] for n in range(5)]
    assert first not in later and len(set(later)) == 5


def test_every_order_of_verbs_is_safe(node: Node) -> None:
    """Each verb after each other one, twice; the state afterwards depends on the last ADD or DEL alone."""
    node.namespace("a")
    attached = False
    verbs = ("ADD", "DEL", "CHECK")
    for first in verbs:
        for second in verbs:
            for verb in (first, second, second, first):
                try:
                    node.cni(verb, "a")
                except CniFailure as failed:
                    assert verb == "CHECK" and not attached and failed.code == 3
                else:
                    assert verb != "CHECK" or attached
                attached = attached if verb == "CHECK" else verb == "ADD"
                assert ("a" in node.allocations()) is attached
            assert_sound(node)


def test_an_address_that_was_announced_by_itself_is_taken_back_aloud(fresh: Node) -> None:
    """Routes that go with a link go silently in IPv4, and BIRD, which may look too early, would announce them on."""
    address = "203.0.113.7"
    fresh.write("nodeconfig", granting(addresses={"allowed": [{"prefixes": ["203.0.113.0/24"]}]}))
    fresh.start()
    fresh.pod("a", annotations={OWN + "addresses": address})
    monitor = subprocess.Popen(
        ["ip", "-n", fresh.netns, "-4", "monitor", "route"], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert monitor.stdout is not None
    try:
        eventually(lambda: _listens(monitor.pid), what="the monitor listens")
        fresh.cni("DEL", "a")
        fresh.ip("route", "add", "blackhole", "198.51.100.1")  # the monitor's last line
        told = list(iter(monitor.stdout.readline, "blackhole 198.51.100.1 \n"))
    finally:
        monitor.kill()
        monitor.wait()
    assert any(line.startswith(f"Deleted {address} ") and "proto 134" in line for line in told), told


def _listens(pid: int) -> bool:
    """Its netlink socket is in groups: it has one before it is."""
    sockets = [line.split() for line in Path(f"/proc/{pid}/net/netlink").read_text().splitlines()[1:]]
    return any(fields[2] == str(pid) and int(fields[3], 16) for fields in sockets)


# --- without an agent ---


def test_a_del_without_an_agent_is_done_by_the_next_one(node: Node) -> None:
    results = {name: node.pod(name) for name in ("a", "b")}
    node.kill()
    assert node.cni("DEL", "a", deferDel=True, wait=60) is None
    node.remove_namespace("a")
    node.start()
    assert set(node.allocations()) == {"b"} and not list((node.run_dir / "deferred").iterdir())
    assert_sound(node)
    node.cni("CHECK", "b", prevResult=results["b"])


def test_a_deferred_del_is_done_before_an_add_that_waited_with_it(node: Node) -> None:
    node.pod("a")
    node.kill()
    node.cni("DEL", "a", deferDel=True)
    again = node.cni_start("ADD", "a", wait=60)
    node.start()
    assert outcome(again)["ips"] and set(node.allocations()) == {"a"}
    assert_sound(node)


def test_a_note_that_was_never_taken_back_does_not_cost_the_next_pod_its_network(node: Node) -> None:
    """The executable was killed when the agent had just answered; then the same container was attached again."""
    node.pod("a")
    node.cni("DEL", "a")
    (node.run_dir / "deferred" / "a:eth0").touch()
    result = node.cni("ADD", "a")
    node.kill()
    node.start()
    node.cni("CHECK", "a", prevResult=result)


def test_a_deferred_del_of_another_interface_or_container_harms_nobody(node: Node) -> None:
    result = node.pod("a")
    node.kill()
    for name in ("a:net1", "stranger:eth0", "a"):
        (node.run_dir / "deferred" / name).touch()
    node.start()
    node.cni("CHECK", "a", prevResult=result)
    assert [path.name for path in (node.run_dir / "deferred").iterdir()] == ["a"]


def test_something_else_in_the_place_of_the_notes_harms_nobody(fresh: Node) -> None:
    (fresh.run_dir / "deferred").touch()
    fresh.start()
    fresh.pod("a")
