"""The agent is killed at every step of ADD, DEL and GC; another pod's traffic goes on meanwhile."""

import subprocess
from typing import Any

import pytest
from fault_steps import ADD, DEL, FINISH, JOURNAL, STORE, STORE_STEPS, armed, await_death
from looking import addresses_of, assert_sound, outcome, pod_side, settle, undisturbed

from harness import CniFailure, Node, eventually
from thoroughness import slowly, some


@pytest.mark.parametrize("step", [*some((*ADD, *JOURNAL, FINISH)), *slowly(*STORE)])
def test_add_survives_the_agents_death(node: Node, bystander: list[str], step: str) -> None:
    """The executable that was waiting for its answer sends the request again, and gets its pod."""
    node.namespace("a")
    node.start(fault=armed(step, "kill"))
    with undisturbed(node, *bystander):
        adding = node.cni_start("ADD", "a", wait=30)
        await_death(node)
        node.start()
        result = outcome(adding)
        assert not isinstance(result, CniFailure), result
        settle(node)
    assert all(map(node.ping, addresses_of(result)))
    assert node.cni("ADD", "a") == result
    node.cni("CHECK", "a", prevResult=result)


@pytest.mark.parametrize(
    "steps", [(ADD + JOURNAL)[::3], *slowly([*ADD, *JOURNAL, FINISH, *STORE])], ids=["some", "all"]
)
def test_an_add_that_died_and_is_not_repeated_leaves_a_whole_pod_or_nothing(
    node: Node, bystander: list[str], steps: list[str]
) -> None:
    node.namespace("a")
    with undisturbed(node, *bystander):
        for step in steps:
            node.start(fault=armed(step, "kill"))
            adding = node.cni_start("ADD", "a", wait=0)
            await_death(node)
            assert isinstance(outcome(adding), CniFailure)
            node.start()
            settle(node)
            node.cni("DEL", "a", netns="")
            assert set(node.allocations()) == {"bystander"}
            assert pod_side(node.path("a")) == {"lo": set()}
            assert {p["used"] for p in node.ask("status")["pools"]} == {1}
            node.stop()


@pytest.mark.parametrize("step", [*some((*DEL, *JOURNAL)), *slowly(*STORE)])
def test_del_survives_the_agents_death(node: Node, bystander: list[str], step: str) -> None:
    node.start()
    node.pod("a")
    node.stop()
    node.start(fault=armed(step, "kill"))
    with undisturbed(node, *bystander):
        deleting = node.cni_start("DEL", "a", wait=30)
        await_death(node)
        node.start()
        assert outcome(deleting) is None
        settle(node)
    assert set(node.allocations()) == {"bystander"}
    node.cni("DEL", "a", netns="")
    assert node.cni("ADD", "a")
    assert_sound(node)


@pytest.mark.parametrize("steps", [(DEL + JOURNAL)[::3], *slowly(DEL + JOURNAL + STORE)], ids=["some", "all"])
def test_a_del_that_died_and_is_not_repeated_leaves_a_whole_pod_or_nothing(
    node: Node, bystander: list[str], steps: list[str]
) -> None:
    node.namespace("a")
    with undisturbed(node, *bystander):
        for step in steps:
            node.start()
            result = node.cni("ADD", "a")
            node.stop()
            node.start(fault=armed(step, "kill"))
            deleting = node.cni_start("DEL", "a", wait=0)
            await_death(node)
            assert isinstance(outcome(deleting), CniFailure)
            node.start()
            settle(node)
            if "a" in node.allocations():
                node.cni("CHECK", "a", prevResult=result)
            node.stop()


@pytest.mark.parametrize("point", some(STORE_STEPS))
def test_what_was_answered_outlives_a_death_while_the_journal_is_folded(
    node: Node, bystander: list[str], point: str
) -> None:
    """Invariant 5: an ADD that was answered is on record, and nothing of a DEL that was comes back."""
    node.start()
    node.pod("gone")
    node.namespace("a")
    node.stop()
    node.start(fault=f"{point}=kill@1")
    with undisturbed(node, *bystander):
        deleting, adding = node.cni_start("DEL", "gone", wait=30), node.cni_start("ADD", "a", wait=30)
        result = outcome(adding)
        assert outcome(deleting) is None and not isinstance(result, CniFailure)
        await_death(node)
        assert set(node.allocations()) == {"bystander", "a"}
        node.start()
        settle(node)
    assert set(node.allocations()) == {"bystander", "a"}
    node.cni("CHECK", "a", prevResult=result)


def test_gc_survives_the_agents_death(node: Node, bystander: list[str]) -> None:
    node.start()
    for name in ("a", "b", "c"):
        node.pod(name)
    node.stop()
    node.start(fault="del.unlinked=kill@2")
    kept: dict[str, Any] = {"cni.dev/valid-attachments": [{"containerID": "bystander", "ifname": "eth0"}]}
    collecting = node.cni_start("GC", wait=30, **kept)
    with undisturbed(node, *bystander):
        await_death(node)
        node.start()
        assert outcome(collecting) is None
        settle(node)
    assert set(node.allocations()) == {"bystander"}


def restart_when_dead(node: Node, process: "subprocess.Popen[bytes]") -> int:
    """Wait for a verb to end, restarting the agent whenever it dies meanwhile; returns how often it did."""

    def dead() -> bool:
        return node.agent is not None and node.agent.poll() is not None

    died = 0
    while True:
        eventually(lambda: process.poll() is not None or dead(), what="the verb or the agent ends")
        if not dead():
            return died
        died += 1
        node.start(wait=False)


@pytest.mark.slow
@pytest.mark.timeout(600)  # a life for each step; on a busy machine they take their time
def test_a_death_before_any_netlink_request_is_survived(node: Node, bystander: list[str]) -> None:
    """System calls towards the kernel, one after the other, at start, in ADD and in DEL; the odd ones here."""
    node.namespace("a")
    with undisturbed(node, *bystander):
        for count in range(1, 150, 2):
            node.start(fault=f"netlink.send=kill@{count}", wait=False)
            died = 0
            for verb in ("ADD", "DEL"):
                process = node.cni_start(verb, "a", wait=30)
                died += restart_when_dead(node, process)
                assert not isinstance(outcome(process), CniFailure)
            if count % 10 == 1 or not died:
                settle(node)
                assert set(node.allocations()) == {"bystander"}
            node.kill()
            if not died:
                break
    assert 10 < count < 149
