"""Transactions of rules, sent by the process that makes links: in force, or surely somebody else's to do."""

import asyncio
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence

import msgspec
import pytest
from spaces import Space, entry, on_the_node
from test_making import begin, making, nobody, process_of

from flock.core.policy.elements import TABLE, Element, Mark, Operation
from flock.core.policy.rendered import Transaction
from flock.core.wiring import Wiring
from flock.edge.kernel import linkprocess, transactions
from flock.edge.kernel import making as module
from flock.edge.nft import apply, observe
from flock.edge.nft.batch import messages
from flock.edge.nft.socket import NftSocket
from looping import PATIENCE

SET = "pods"


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long this machine takes."""
    monkeypatch.setattr(linkprocess, "MOMENT", 2.0 * PATIENCE)


def add(*names: str) -> list[Operation]:
    return [Operation(True, element(name)) for name in names]


def element(name: str) -> Element:
    return Element(TABLE, SET, (name, Mark(1)))


@pytest.fixture
def rules(node: Space) -> Space:
    """With a set to put something into."""
    script = f"table {TABLE} {{ set {SET} {{ type ifname . mark; }}; }}"
    subprocess.run(["ip", "netns", "exec", node.name, "nft", script], check=True, timeout=PATIENCE)
    return node


def in_force(node: Space) -> set[str]:
    def look() -> list[bytes]:
        with NftSocket() as asking:
            return observe.elements(asking, TABLE, SET)

    return {key[:16].rstrip(b"\0").decode() for key in node.open(look)}


@on_the_node
async def test_what_is_sent_is_in_force_one_after_the_other(node: Space, rules: Space) -> None:
    async with making() as made:
        for number in range(20):
            assert await made.transactions.commit(add(f"a{number}", f"b{number}"))
        assert await made.transactions.commit([Operation(False, element("a0"))])
        expected = {f"{letter}{number}" for letter in "ab" for number in range(20)} - {"a0"}
        assert in_force(node) == expected and made.busy_for == 0


@on_the_node
async def test_it_is_sent_while_a_link_is_made_and_before_that_comes_up(node: Space, pod: Space, rules: Space) -> None:
    async with making() as made:
        begun = begin(made, entry(pod))
        assert await made.transactions.commit(add("a"))
        assert in_force(node) == {"a"} and not node.link(entry(pod).host_interface).up
        await made.attach(entry(pod), begun, announced=(), claimed=nobody)


@pytest.mark.parametrize(
    "refused",
    [
        [*add("a"), Operation(True, Element(TABLE, "no such set", ("b", Mark(1))))],
        [*add("a"), Operation(False, element("b"))],
        [*add("a"), Operation(True, Element(TABLE, SET, ("a name that is too long for any", Mark(1))))],
    ],
    ids=["no such set", "nothing to delete", "malformed"],
)
@on_the_node
async def test_what_the_kernel_refuses_is_not_in_force_and_the_next_is(
    node: Space, rules: Space, refused: Sequence[Operation]
) -> None:
    async with making() as made:
        for _ in range(2):
            assert not await made.transactions.commit(refused)
            assert in_force(node) == set()
        assert await made.transactions.commit(add("a"))
        assert in_force(node) == {"a"}


@on_the_node
async def test_where_there_is_no_process_or_it_has_work_all_the_time_it_is_somebody_elses(
    node: Space, pod: Space, rules: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with making() as made:
        links = [begin(made, msgspec.structs.replace(entry(pod, name), ifname=name)) for name in ("c1", "c2")]
        assert not await made.transactions.commit(add("a"))
        await made.give_up(links[0])
        assert await made.transactions.commit(add("a"))
        monkeypatch.setattr(transactions, "FEW", 1)
        assert not await made.transactions.commit(add("b", "c"))
    assert not await made.transactions.commit(add("d"))
    assert in_force(node) == {"a"}


@pytest.mark.parametrize("how", ["killed", "hangs"])
@on_the_node
async def test_a_process_that_dies_over_it_leaves_it_to_somebody_else(
    node: Space, rules: Space, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with making() as made:
        monkeypatch.setattr(module, "SILENT", 0.1)
        os.kill(process_of(made), signal.SIGSTOP)
        asked = asyncio.create_task(made.transactions.commit(add("a")))
        await asyncio.sleep(0)
        if how == "killed":
            os.kill(process_of(made), signal.SIGKILL)
        assert not await asked and made.busy_for == 0
        assert in_force(node) == set()


@on_the_node
async def test_what_the_process_does_not_come_to_is_somebody_elses_and_never_sent(
    node: Space, rules: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link may wait for whoever has the kernel's network configuration, seconds long; rules have nothing to do with
    that."""
    async with making() as made:
        os.kill(process_of(made), signal.SIGSTOP)
        with monkeypatch.context() as hurried:
            hurried.setattr(linkprocess, "MOMENT", 0.01)
            for _ in range(2):
                assert not await made.transactions.commit(add("a"))
        assert made.busy_for == 0
        os.kill(process_of(made), signal.SIGCONT)
        for name in "bcd":
            assert await made.transactions.commit(add(name))
        assert in_force(node) == {"b", "c", "d"}


@on_the_node
async def test_it_is_sent_beside_links_that_wait_and_not_behind_those_that_are_to_come_up(
    node: Space, pod: Space, rules: Space
) -> None:
    async with making() as made:
        waiting = [made.begin(entry(pod).netns) for _ in range(3)]  # for what their pods may have
        for link in waiting:
            assert link is not None and await link.identified
        assert await made.transactions.commit(add("a"))
        for name, link in zip(("c1", "c2"), waiting, strict=False):
            assert link is not None
            link.create(Wiring.of(msgspec.structs.replace(entry(pod, name), ifname=name)))
        os.kill(process_of(made), signal.SIGSTOP)
        for link in waiting[:2]:
            assert link is not None
            link.bring_up(())
        asked = asyncio.create_task(made.transactions.commit(add("b")))
        await asyncio.wait([asked], timeout=PATIENCE / 2)
        os.kill(process_of(made), signal.SIGCONT)
        assert not asked.result()


@on_the_node
async def test_what_cannot_be_sent_is_said_to_be_so_and_the_next_is_sent(
    node: Space, rules: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOCK_FAULT", "netlink.send=ENOBUFS@1")  # of the process that is begun next
    async with making() as made:
        assert not await made.transactions.commit(add("a"))
        assert await made.transactions.commit(add("b"))
        assert in_force(node) == {"b"} and made.busy_for == 0


@on_the_node
async def test_an_answer_that_is_not_there_is_not_waited_for(
    node: Space, rules: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It always is; but it is the loop that would wait."""

    async def sent(_: bytes) -> bool:
        return True

    async with making() as made:
        monkeypatch.setattr(made._process, "send", sent)
        assert not await made.transactions.commit(add("a"))


@on_the_node
async def test_an_answer_to_what_a_dead_process_sent_is_not_the_next_ones(node: Space, rules: Space) -> None:
    async with making() as made:
        ours = made.transactions._socket
        refused = [Operation(False, element("b"))]
        ours.send(ours.composed(list(messages(refused))), "by one that died before it was heard")
        assert made.transactions.ready() is ours
        os.kill(process_of(made), signal.SIGSTOP)
        asked = asyncio.create_task(made.transactions.commit(add("a")))
        await asyncio.sleep(0)
        assert not asked.done()
        os.kill(process_of(made), signal.SIGCONT)
        assert await asked and in_force(node) == {"a"}


@on_the_node
async def test_who_gives_up_waiting_hears_so_when_it_is_done_and_leaves_nothing_behind(
    node: Space, rules: Space
) -> None:
    """What is changed next must not be undone by what was asked before."""
    async with making() as made:
        os.kill(process_of(made), signal.SIGSTOP)
        asked = asyncio.create_task(made.transactions.commit(add("a")))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait([asked], timeout=0.1)
        assert not asked.done() and made.busy_for > 0
        os.kill(process_of(made), signal.SIGCONT)
        await asyncio.wait([asked])
        assert asked.cancelled() and in_force(node) == {"a"} and made.busy_for == 0
        with pytest.raises(BlockingIOError):
            made.transactions._socket._socket.recv(1, socket.MSG_DONTWAIT)
        assert await made.transactions.commit(add("c"))
        assert in_force(node) == {"a", "c"}


@on_the_node
async def test_who_waits_when_the_process_is_ended_hears_so_when_it_has(node: Space, rules: Space) -> None:
    async with making() as made:
        process = process_of(made)
        os.kill(process, signal.SIGSTOP)
        asked = asyncio.create_task(made.transactions.commit(add("a")))
        await asyncio.sleep(0)
        assert made._process is not None
        ending = asyncio.create_task(made._process.end())
        await asyncio.wait([asked], timeout=0.1)
        assert not asked.done()
        os.kill(process, signal.SIGCONT)
        assert not await asked
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
        await ending


class Quicker:
    """Sends some and not others."""

    port = 0

    def __init__(self, *answers: bool) -> None:
        self.answers, self.asked = list(answers), 0

    async def commit(self, operations: Sequence[Operation]) -> bool:
        self.asked += 1
        return self.answers.pop(0)


@on_the_node
async def test_what_somebody_quicker_has_not_surely_put_into_force_is_put_into_force(node: Space, rules: Space) -> None:
    quicker = Quicker(True, False)
    nft = apply.Nft(sender=quicker)
    try:
        await nft.apply(Transaction(operations=tuple(add("done by it"))))
        await nft.apply(Transaction(operations=tuple(add("a"))))
        assert in_force(node) == {"a"} and quicker.asked == 2
    finally:
        nft.close()


@on_the_node
async def test_nothing_overtakes_what_was_handed_to_the_thread_by_somebody_who_gave_up(
    node: Space, rules: Space
) -> None:
    quicker = Quicker(False, True)
    nft, go_on = apply.Nft(sender=quicker), threading.Event()
    try:
        held = nft._thread.run(go_on.wait, PATIENCE)
        given_up = asyncio.create_task(nft.apply(Transaction(operations=tuple(add("a")))))
        after = asyncio.create_task(nft.apply(Transaction(operations=tuple(add("done by it")))))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up, after], timeout=0.1)
        assert quicker.asked == 1 and not given_up.done()
        go_on.set()
        await asyncio.wait([held, given_up, after])
        assert given_up.cancelled() and quicker.asked == 2 and in_force(node) == {"a"}
    finally:
        go_on.set()
        nft.close()
