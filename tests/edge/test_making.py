"""Links of pods that are begun in a process of its own, beside what has to be done before they come up."""

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from spaces import Space, entry, on_the_node

from flock.core.errors import FlockError
from flock.core.model import Allocation
from flock.core.whose import Identity
from flock.core.wiring import Wiring
from flock.edge.boot import boot_id
from flock.edge.kernel import linkmaker
from flock.edge.kernel import making as module
from flock.edge.kernel.linkprocess import Begun
from flock.edge.kernel.making import Making
from flock.edge.kernel.netns import own_netns
from looping import PATIENCE, until


def nobody(_: str) -> bool:
    return False


def everybody(_: str) -> bool:
    return True


@contextlib.asynccontextmanager
async def making() -> AsyncIterator[Making]:
    """With a process, which holds a lock on the directory that the test is in."""
    made, lock = Making(sysctl=Path("/proc/sys/net")), os.open(".", os.O_RDONLY)
    running = asyncio.create_task(made.run(lock))
    try:
        await until(lambda: running.done() or (made._process is not None and made._process._ready))
        yield made
    finally:
        running.cancel()
        await asyncio.wait([running])
        os.close(lock)
        made.thread.close()


def process_of(made: Making) -> int:
    assert made._process is not None
    return made._process._process.pid


def descriptors(process: int) -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def begin(made: Making, allocation: Allocation) -> Begun:
    begun = made.begin(allocation.netns)
    assert begun is not None
    begun.create(Wiring.of(allocation))
    return begun


@on_the_node
async def test_the_namespace_is_told_before_the_link_is_made_and_is_the_finished_links(node: Space, pod: Space) -> None:
    async with making() as made:
        begun = begin(made, entry(pod))
        order: list[str] = []
        begun.identified.add_done_callback(lambda _: order.append("identified"))
        begun.up.add_done_callback(lambda _: order.append("up"))
        link = await made.attach(entry(pod), begun, announced=(), claimed=nobody)
        assert order == ["identified", "up"] and not made.thread.load
        there = pod.open(own_netns)
        there.close()
        assert link.netns == begun.identified.result() == Identity(there.id, pod.netlink.netns_cookie, boot_id())
        assert node.link(entry(pod).host_interface).index == link.host_index and pod.link("eth0").up


@on_the_node
async def test_what_is_wrong_is_said_by_the_agent_itself_and_one_in_no_namespace_tells_none(
    node: Space, pod: Space
) -> None:
    async with making() as made:
        await made.attach(entry(pod), begin(made, entry(pod)), announced=(), claimed=nobody)
        taken = entry(pod, "c2")
        nowhere = msgspec.structs.replace(taken, netns="/nowhere")
        for allocation, told, said in ((taken, True, "is not ours"), (nowhere, False, "No such file")):
            begun = begin(made, allocation)
            with pytest.raises(FlockError, match=said):
                await made.attach(allocation, begun, announced=(), claimed=everybody)
            assert begun.identified.cancelled() is not told


@on_the_node
async def test_what_is_left_over_of_nobody_is_replaced(node: Space, pod: Space) -> None:
    """The process does not know whose it is."""
    async with making() as made:
        first = await made.attach(entry(pod), begin(made, entry(pod)), announced=(), claimed=nobody)
        other = entry(pod, "c2")
        begun = begin(made, other)
        second = await made.attach(other, begun, announced=(), claimed=nobody)
        assert begun.up.result() is None  # nor does it wait for the end of what it deletes
        assert second.host_index != first.host_index
        assert {link["ifname"] for link in node.ip("link")} >= {other.host_interface}
        assert node.netlink.link(entry(pod).host_interface) is None


@on_the_node
async def test_who_gives_up_is_told_no_namespace_any_more_and_the_link_stays_down(node: Space, pod: Space) -> None:
    async with making() as made:
        begun = begin(made, entry(pod))
        await made.give_up(begun)
        assert begun.identified.cancelled() and begun.up.result() is None
        assert not node.link(entry(pod).host_interface).up  # for whoever deletes links
        assert made._process is not None and not made._process.begun


@on_the_node
async def test_who_is_cancelled_while_the_link_is_made_hears_so_when_nobody_makes_it_any_more(
    node: Space, pod: Space
) -> None:
    """Who undoes it would else do so before it is made."""
    async with making() as made:
        os.kill(process_of(made), signal.SIGSTOP)
        begun = begin(made, entry(pod))
        attaching = asyncio.create_task(made.attach(entry(pod), begun, announced=(), claimed=nobody))
        await asyncio.sleep(0)
        for _ in range(3):
            attaching.cancel()
            await asyncio.sleep(0)
        assert not attaching.done()
        os.kill(process_of(made), signal.SIGCONT)
        await asyncio.wait([attaching])
        assert attaching.cancelled() and begun.up.done() and not made.thread.load


@on_the_node
async def test_who_fails_before_its_link_is_created_leaves_its_namespace_to_itself(node: Space, pod: Space) -> None:
    """It is entered as soon as the call is understood, and what the pod may have is found out after that."""
    async with making() as made:
        await made.give_up(begin(made, entry(pod)))
        before = descriptors(process_of(made))
        for _ in range(3):
            with pytest.raises(FlockError, match="no such annotation"):
                async with made.begun(entry(pod).netns) as begun:
                    assert begun is not None and await begun.identified
                    assert descriptors(process_of(made)) == before + 2
                    raise FlockError("no such annotation")
            await asyncio.wait([begun.up])
        assert descriptors(process_of(made)) == before
        assert made._process is not None and not made._process.begun


@on_the_node
async def test_who_fails_before_its_link_is_created_does_not_wait_for_the_process(node: Space, pod: Space) -> None:
    """There is nothing yet that could be made behind its back."""

    async def fail(made: Making) -> None:
        async with made.begun(entry(pod).netns):
            raise FlockError("no such annotation")

    async with making() as made:
        os.kill(process_of(made), signal.SIGSTOP)
        failing = asyncio.create_task(fail(made))
        await asyncio.wait([failing], timeout=PATIENCE / 2)
        os.kill(process_of(made), signal.SIGCONT)
        assert isinstance(failing.exception(), FlockError)


@on_the_node
async def test_of_many_that_are_begun_the_rest_waits_for_its_rules(
    node: Space, pod: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEGUN", 1)
    async with making() as made:
        begun = begin(made, entry(pod))
        assert made.begin(entry(pod).netns) is None
        await made.give_up(begun)
        assert (await made.attach(entry(pod), None, announced=(), claimed=nobody)).netns.netns_cookie
        await made.give_up(begin(made, entry(pod)))


@on_the_node
async def test_without_a_process_links_are_made_all_the_same(node: Space, pod: Space) -> None:
    made = Making(sysctl=Path("/proc/sys/net"))
    try:
        assert made.begin(entry(pod).netns) is None
        assert (await made.attach(entry(pod), None, announced=(), claimed=nobody)).host_index
    finally:
        made.thread.close()


@pytest.mark.parametrize("asked", [False, True], ids=["before", "while"])
@on_the_node
async def test_a_link_is_made_though_the_process_dies_before_or_while_it_is_brought_up(
    node: Space, pod: Space, asked: bool
) -> None:
    async with making() as made:
        begun, process = begin(made, entry(pod)), process_of(made)
        await begun.identified
        os.kill(process, signal.SIGSTOP)
        attaching = asyncio.create_task(made.attach(entry(pod), begun, announced=(), claimed=nobody))
        if asked:
            await asyncio.sleep(0.01)
        os.kill(process, signal.SIGKILL)
        assert (await attaching).host_index == node.link(entry(pod).host_interface).index
        assert pod.link("eth0").up
        await until(lambda: made._process is None)
        assert made.begin(entry(pod).netns) is None


@on_the_node
async def test_a_process_that_does_not_answer_is_ended_and_its_links_are_made(
    node: Space, pod: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with making() as made:
        monkeypatch.setattr(module, "SILENT", 0.1)
        os.kill(process_of(made), signal.SIGSTOP)
        link = await made.attach(entry(pod), begin(made, entry(pod)), announced=(), claimed=nobody)
        assert link.host_index and pod.link("eth0").up


@on_the_node
async def test_a_process_that_answers_is_behind_and_not_stuck(node: Space, pod: Space) -> None:
    """On a node without CPU: were it ended, all that it has made would be made again."""
    async with making() as made:
        first, second = made.begin(entry(pod).netns), made.begin(entry(pod).netns)
        assert first is not None and second is not None
        await first.identified
        second.asked_at -= 1000  # so long ago; and something else was answered a moment ago
        assert made.busy_for < 500
        first.drop()
        second.drop()


@on_the_node
async def test_who_waits_hears_of_the_end_of_the_process_though_it_is_ended_in_a_hurry(node: Space, pod: Space) -> None:
    """Whoever ends it may be cancelled, as when the agent is told to stop just then."""
    async with making() as made:
        assert made._process is not None
        process = process_of(made)
        os.kill(process, signal.SIGSTOP)
        begun = begin(made, entry(pod))
        sending = asyncio.create_task(made._process.send(b"rules"))
        await asyncio.sleep(0)
        ending = asyncio.create_task(made._process.end())
        await asyncio.sleep(0.01)
        ending.cancel()
        os.kill(process, signal.SIGCONT)
        await asyncio.wait([ending])
        assert ending.cancelled() and begun.up.result() is None and not await sending


@on_the_node
async def test_a_mistake_of_ours_about_one_link_is_not_the_others_undoing(node: Space, pod: Space) -> None:
    """As of a value that nobody thought of."""
    async with making() as made:
        process = process_of(made)
        begun = begin(made, msgspec.structs.replace(entry(pod), mac="nonsense"))
        await begun.identified
        other = entry(pod, "c2")
        link = await made.attach(other, begin(made, other), announced=(), claimed=nobody)
        assert link.host_index and begun.up.result() is None and process_of(made) == process


@on_the_node
async def test_one_begun_by_an_agent_of_another_version_ends_and_links_are_made_all_the_same(
    node: Space, pod: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package was unpacked, and its agent is not started yet."""
    monkeypatch.setattr(linkmaker, "SPOKEN", "something else")
    async with making() as made:
        assert made._process is None
        link = await made.attach(entry(pod), made.begin(entry(pod).netns), announced=(), claimed=nobody)
        assert link.host_index and pod.link("eth0").up


@on_the_node
async def test_one_that_does_not_get_to_work_keeps_nobody_from_the_lock_and_is_ended(
    node: Space, pod: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the disk stands still that it is read from.  It would not die with its agent yet."""
    program = tmp_path / "stands.py"
    program.write_text("import time; time.sleep(60)\n")
    monkeypatch.setattr(linkmaker, "__file__", str(program))
    made, lock = Making(sysctl=Path("/proc/sys/net")), os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    running = asyncio.create_task(made.run(lock))
    try:
        await asyncio.sleep(0)
        os.kill(process_of(made), 0)
        os.close(lock)
        after = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(after, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(after)
        assert made.begin(entry(pod).netns) is None
        monkeypatch.setattr(module, "SILENT", 0.1)
        await asyncio.wait([running], timeout=PATIENCE / 2)
        assert running.done()
    finally:
        running.cancel()
        await asyncio.wait([running])
        made.thread.close()


@on_the_node
async def test_one_that_hears_late_which_namespace_it_is_still_waits_for_an_answer(node: Space, pod: Space) -> None:
    """In a burst rules are there before that is told: then the link is asked to come up already."""
    async with making() as made:
        os.kill(process_of(made), signal.SIGSTOP)
        begun = begin(made, entry(pod))
        begun.bring_up(())
        begun.identify(Identity("0:0", 0, ""))
        assert made.busy_for > 0
        os.kill(process_of(made), signal.SIGCONT)
        await begun.up


@on_the_node
async def test_nobody_else_gets_the_lock_while_the_process_may_make_a_link(
    node: Space, pod: Space, tmp_path: Path
) -> None:
    """The agent has died, and its successor must not begin."""
    made, lock = Making(sysctl=Path("/proc/sys/net")), os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    running = asyncio.create_task(made.run(lock))
    try:
        await until(lambda: made._process is not None and made._process._ready)
        os.close(lock)
        await made.give_up(begin(made, entry(pod)))
        after = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(after, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        running.cancel()
        await asyncio.wait([running])
        made.thread.close()
    fcntl.flock(after, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(after)


@on_the_node
async def test_a_question_that_is_too_long_for_the_process_is_done_by_the_agent(node: Space, pod: Space) -> None:
    many = msgspec.structs.replace(entry(pod), addresses=tuple(f"198.51.{n >> 8}.{n & 255}" for n in range(5000)))
    async with making() as made:
        for begun in (begin(made, many), None):
            assert (await made.attach(many, begun, announced=(), claimed=nobody)).host_index
        assert made._process is not None and not made._process.begun
