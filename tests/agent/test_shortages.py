"""Real shortages and what is found on disk at a start: a pod is refused at most, and nothing is lost."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from looking import addresses_of, assert_sound, failure, flockctl, outcome, settle, undisturbed

from harness import CniFailure, Node, eventually, run
from thoroughness import slowly

# --- descriptors and disks ------------------------------------------------------------------------------------------


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
            assert process.returncode == 0 or b'"code":11' in out or b'"code":5' in out, (out, err)
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
    node.start(fault="journal.make=EIO,store.sync=EIO@1")
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
    eventually(lambda: not (node.state_dir / "allocations.json.tmp").exists(), what="it is written over and renamed")


@pytest.mark.parametrize(
    "content",
    ["{", *slowly('{"version": 2, "allocations": []}', "", "[]", "null", '{"allocations": []}', "\x00" * 4096,
             '{"version": 1, "allocations": [{"container_id": "a"}]}')],
)  # fmt: skip
def test_a_broken_state_file_is_waited_for_and_left_as_it_is(node: Node, content: str) -> None:
    result = node.pod("a")
    node.kill()
    node.hurry = {"flock.agent.desk.PATIENCE": 0.5}
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
