"""The agent dies, or the kernel or disk refuses, at every step of ADD and DEL; another pod's traffic goes on meanwhile.

Issue 2, Show: a kill -9 at every named point, then restart; the same with every failure we can inject, and real ones.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from looking import addresses_of, assert_sound, collect, failure, flockctl, outcome, pod_side, settle, undisturbed

from flock.core.faults import Point
from harness import CniFailure, Node, eventually, run

STORE_STEPS = [Point.STORE_WRITE, Point.STORE_SYNC, Point.STORE_RENAME, Point.STORE_RENAMED]
STORE = [f"{point}@1" for point in STORE_STEPS]
ADD = [f"{point}@1" for point in Point if point.startswith("add.")]
DEL = [f"{point}@1" for point in Point if point.startswith("del.")]
ERRORS = ["ENOSPC", "EIO", "EMFILE", "ENOBUFS"]


def armed(step: str, action: str) -> str:
    point, _, count = step.partition("@")
    return f"{point}={action}@{count}"


@pytest.fixture
def bystander(node: Node) -> list[str]:
    """The addresses of a pod that has nothing to do with any of this.  The agent is not running."""
    addresses = addresses_of(node.pod("bystander"))
    node.stop()
    return addresses


def await_death(node: Node) -> None:
    assert node.agent is not None
    assert node.agent.wait(20) == -signal.SIGKILL
    node.agent = None


# --- death -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ADD + STORE)
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


def test_an_add_that_died_and_is_not_repeated_leaves_a_whole_pod_or_nothing(node: Node, bystander: list[str]) -> None:
    node.namespace("a")
    with undisturbed(node, *bystander):
        for step in ADD + STORE:
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


@pytest.mark.parametrize("step", DEL + STORE)
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


def test_a_del_that_died_and_is_not_repeated_leaves_a_whole_pod_or_nothing(node: Node, bystander: list[str]) -> None:
    node.namespace("a")
    with undisturbed(node, *bystander):
        for step in DEL + STORE:
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


# --- refusal -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ERRORS)
def test_a_failed_step_is_an_error_that_leaves_nothing(node: Node, bystander: list[str], error: str) -> None:
    """All steps are armed at once: each ADD, and then each DEL, gets one step further than the one before."""
    node.namespace("a")
    node.start(fault=",".join(armed(step, error) for step in ADD + DEL))
    with undisturbed(node, *bystander):
        for _ in ADD:
            failed = failure(node, "ADD", "a")
            assert failed.code in (5, 11, 108), failed
            assert_sound(node)
            assert set(node.allocations()) == {"bystander"}
            assert {p["used"] for p in node.ask("status")["pools"]} == {1}
        result = node.cni("ADD", "a")
        assert all(map(node.ping, addresses_of(result)))
        assert_sound(node)
        while "a" in node.allocations():
            assert failure(node, "DEL", "a").code in (5, 11, 108)
        node.cni("DEL", "a", netns="")
        assert set(node.allocations()) == {"bystander"}
        assert_sound(node)


@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EMFILE"])
def test_a_failed_step_of_a_flush_fails_the_verb_and_its_repetition_succeeds(
    node: Node, bystander: list[str], error: str
) -> None:
    node.namespace("a")
    with undisturbed(node, *bystander):
        for step in STORE:
            node.start(fault=armed(step, error))
            failed = failure(node, "ADD", "a")
            assert failed.code == 5 and "allocations.json" in failed.msg, failed
            assert_sound(node)
            assert set(node.allocations()) == {"bystander"}
            node.cni("ADD", "a")
            assert_sound(node)
            node.stop()
            node.start(fault=armed(step, error))
            assert failure(node, "DEL", "a").code == 5
            node.cni("DEL", "a", netns="")
            assert set(node.allocations()) == {"bystander"}
            assert_sound(node)
            node.stop()


@pytest.mark.parametrize("resolve", ["ADD", "DEL", "start", "GC"])
def test_what_is_left_half_done_keeps_its_addresses_until_it_is_resolved(
    node: Node, bystander: list[str], resolve: str
) -> None:
    """The kernel part of a DEL is done, the disk refuses the rest: nobody else gets the addresses meanwhile."""
    node.start()
    held = addresses_of(node.pod("a"))
    node.stop()
    node.start(fault="store.write=EIO@1")
    assert failure(node, "DEL", "a").code == 5
    assert {row["container"]: row["state"] for row in node.ask("pods")}["a"] == "pending"
    assert failure(node, "CHECK", "a").code == 3
    assert not set(addresses_of(node.pod("other"))) & set(held)
    if resolve == "ADD":
        assert addresses_of(node.cni("ADD", "a")) == held
    elif resolve == "DEL":
        node.cni("DEL", "a", netns="")
    elif resolve == "GC":
        collect(node, "bystander", "other")
    else:
        node.kill()
        node.start()
    settle(node)
    assert ("a" in node.allocations()) is (resolve == "ADD")


def test_unreadable_notes_of_half_done_work_are_thrown_away(node: Node) -> None:
    result = node.pod("a")
    node.kill()
    notes = node.run_dir / "pending"
    notes.mkdir(exist_ok=True)
    for number, text in enumerate(("", "{", "null", '{"container_id": "a"}', "\x00" * 50)):
        (notes / f"{number:016x}").write_text(text)
    (notes / "torn.new").write_text("{")
    with undisturbed(node, *addresses_of(result)):
        node.start()
    assert_sound(node)


def test_a_full_run_directory_refuses_pods_and_loses_nothing(fresh: Node) -> None:
    """Where the notes about half-done work stand."""
    run("mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", fresh.run_dir)
    try:
        fresh.start()
        kept = fresh.pod("kept")
        fresh.namespace("a")
        free = os.statvfs(fresh.run_dir)
        (fresh.run_dir / "ballast").write_bytes(b"x" * (free.f_bavail * free.f_frsize))
        with undisturbed(fresh, *addresses_of(kept)):
            assert failure(fresh, "ADD", "a").code == 5
            assert failure(fresh, "DEL", "kept").code == 5
            (fresh.run_dir / "ballast").unlink()
            assert fresh.cni("ADD", "kept") == kept
            assert fresh.cni("ADD", "a")
        assert_sound(fresh)
    finally:
        fresh.kill()
        run("umount", fresh.run_dir)


def test_every_refused_netlink_request_is_survived(node: Node, bystander: list[str]) -> None:
    """The nth request since the start is refused; whatever that was, the agent goes on, and a repetition succeeds.

    The even ones: those that were killed at are the odd ones.
    """
    node.namespace("a")
    with undisturbed(node, *bystander):
        for count in range(2, 70, 2):
            node.start(fault=f"netlink.send=ENOBUFS@{count}")
            for verb in ("ADD", "DEL"):
                try:
                    node.cni(verb, "a")
                except CniFailure as failed:
                    assert failed.code in (5, 11, 108), failed
                    node.cni(verb, "a")
            if count % 10 == 2:
                settle(node)
            assert set(node.allocations()) == {"bystander"}
            assert node.agent is not None and node.agent.poll() is None
            node.stop()


@pytest.mark.parametrize("error", ["EMFILE", "ENOMEM", "EACCES"])
def test_every_namespace_that_cannot_be_opened_is_survived(node: Node, bystander: list[str], error: str) -> None:
    node.namespace("a")
    for count in range(3, 8):  # the agent opens its own for each of two threads
        node.start(fault=f"netns.open={error}@{count}")
        for verb in ("ADD", "DEL"):
            try:
                node.cni(verb, "a")
            except CniFailure as failed:
                assert failed.code in (4, 11)
                node.cni(verb, "a")
        settle(node)
        assert set(node.allocations()) == {"bystander"}
        node.stop()


# --- real ones ---------------------------------------------------------------------------------------------------


def test_running_out_of_file_descriptors_passes(node: Node) -> None:
    """Real EMFILE: the limit of the running agent is lowered to what it has open, and a few more."""
    kept = addresses_of(node.pod("kept"))
    node.namespace("a")
    assert node.agent is not None
    pid = node.agent.pid
    with undisturbed(node, *kept):
        for spare in range(6):
            taken = max(int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir()) + 1
            run("prlimit", f"--nofile={taken + spare}:", "--pid", pid)
            process = node.cni_start("ADD", "a", wait=10)
            try:
                out, err = process.communicate(timeout=1.5)
            except subprocess.TimeoutExpired:  # not even accepted: it waits in the queue
                run("prlimit", "--nofile=1024:", "--pid", pid)
                out, err = process.communicate(timeout=30)
            run("prlimit", "--nofile=1024:", "--pid", pid)
            assert process.returncode == 0 or b'"code":11' in out or b'"code":5' in out or b'"code":108' in out, (
                out,
                err,
            )
            node.cni("ADD", "a")
            node.cni("DEL", "a")
            settle(node)
    assert node.agent.poll() is None


@pytest.fixture
def tiny(fresh: Node) -> Iterator[Node]:
    """The state directory is a file system of 32 KiB."""
    run("mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", fresh.state_dir)
    try:
        yield fresh
    finally:
        fresh.kill()
        run("umount", fresh.state_dir)


def test_a_full_disk_refuses_pods_and_loses_nothing(tiny: Node) -> None:
    tiny.start()
    kept = tiny.pod("kept")
    before = (tiny.state_dir / "allocations.json").read_bytes()
    ballast = tiny.state_dir / "ballast"
    free = os.statvfs(tiny.state_dir)
    ballast.write_bytes(b"x" * (free.f_bavail * free.f_frsize))
    tiny.namespace("a")
    with undisturbed(tiny, *addresses_of(kept)):
        for _ in range(3):
            failed = failure(tiny, "ADD", "a")
            assert failed.code == 5 and "allocations.json" in failed.msg and "space" in failed.msg
        assert (tiny.state_dir / "allocations.json").read_bytes() == before
        assert not (tiny.state_dir / "allocations.json.tmp").exists()
        assert_sound(tiny)
        assert "space" in " ".join(tiny.ask("status")["degraded"])
        assert tiny.cni("ADD", "kept") == kept
        tiny.kill()
        tiny.start()
        assert_sound(tiny)
    assert failure(tiny, "DEL", "kept").code == 5
    assert "kept" in tiny.allocations()  # so its addresses are nobody else's
    ballast.unlink()
    tiny.cni("DEL", "kept")
    assert tiny.cni("ADD", "a")
    assert not tiny.ask("status")["degraded"] or "space" not in " ".join(tiny.ask("status")["degraded"])
    assert_sound(tiny)


def test_a_read_only_disk_refuses_pods_and_loses_nothing(tiny: Node) -> None:
    tiny.start()
    kept = tiny.pod("kept")
    tiny.namespace("a")
    run("mount", "-o", "remount,ro", tiny.state_dir)
    with undisturbed(tiny, *addresses_of(kept)):
        assert failure(tiny, "ADD", "a").code == 5
        assert_sound(tiny)
        tiny.kill()
        tiny.start()  # reading is enough for those that run
        assert tiny.cni("ADD", "kept") == kept
        run("mount", "-o", "remount,rw", tiny.state_dir)
    assert tiny.cni("ADD", "a")
    tiny.cni("DEL", "kept")
    assert_sound(tiny)


def test_concurrent_adds_on_a_failing_disk_fail_together_and_heal_together(node: Node, bystander: list[str]) -> None:
    names = [f"p{n}" for n in range(20)]
    for name in names:
        node.namespace(name)
    node.start(fault="store.sync=EIO@1")
    with undisturbed(node, *bystander):
        outcomes = [outcome(p) for p in [node.cni_start("ADD", name) for name in names]]
        failed = [name for name, result in zip(names, outcomes, strict=True) if isinstance(result, CniFailure)]
        assert failed
        settle(node)
        assert set(node.allocations()) == {"bystander", *names} - set(failed)
        for name in failed:
            node.cni("ADD", name)
        settle(node)


# --- the state file ------------------------------------------------------------------------------------------------


def test_a_torn_temporary_file_is_ignored(node: Node) -> None:
    result = node.pod("a")
    node.kill()
    (node.state_dir / "allocations.json.tmp").write_text('{"version": 1, "alloc')
    node.start()
    assert node.cni("ADD", "a") == result
    node.pod("b")
    assert_sound(node)
    assert not (node.state_dir / "allocations.json.tmp").exists()


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"version": 2, "allocations": []}', '{"allocations": []}', "\x00" * 4096,
     '{"version": 1, "allocations": [{"container_id": "a"}]}'],
)  # fmt: skip
def test_a_broken_state_file_is_waited_for_and_left_as_it_is(node: Node, content: str) -> None:
    result = node.pod("a")
    node.kill()
    path = node.state_dir / "allocations.json"
    good = path.read_bytes()
    path.write_text(content)
    with undisturbed(node, *addresses_of(result)):
        node.start(wait=False)
        eventually(lambda: (node.run_dir / "flock.sock").exists())
        eventually(lambda: str(path) in flockctl(node, "status").stdout, what="status names the file")
        assert flockctl(node, "status").returncode == 1 and str(path) in flockctl(node, "status").stdout
        assert path.read_text() == content
        path.write_bytes(good)
        eventually(node.is_ready, what="the agent heals")
    assert node.cni("ADD", "a") == result
    assert_sound(node)


def test_a_missing_state_directory_is_waited_for(fresh: Node) -> None:
    fresh.state_dir.rmdir()
    fresh.start(wait=False)
    eventually(lambda: (fresh.run_dir / "flock.sock").exists())
    eventually(lambda: str(fresh.state_dir) in failure(fresh, "STATUS").msg)
    fresh.state_dir.mkdir()
    eventually(fresh.is_ready)
    assert fresh.pod("a")


def test_unknown_fault_points_are_refused(fresh: Node) -> None:
    fresh.start(fault="nonsense=kill", wait=False)
    assert fresh.agent is not None and fresh.agent.wait(20) == 1
    assert "FLOCK_FAULT" in fresh.log_text()
    fresh.agent = None


def steps_of(points: list[str]) -> set[str]:
    return {point.partition("@")[0] for point in points}


def test_every_fault_point_is_used_by_these_tests() -> None:
    used: set[Any] = steps_of(ADD + DEL + STORE) | {"netlink.send", "netns.open", "kernel.look"}
    assert used == {str(point) for point in Point}
