"""A pod's namespace cannot be entered, for want of descriptors or memory: try again, and nothing is made of it.

It is neither gone nor another one: whoever took it for that would give up what a running pod has."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from anycasting import ANYCAST, granting
from looking import OWN, addresses_of, assert_sound, failure, pod_side, settle, undisturbed

from harness import Node, eventually
from thoroughness import slowly

NAMED = "2001:db8:53::7"
ASKED = {"annotations": {OWN + "addresses": NAMED, OWN + "anycast": ANYCAST}}
WHERE = ("netns", "netns_id", "netns_cookie", "boot_id", "ifname", "anycast")
CONFIG = granting(addresses={"allowed": [{"prefixes": ["2001:db8:53::/64"]}]})
SHORTAGES = ["netns.enter=ENOMEM", *slowly("netns.open=EMFILE", "netns.open=ENFILE")]


@pytest.fixture(params=SHORTAGES)
def shortage(request: pytest.FixtureRequest) -> str:
    fault: str = request.param
    return fault


@pytest.fixture
def attached(fresh: Node) -> Iterator[tuple[Node, list[str]]]:
    """A node with a pod, and that pod's addresses.  The agent is not running."""
    fresh.write("nodeconfig", CONFIG)
    fresh.start()
    result = fresh.pod("a", **ASKED)
    fresh.stop()
    yield fresh, addresses_of(result)


def collection(*kept: str) -> dict[str, Any]:
    return {"cni.dev/valid-attachments": [{"containerID": name, "ifname": "eth0"} for name in kept]}


def test_every_verb_is_told_to_try_again(attached: tuple[Node, list[str]], shortage: str) -> None:
    node, addresses = attached
    node.start(fault=shortage)
    node.namespace("b")
    with undisturbed(node, *addresses):
        for verb, name in (("ADD", "b"), ("ADD", "a"), ("CHECK", "a")):
            assert failure(node, verb, name).code == 11
        assert "b" not in node.allocations()
        assert_sound(node)
        assert str(node.ask("happened")).count("AddFailed") == 2
        for verb, name, conf in (("DEL", "a", {}), ("GC", "", collection())):
            failed = failure(node, verb, name, **conf)
            assert failed.code == 11 and node.path("a") in failed.msg
            assert held(node) == set(addresses)
    node.stop()
    node.start()
    assert pod_side(node.path("a")) == {"lo": set()}, "the DEL that was begun is done"
    assert not node.allocations()


def test_a_pod_whose_link_is_lost_meanwhile_is_not_dead(attached: tuple[Node, list[str]], shortage: str) -> None:
    """And is not given up after its grace time, nor is what it names given to others."""
    node, addresses = attached
    for name in node.links():
        node.ip("link", "del", name)
    node.start("--grace", "0", fault=shortage)
    for _ in range(3):
        assert node.ask("repair")
        assert node.ask("pods")[0]["state"] == "committed" and held(node) == set(addresses)
    assert node.path("a") in str(node.ask("status")["degraded"])
    node.namespace("b")
    assert failure(node, "ADD", "b", **ASKED).code == 11
    assert held(node) == set(addresses)
    node.stop()
    node.start()
    settle(node)
    assert all(map(node.ping, addresses))


def test_pods_are_not_adopted_without_a_look_inside(attached: tuple[Node, list[str]], shortage: str) -> None:
    """The state file is lost: where a pod's addresses stand is read in its namespace."""
    node, addresses = attached
    before = node.allocations()["a"]
    (node.state_dir / "allocations.json").unlink()
    node.start(wait=False, fault=shortage)
    eventually(lambda: "cannot" in not_ready(node), what="it is told what it waits for")
    assert "/run/netns/" in not_ready(node)
    assert not node.allocations()
    node.kill()
    node.start()
    after = node.allocations()["a"]
    assert {key: after.get(key) for key in WHERE} == {key: before[key] for key in WHERE}
    assert all(map(node.ping, addresses))


def held(node: Node) -> set[str]:
    entry = node.allocations()["a"]
    return {entry["ip6"], entry["ip4"]}


def not_ready(node: Node) -> str:
    """Why; empty while nobody answers."""
    with contextlib.suppress(OSError, ValueError):
        return str(node.ask("status")["not_ready"])
    return ""
