"""Start and self-heal: what is lost comes back, what is left over goes, the rest is left alone."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from looking import (
    Traffic,
    addresses_of,
    assert_sound,
    collect,
    failure,
    flockctl,
    outcome,
    pod_routes,
    pod_side,
    settle,
    sysctl,
    undisturbed,
)

from flock.agent.healing import SPACING
from harness import NODE_CONFIG, CniFailure, Node, eventually
from namespaces import within
from thoroughness import some


def host(result: dict[str, Any]) -> str:
    name: str = result["interfaces"][0]["name"]
    return name


# --- losses ------------------------------------------------------------------------------------------------------

LOSSES: dict[str, Callable[[Node, dict[str, Any]], object]] = {
    "ipv6 route": lambda n, r: n.ip("-6", "route", "del", addresses_of(r)[0]),
    "ipv4 route": lambda n, r: n.ip("-4", "route", "del", addresses_of(r)[1]),
    "ipv6 neighbour": lambda n, r: n.ip("neigh", "del", addresses_of(r)[0], "dev", host(r)),
    "ipv4 neighbour": lambda n, r: n.ip("neigh", "del", addresses_of(r)[1], "dev", host(r)),
    "gateway address": lambda n, r: n.ip("addr", "flush", "dev", host(r)),
    "host side down": lambda n, r: n.ip("link", "set", host(r), "down"),
    "host MAC": lambda n, r: n.ip("link", "set", host(r), "address", "02:00:00:00:00:42"),
    "host side's IPv6 off": lambda n, r: sysctl(n, f"ipv6/conf/{host(r)}/disable_ipv6", "1"),
    "link": lambda n, r: n.ip("link", "del", host(r)),
    "pod's interface": lambda n, r: n.ip("link", "del", "eth0", inside="a"),
}


@pytest.mark.parametrize("what", some(LOSSES))
def test_what_somebody_takes_away_on_the_host_comes_back(node: Node, what: str) -> None:
    result, other = node.pod("a"), node.pod("b")
    with undisturbed(node, *addresses_of(other)):
        LOSSES[what](node, result)
        eventually(lambda: all(map(node.ping, addresses_of(result))), what=f"{what} is repaired")
    settle(node)
    assert node.cni("ADD", "a")["ips"] == result["ips"]
    node.cni("CHECK", "a", prevResult=result)


@pytest.mark.parametrize("what", some(LOSSES))
def test_what_somebody_took_away_while_the_agent_was_down_comes_back_at_start(node: Node, what: str) -> None:
    result, other = node.pod("a"), node.pod("b")
    node.stop()
    with undisturbed(node, *addresses_of(other)):
        LOSSES[what](node, result)
        node.start()
        settle(node)
    node.cni("CHECK", "a", prevResult=result)
    assert all(map(node.ping, addresses_of(result)))


def test_a_link_of_an_earlier_life_that_goes_down_comes_back(node: Node) -> None:
    """The first word that this agent hears of it."""
    result = node.pod("a")
    node.stop()
    node.start()
    settle(node)
    node.ip("link", "set", host(result), "down")
    eventually(lambda: all(map(node.ping, addresses_of(result))), what="the pod is back")


def test_forwarding_switched_off_while_the_agent_was_down_is_on_again(node: Node) -> None:
    node.pod("a")
    other = node.pod("b")
    node.stop()
    sysctl(node, "ipv4/ip_forward", "0")
    sysctl(node, "ipv6/conf/all/forwarding", "0")
    node.start()
    assert all(node.ping(address, inside="a") for address in addresses_of(other))
    settle(node)


def test_all_links_deleted_at_once_come_back(node: Node) -> None:
    results = [node.pod(f"p{n}") for n in range(10)]
    for result in results:
        node.ip("link", "del", host(result))
    settle(node)
    assert all(node.ping(a) for result in results for a in addresses_of(result))


def test_a_rebuilt_link_that_could_not_be_recorded_is_still_a_whole_one(node: Node) -> None:
    """The pod's link is gone, and the disk refuses to note that it is being made again: no half pod results."""
    result = node.pod("a")
    node.stop()
    node.ip("link", "del", host(result))
    node.start(fault="journal.make=EIO,store.write=ENOSPC@1")
    node.ip("link", "add", "x0", "type", "veth", "peer", "name", "x1")  # wakes the healer once more
    settle(node)
    assert all(map(node.ping, addresses_of(result)))
    node.cni("CHECK", "a", prevResult=result)


@pytest.mark.parametrize(
    "point", some(["add.link", "add.pending", "add.host-side", "add.pod-side", "journal.write", "journal.written"])
)
def test_a_running_pod_whose_link_is_being_rebuilt_survives_a_crash(node: Node, point: str) -> None:
    """Invariant 2: nobody repeats an ADD for it, so its addresses must not be given up."""
    result = node.pod("a")
    node.stop()
    node.ip("link", "del", host(result))
    node.start(wait=False, fault=f"{point}=kill@1")
    assert node.agent is not None and node.agent.wait(20) == -9
    node.agent = None
    node.start()
    settle(node)
    assert addresses_of(node.cni("ADD", "a")) == addresses_of(result)
    assert all(map(node.ping, addresses_of(result)))


@pytest.mark.parametrize(
    "point", some(["netlink.send", "add.link", "add.host-side", "add.pod-side", "journal.make=EIO,store.write"])
)
def test_a_rebuild_that_failed_is_tried_again(node: Node, point: str) -> None:
    result = node.pod("a")
    node.stop()
    node.ip("link", "del", host(result))
    node.start(fault=f"{point}=ENOBUFS@1")
    eventually(lambda: all(map(node.ping, addresses_of(result))), what="the pod is back")
    settle(node)


# --- leftovers ---------------------------------------------------------------------------------------------------


def test_orphan_links_and_routes_go(node: Node) -> None:
    result = node.pod("a")
    time.sleep(2 * SPACING)  # nobody is about to look
    with undisturbed(node, *addresses_of(result)):
        node.ip("-4", "route", "add", "192.0.2.77", "dev", host(result), "proto", "133", "metric", "20")
        node.ip("-6", "route", "add", "2001:db8:1::77", "dev", host(result), "proto", "134", "metric", "20")
        node.ip("-4", "route", "add", "192.0.2.78", "dev", "lo", "proto", "133", "metric", "20")
        node.ip("link", "add", "flockdeadbeef", "type", "veth", "peer", "name", "peer0")
        settle(node)


def test_what_is_not_ours_is_left_alone(node: Node) -> None:
    result = node.pod("a")
    node.ip("link", "add", "flockfoo", "type", "veth", "peer", "name", "flock1234567")
    node.ip("link", "add", "flockXYZ12345", "type", "veth", "peer", "name", "veth0")
    node.ip("link", "set", "flockfoo", "up")
    node.ip("route", "add", "203.0.113.0/24", "dev", "flockfoo")
    node.ip("route", "add", "203.0.113.7", "dev", "flockfoo", "proto", "static", "metric", "20")
    node.ip("-6", "route", "add", "2001:db8:77::/64", "dev", host(result), "proto", "static")
    node.ip("neigh", "add", "203.0.113.9", "lladdr", "02:00:00:00:00:09", "dev", "flockfoo", "nud", "permanent")
    before = [json.dumps(node.ip_json(*what)) for what in FOREIGN]
    for _ in range(3):  # passes by request, and those that events cause
        assert flockctl(node, "check", "--repair").returncode == 0
        node.ip("link", "add", "x0", "type", "veth", "peer", "name", "x1")
        node.ip("link", "del", "x0")
    node.stop()
    node.start()
    assert flockctl(node, "check", "--repair").returncode == 0
    collect(node, "a")
    assert [json.dumps(node.ip_json(*what)) for what in FOREIGN] == before


FOREIGN = (
    ("link", "show", "flockfoo"),
    ("link", "show", "flockXYZ12345"),
    ("route", "show", "dev", "flockfoo"),
    ("-6", "route", "show", "proto", "static"),
    ("neigh", "show", "dev", "flockfoo"),
)


# --- restart, reboot, stop -----------------------------------------------------------------------------------------


def test_a_restart_under_traffic_loses_nothing(node: Node) -> None:
    first, second = node.pod("a"), node.pod("b")
    with undisturbed(node, *addresses_of(first), *addresses_of(second)):
        node.kill()
        node.start()
        node.stop()
        node.start()
    settle(node)
    assert "repaired link" not in node.log.read_text()


def test_sigterm_touches_no_pods(node: Node) -> None:
    result = node.pod("a")

    def everything() -> list[Any]:
        return [node.links(), pod_routes(node), node.allocations(), node.ip("neigh"), pod_side(node.path("a"))]

    before = everything()
    with undisturbed(node, *addresses_of(result)):
        node.stop()
        assert everything() == before
    assert flockctl(node, "status").returncode == 3


def test_calls_under_way_are_answered_when_the_agent_is_told_to_stop(node: Node) -> None:
    names = [f"p{n}" for n in range(20)]
    for name in names:
        node.namespace(name)
    started = [node.cni_start("ADD", name) for name in names]
    node.stop()
    node.start()
    assert not [x for x in map(outcome, started) if isinstance(x, CniFailure)]
    settle(node)
    assert set(node.allocations()) == set(names)


def reboot(node: Node, *names: str) -> None:
    """Namespaces and links are gone, the state file stays, the agent starts anew."""
    node.kill()
    for name in names:
        node.remove_namespace(name)
    gone = {node.allocations()[name]["host_interface"] for name in names}
    eventually(lambda: not gone & set(node.links()), what="the links are gone")


def test_after_a_reboot_pods_are_dead_and_their_addresses_reserved(node: Node) -> None:
    old = {name: node.pod(name) for name in ("a", "b", "c")}
    reboot(node, *old)
    node.start("--grace", "3600")
    rows = {r["container"]: r for r in node.ask("pods")}
    assert {r["state"] for r in rows.values()} == {"dead"}
    assert not pod_routes(node) and not node.links()
    new = addresses_of(node.pod("d"))
    assert not set(new) & {a for r in old.values() for a in addresses_of(r)}
    assert_sound(node, dead={"a", "b", "c"})
    # DEL without namespace, GC, and a new ADD under the old id each resolve one
    node.cni("DEL", "a", netns="")
    node.namespace("b")
    assert addresses_of(node.cni("ADD", "b")) == addresses_of(old["b"])
    collect(node, "b", "d")
    assert set(node.allocations()) == {"b", "d"}
    settle(node)


def test_the_dead_are_freed_after_two_observations_and_the_grace_time(node: Node) -> None:
    node.pod("a")
    node.pod("b")
    reboot(node, "a")
    node.start("--grace", "1")
    assert "a" in node.allocations()  # seen once

    def freed() -> bool:
        flockctl(node, "check", "--repair")
        return "a" not in node.allocations()

    eventually(freed, what="the dead pod's addresses are freed")
    settle(node)
    assert set(node.allocations()) == {"b"}


def test_a_pod_whose_path_leads_to_another_namespace_after_a_reboot_is_dead(node: Node) -> None:
    """The path is in use again by somebody else: nothing of the old pod is made there."""
    node.pod("a")
    reboot(node, "a")
    node.namespace("filler")  # so that the new namespace is another one
    node.namespace("a")
    node.start()
    assert node.ask("pods")[0]["state"] == "dead"
    assert pod_side(node.path("a")) == {"lo": set()}


def test_a_pending_entry_is_undone_at_start(node: Node) -> None:
    result = node.pod("a")
    node.pod("b")
    node.stop()
    path = node.state_dir / "allocations.json"
    content = json.loads(path.read_text())
    for entry in content["allocations"]:
        if entry["container_id"] == "a":
            entry["state"] = "pending"
            del entry["netns_id"]  # as an ADD that was killed leaves it
    path.write_text(json.dumps(content))
    node.start()
    settle(node)
    assert set(node.allocations()) == {"b"}
    again = addresses_of(node.cni("ADD", "a"))
    assert again[1] != addresses_of(result)[1], "its IPv4 address has to cool down"


def test_calls_before_the_store_is_loaded_wait_or_are_told_to_try_again(node: Node) -> None:
    """A DEL or CHECK that succeeded then would leak: nobody asks again."""
    node.pod("a")
    node.kill()
    good = (node.state_dir / "allocations.json").read_bytes()
    (node.state_dir / "allocations.json").write_text("{broken")
    node.start(wait=False)
    eventually(lambda: (node.run_dir / "flock.sock").exists())
    eventually(lambda: "allocations.json" in flockctl(node, "status").stdout)
    nothing: dict[str, Any] = {"cni.dev/valid-attachments": []}
    early = [node.cni_start("GC", **nothing), *(node.cni_start(verb, "a") for verb in ("ADD", "DEL", "CHECK"))]
    for result in map(outcome, early):
        assert isinstance(result, CniFailure) and result.code == 11
    waiting = node.cni_start("DEL", "a")
    temporary = node.state_dir / "mended"
    temporary.write_bytes(good)
    temporary.rename(node.state_dir / "allocations.json")
    assert outcome(waiting) is None
    assert "a" not in node.allocations()
    assert_sound(node)


def test_two_agents_do_not_share_a_state_directory(node: Node, tmp_path: Path) -> None:
    second = Node(tmp_path / "second", config=NODE_CONFIG)
    second.state_dir = node.state_dir
    with second:
        second.start(wait=False)
        eventually(lambda: (second.run_dir / "flock.sock").exists())
        eventually(lambda: "another agent" in failure(second, "STATUS").msg, what="the second agent waits")
        node.pod("a")
        node.stop()
        eventually(second.is_ready, what="the second takes over")


# --- traffic that lasts --------------------------------------------------------------------------------------------


def test_a_tcp_stream_between_pods_survives_kill_restart_and_other_pods(node: Node, tmp_path: Path) -> None:
    import socket
    import threading

    node.pod("a")
    address = addresses_of(node.pod("b"))[0]

    def listen() -> socket.socket:
        return socket.create_server((address, 5000), family=socket.AF_INET6)

    server = within(node.path("b"), listen)
    client = within(node.path("a"), lambda: socket.create_connection((address, 5000), timeout=30))
    accepted, _ = server.accept()
    received: list[int] = []

    def drain() -> None:
        while chunk := accepted.recv(65536):
            received.append(len(chunk))

    reader = threading.Thread(target=drain)
    reader.start()
    sent = 0
    try:
        for step in range(30):
            sent += client.send(b"x" * 20000)
            if step == 5:
                node.kill()
            if step == 10:
                node.start()
            if step in (15, 20):
                node.pod(f"c{step}")
            if step == 25:
                node.cni("DEL", "c15")
    finally:
        client.close()
        reader.join(10)
        accepted.close()
        server.close()
    assert sum(received) == sent


def test_traffic_counts_what_is_lost(node: Node) -> None:
    """The measuring itself: a link that is down for a moment is noticed."""
    result = node.pod("a")
    with Traffic(node, addresses_of(result)[1]) as traffic:
        assert node.ping(addresses_of(result)[1])
        node.stop()  # it would heal the link between two pings
        node.ip("link", "set", host(result), "down")
        assert not node.ping(addresses_of(result)[1])
        node.start()
        eventually(lambda: node.ping(addresses_of(result)[1]))
        _, lost = traffic.stop()
    assert lost
