"""A namespace that has a dead pod's path and number is another namespace: it gets nothing of that pod's."""

import json
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from anycasting import ANYCAST, granting
from looking import OWN, addresses_of, pod_side, settle, undisturbed

from flock.edge.boot import boot_id
from harness import Node, eventually, run
from namespaces import within

NAMED = "2001:db8:53::7"


@pytest.fixture
def node(fresh: Node) -> Node:
    fresh.write("nodeconfig", granting(addresses={"allowed": [{"prefixes": ["2001:db8:53::/64"]}]}))
    fresh.start()
    return fresh


def recycle(node: Node, name: str) -> str:
    """While the agent is away: remove a pod's namespace, make another one with the same path and number.

    The kernel gives out the lowest number that is free, so it mostly is the same one, or becomes it while those with
    others are kept.  Where somebody else on this machine got it first, the number on record is made the new one's:
    whoever reads that cannot tell."""
    node.stop()
    path = Path(node.path(name))
    number = path.stat().st_ino
    node.remove_namespace(name)
    made: list[int] = []
    with ExitStack() as kept:

        def another() -> int:
            made.append(within(None, lambda: os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)))
            kept.callback(os.close, made[-1])
            return made[-1]

        with suppress(AssertionError):
            eventually(lambda: os.fstat(another()).st_ino == number, within=1)
        path.touch()
        run("mount", "--bind", f"/proc/{os.getpid()}/fd/{made[-1]}", path)
    node._pods.append(path.name)
    for record in (node.state_dir / "allocations.json", *(node.run_dir / "pending").iterdir()):
        record.write_text(record.read_text().replace(f':{number}"', f':{path.stat().st_ino}"'))
    return str(path)


def bare(path: str) -> bool:
    return pod_side(path) == {"lo": set()}


def rewrite(node: Node, change: Callable[[dict[str, Any]], object]) -> None:
    """The entries of a file whose agent is away."""
    path = node.state_dir / "allocations.json"
    content = json.loads(path.read_text())
    for entry in content["allocations"]:
        change(entry)
    path.write_text(json.dumps(content))


def lose_link(node: Node, result: dict[str, Any]) -> None:
    """While the agent is away."""
    node.stop()
    node.ip("link", "del", result["interfaces"][0]["name"])


def forget_all_but_the_inode(node: Node) -> None:
    """As an earlier version recorded it."""
    rewrite(node, lambda entry: [entry.pop(key) for key in ("netns_cookie", "boot_id")])


def call_the_boot_otherwise(node: Node) -> None:
    """As a host that is a container does for its own processes, and not for those of containers in it."""
    rewrite(node, lambda entry: entry.update(boot_id="7d8a1f3e-0000-4000-8000-000000000000"))


def test_it_does_not_get_the_dead_pods_link(node: Node) -> None:
    result = node.pod("a")
    path = recycle(node, "a")
    node.start()
    assert "namespace gone" in str(node.ask("repair"))
    assert bare(path) and not node.links()
    other = node.cni("ADD", "b", netns=path)
    assert not set(addresses_of(other)) & set(addresses_of(result)), "they rest until the dead pod's DEL"
    assert all(map(node.ping, addresses_of(other)))
    node.cni("DEL", "a")
    settle(node)
    node.cni("CHECK", "b", netns=path, prevResult=other)


def test_it_does_not_get_a_link_that_was_being_made_again(node: Node) -> None:
    lose_link(node, node.pod("a"))
    node.start(wait=False, fault="add.link=kill@1")
    assert node.agent is not None and node.agent.wait(20) == -9
    node.agent = None
    path = recycle(node, "a")
    node.start()
    assert not node.allocations() and bare(path)
    settle(node)


def test_it_keeps_nobody_from_the_dead_pods_address(node: Node) -> None:
    how = {"annotations": {OWN + "addresses": NAMED}}
    node.pod("a", **how)
    path = recycle(node, "a")
    node.start()
    assert NAMED in addresses_of(node.cni("ADD", "b", netns=path, **how))
    assert set(node.allocations()) == {"b"}
    settle(node)


def test_a_late_del_of_the_dead_pod_leaves_its_loopback_alone(node: Node) -> None:
    how = {"annotations": {OWN + "anycast": ANYCAST}}
    node.pod("a", **how)
    path = recycle(node, "a")
    node.start()
    node.cni("ADD", "b", netns=path, **how)
    node.cni("DEL", "a", netns="")
    assert ANYCAST in pod_side(path)["lo"]
    settle(node)


def test_what_was_attached_before_a_reboot_is_dead_whatever_its_numbers(node: Node) -> None:
    """A new boot gives out the same inodes and cookies in the same order."""
    result = node.pod("a")
    lose_link(node, result)
    (entry,) = node.allocations().values()
    assert entry["boot_id"] == boot_id() and entry["netns_cookie"] > 1
    call_the_boot_otherwise(node)
    node.start()
    assert node.ask("pods")[0]["state"] == "dead"
    assert bare(node.path("a"))
    again = node.cni("ADD", "a")
    assert again["ips"] == result["ips"]
    assert node.allocations()["a"]["boot_id"] == boot_id()
    settle(node)


@pytest.mark.parametrize("earlier", [forget_all_but_the_inode, call_the_boot_otherwise])
def test_a_running_pod_is_known_by_its_link_where_the_record_says_less(
    node: Node, earlier: Callable[[Node], None]
) -> None:
    """From the upgrade on: the reboot after it finds no pod alive in another's namespace."""
    result = node.pod("a")
    node.stop()
    before = node.allocations()
    earlier(node)
    with undisturbed(node, *addresses_of(result)):
        node.start()
        assert node.allocations() == before
    path = recycle(node, "a")
    node.start()
    assert node.ask("pods")[0]["state"] == "dead" and bare(path)


def test_an_entry_of_an_earlier_version_goes_on_by_its_inode(node: Node) -> None:
    result = node.pod("a")
    lose_link(node, result)
    forget_all_but_the_inode(node)
    node.start()
    settle(node)
    assert all(map(node.ping, addresses_of(result)))
    assert node.allocations()["a"]["netns_cookie"] > 1, "and is known better from then on"
