"""A step of ADD, DEL or GC is refused: an error, nothing left behind, and the next try works."""

import os

import pytest
from fault_steps import ADD, DEL, ERRORS, STORE, armed
from looking import addresses_of, assert_sound, collect, failure, settle, undisturbed

from harness import CniFailure, Node, run
from thoroughness import slowly, some


@pytest.mark.parametrize("error", some(ERRORS))
def test_a_failed_step_is_an_error_that_leaves_nothing(node: Node, bystander: list[str], error: str) -> None:
    """All steps are armed at once: each ADD, and then each DEL, gets one step further than the one before, or two: a
    link is begun while rules are put into force."""
    node.namespace("a")
    node.start(fault=",".join(armed(step, error) for step in ADD + DEL))
    with undisturbed(node, *bystander):
        refused = 0
        while refused <= len(ADD):
            try:
                result = node.cni("ADD", "a")
                break
            except CniFailure as failed:
                assert failed.code in (5, 11, 108), failed
            refused += 1
            assert_sound(node)
            assert set(node.allocations()) == {"bystander"}
            assert {p["used"] for p in node.ask("status")["pools"]} == {1}
        assert refused in (len(ADD) - 1, len(ADD))
        assert all(map(node.ping, addresses_of(result)))
        assert_sound(node)
        while "a" in node.allocations():
            assert failure(node, "DEL", "a").code in (5, 11, 108)
        node.cni("DEL", "a", netns="")
        assert set(node.allocations()) == {"bystander"}
        assert_sound(node)


@pytest.mark.parametrize("error", ["ENOSPC", *slowly("EIO", "EMFILE")])
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


@pytest.mark.parametrize("resolve", some(["ADD", "DEL", "start", "GC"]))
def test_what_is_left_half_done_keeps_its_addresses_until_it_is_resolved(
    node: Node, bystander: list[str], resolve: str
) -> None:
    """The kernel part of a DEL is done, the disk refuses the rest: nobody else gets the addresses meanwhile."""
    node.start()
    held = addresses_of(node.pod("a"))
    node.stop()
    node.start(fault="journal.make=EIO,store.write=EIO@1")
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


@pytest.mark.slow
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


@pytest.mark.parametrize("error", ["EMFILE", *slowly("ENOMEM", "EACCES")])
def test_every_namespace_that_cannot_be_opened_is_survived(node: Node, bystander: list[str], error: str) -> None:
    node.namespace("a")
    for count in range(1, 6):
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
