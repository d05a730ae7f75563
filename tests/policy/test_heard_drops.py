"""Drops are shown as soon as they can be heard, also where somebody else heard them first."""

import asyncio
import socket
import time
from types import SimpleNamespace

import pytest
from playground import Playground

from flock.agent.drops import HeardDrops
from flock.agent.happened import Happened
from flock.core.happenings import Dropped, Share
from flock.edge.netlink import wire as w
from flock.edge.nft.drops import NUMBER, PACKET, TOLD, WINDOW, Drops


def test_who_finds_another_listening_says_so_and_listens_when_that_one_is_gone(ground: Playground) -> None:
    async def scenario() -> None:
        other = Drops(on_drop=lambda *_: None, pod_at=str)
        shown = HeardDrops(Happened(), str)
        shown.start()
        assert "NFLOG group 133" in shown.problem
        other._socket.close()
        shown.start()
        assert not shown.problem

    with ground.node.inside():
        asyncio.run(scenario())


UNLIMITED = "add chain inet theirs out {{ type filter hook output priority 0; }}; add rule inet theirs out {rule}"
RULE = 'udp dport 9 log prefix "flock egress x/y" group 133'
PACKETS = 20_000


def test_a_flood_costs_a_bounded_share_and_every_drop_of_it_has_a_number(ground: Playground) -> None:
    """Rules of ours are limited; many places together, or rules of somebody else, are not."""
    ground.node.execute("nft", f"add table inet theirs; {UNLIMITED.format(rule=RULE)}")

    def send(count: int) -> None:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
            for _ in range(count):
                sender.sendto(b"x", ("::1", 9))

    async def scenario() -> None:
        happened = Happened()
        HeardDrops(happened, str).start()
        started = time.monotonic()
        send(PACKETS)
        await happened.wait({Share.DROPS: 0}, 5)
        for _ in range(100):  # what comes after the flood tells how much of it was not
            read, missed = happened.after(Share.DROPS, 0)
            if read and read[-1].number >= PACKETS:
                break
            await asyncio.sleep(WINDOW)
            send(1)
        assert PACKETS <= read[-1].number <= PACKETS + 100
        assert len(read) + missed == read[-1].number
        assert happened.count(Dropped) <= TOLD * ((time.monotonic() - started) / WINDOW + 1)
        assert {entry.what.protocol for entry in read if isinstance(entry.what, Dropped)} == {"UDP"}

    with ground.node.inside():
        asyncio.run(scenario())


def test_no_more_are_told_in_a_moment_than_the_loop_has_time_for(
    ground: Playground, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("flock.edge.nft.drops.time", SimpleNamespace(monotonic=lambda: now))
    told: list[int] = []
    with ground.node.inside():
        reader = Drops(on_drop=lambda _, untold: told.append(untold), pod_at=str)
    datagram = b"".join(
        w.message(PACKET, 0, 0, bytes(4) + w.attr(NUMBER, number.to_bytes(4))) for number in range(2 * TOLD)
    )
    reader._take(datagram)
    reader._take(datagram)
    assert told == [0] * TOLD
    now += 2 * WINDOW
    reader._take(w.message(PACKET, 0, 0, bytes(4) + w.attr(NUMBER, (3 * TOLD).to_bytes(4))))
    assert told[TOLD:] == [2 * TOLD]
    reader._socket.close()
