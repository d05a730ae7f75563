"""The state directory is empty or another one: pods that run are adopted from the kernel, or left alone and shown."""

from typing import Any

import pytest
from anycasting import ANYCAST, announced, anycast_pod, granting
from looking import OWN, addresses_of, failure, flockctl, outcome, settle, undisturbed

from flock.edge.netlink.socket import GLIMPSE
from harness import CniFailure, Node, eventually, run
from thoroughness import slowly

EXTRA = "2001:db8:53::7"
WHERE = ("netns", "netns_id", "netns_cookie", "boot_id", "ifname")
KEPT = ("namespace", "pod_name", "ip6", "ip4", "anycast", *WHERE, "mac", "mtu")


@pytest.fixture
def running(fresh: Node) -> Node:
    grants = {"allowed": [{"prefixes": ["2001:db8:53::/64"]}]}
    fresh.write("nodeconfig", granting(addresses=grants))
    fresh.start()
    return fresh


def lose_state(node: Node) -> dict[str, Any]:
    """Kill the agent and take its file away; returns what was on record."""
    node.kill()
    before = node.allocations()
    (node.state_dir / "allocations.json").unlink()
    return before


def deny_all() -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "deny", "namespace": "default"},
        "spec": {"podSelector": {"matchLabels": {"closed": "yes"}}, "policyTypes": ["Ingress"]},
    }


def test_pods_that_run_are_adopted_when_the_file_is_lost(running: Node) -> None:
    first = anycast_pod(running, "a")
    running.write("pod-b", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b", "namespace": "default"}})
    second = running.pod("b", annotations={OWN + "addresses": f"{EXTRA},2001:db8:53::8"})
    links = {name: link["ifindex"] for name, link in running.links().items()}
    with undisturbed(running, *addresses_of(first), addresses_of(second)[0], ANYCAST):
        before = lose_state(running)
        running.start()
        assert {name: link["ifindex"] for name, link in running.links().items()} == links
        eventually(lambda: announced(running) and ANYCAST in running.ask("status")["announced"], what="anycast goes on")
        after = running.allocations()
        for name in ("a", "b"):
            for key in KEPT:
                assert after[name].get(key) == before[name].get(key), key
        assert set(after["b"]["addresses"]) <= {EXTRA, "2001:db8:53::8"} and after["b"]["addresses"]
        for result in (first, second):
            assert not set(addresses_of(running.pod(f"new{len(running.links())}"))) & set(addresses_of(result))
        running.cni("CHECK", "a", prevResult=first)
        assert flockctl(running, "check", "--repair").returncode == 0, flockctl(running, "check").stdout
        assert running.cni("ADD", "a") == first
    for name in ("a", "b"):
        running.cni("DEL", name, netns="")
    settle_links(running, 2)


def settle_links(node: Node, number: int) -> None:
    eventually(lambda: len(node.links()) == number, what=f"{number} links are left")


def test_an_adopted_pod_stays_isolated(running: Node) -> None:
    running.write("policy", deny_all())
    pod = {"name": "b", "namespace": "default", "labels": {"closed": "yes"}}
    running.write("pod-b", {"apiVersion": "v1", "kind": "Pod", "metadata": pod})
    running.pod("a")
    closed = addresses_of(running.pod("b"))[0]
    assert not running.ping(closed, inside="a")
    lose_state(running)
    running.start()
    assert not running.ping(closed, inside="a")
    assert running.ping(addresses_of(running.pod("c"))[0], inside="b"), "and may go on sending from its address"


def test_a_half_made_pod_that_has_its_note_is_still_taken_down(running: Node) -> None:
    running.pod("a")
    running.namespace("b")
    running.stop()
    running.start(fault="add.host-side=kill@1")
    adding = running.cni_start("ADD", "b", wait=0)
    assert isinstance(outcome(adding), CniFailure)
    lose_state(running)
    running.start()
    assert set(running.allocations()) == {"a"}
    settle_links(running, 1)


@pytest.mark.parametrize("step", ["add.host-side", *slowly("add.link")])
def test_a_half_made_pod_whose_note_is_lost_is_not_taken_for_a_whole_one(running: Node, step: str) -> None:
    running.pod("a")
    running.namespace("b")
    running.stop()
    running.start(fault=f"{step}=kill@1")
    assert isinstance(outcome(running.cni_start("ADD", "b", wait=0)), CniFailure)
    running.kill()
    for note in (running.run_dir / "pending").iterdir():
        note.unlink()
    running.start()
    assert set(running.allocations()) == {"a"}
    assert all(map(running.ping, addresses_of(running.cni("ADD", "b"))))
    settle(running)


def test_a_link_nobody_can_tell_the_pod_of_is_left_alone_and_shown(running: Node) -> None:
    result = running.pod("a")
    running.namespace("x")
    running.ip("link", "add", "flockdeadbeef", "type", "veth", "peer", "name", "eth0", "netns", f"{running.prefix}x")
    running.ip("link", "add", "flockdeadbee0", "type", "veth", "peer", "name", "left0")
    flockctl(running, "check", "--repair")
    eventually(lambda: "flockdeadbeef" in str(running.ask("status")["degraded"]), what="it is shown")
    shown = flockctl(running, "check", "--repair")
    assert shown.returncode and "flockdeadbeef" in shown.stdout
    running.stop()
    running.start()
    eventually(lambda: "flockdeadbee0" not in running.links(), what="what leads nowhere goes")
    eventually(lambda: "flockdeadbeef" in str(running.ask("status")["degraded"]), what="it is shown again")
    assert "flockdeadbeef" in running.links()
    running.remove_namespace("x")
    eventually(lambda: "flockdeadbeef" not in running.links(), what="its namespace took it along")
    assert flockctl(running, "check", "--repair").returncode == 0
    assert "flockdeadbeef" not in str(running.ask("status")["degraded"])
    assert running.cni("ADD", "a") == result
    settle(running)


def test_an_alias_that_does_not_fit_its_link_adopts_nobody(running: Node) -> None:
    running.namespace("x")
    running.ip("link", "add", "flockdeadbeef", "type", "veth", "peer", "name", "eth0", "netns", f"{running.prefix}x")
    running.ip("link", "set", "flockdeadbeef", "alias", "flock pod=shop/web-0 container=abc")
    lose = running.state_dir / "allocations.json"
    running.kill()
    lose.unlink(missing_ok=True)
    running.start()
    assert not running.allocations()
    assert failure(running, "CHECK", "abc").code == 3


# --- what a pod does to its own side ---


def test_a_pod_that_renamed_its_link_is_adopted_as_what_it_was_and_detached(running: Node) -> None:
    result = running.pod("a")
    for change in ("eth0 down", "eth0 name mine", "mine up"):
        running.ip("link", "set", *change.split(), inside="a")
    running.ip("addr", "add", f"{addresses_of(result)[0]}/128", "dev", "mine", "nodad", inside="a")
    lose_state(running)
    running.start()
    assert running.allocations()["a"]["ifname"] == "eth0", "as the runtime called it"
    running.cni("DEL", "a")
    assert not running.allocations()
    settle_links(running, 0)


def test_an_interface_of_another_name_is_known_by_the_nodes_side(running: Node) -> None:
    running.pod("a", ifname="net1")
    lose_state(running)
    running.start()
    assert running.allocations()["a"]["ifname"] == "net1"
    running.cni("CHECK", "a", ifname="net1")
    running.cni("DEL", "a", ifname="net1")
    assert not running.allocations()


def test_a_pod_with_more_addresses_than_anybody_reads_is_adopted_like_others(running: Node) -> None:
    anycast_pod(running, "a")
    own = "".join(f"addr add 2001:db8:99::{n:x}/128 dev lo nodad\n" for n in range(GLIMPSE))
    run("ip", "-6", "-n", f"{running.prefix}a", "-batch", "-", input=own)
    before = lose_state(running)
    running.start()
    after = running.allocations()
    for key in ("ip6", "ip4", "anycast", "netns", "netns_id"):
        assert after["a"].get(key) == before["a"].get(key), key
    running.cni("DEL", "a")
    assert not running.allocations()
