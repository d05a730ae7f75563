"""Somebody else's changes to our tables are noticed at once, our own are not; drops are told as they happen."""

import asyncio
import errno
import socket
from collections.abc import Sequence

import pytest
from changing import CHANGES, STATE
from playground import FAMILIES, Playground, addresses, compiled, group, interface, policy, subject

from flock.core.errors import KernelRefused
from flock.core.happenings import Dropped
from flock.core.policy.compiled import Change, Peers, Rule
from flock.core.policy.elements import Operation
from flock.edge.nft import observe
from flock.edge.nft.apply import Nft
from flock.edge.nft.drops import Drops
from flock.edge.nft.socket import NftSocket
from flock.edge.nft.watch import Watch

FOREIGN_CHANGES = [
    "flush ruleset",
    "delete table inet flock",
    "delete table arp flock",
    "flush chain inet flock egress",
    "flush set inet flock pods",
    "insert rule inet flock ingress accept",
    "delete element inet flock egress { flock00000001 }",
]


@pytest.mark.parametrize("command", FOREIGN_CHANGES)
def test_a_foreign_change_is_noticed_and_a_full_script_heals_it(ground: Playground, command: str) -> None:
    async def scenario() -> None:
        noticed = asyncio.Event()
        watch = Watch(on_change=noticed.set, on_lost=noticed.set)
        watch.start()
        nft = Nft(watch=watch)
        try:
            await nft.replace(ground.ruleset, STATE)
            await nft.apply(ground.ruleset.transaction(CHANGES[0]))
            await asyncio.sleep(0.05)
            assert not noticed.is_set(), "our own"
            ground.node.execute("nft", command)
            await asyncio.wait_for(noticed.wait(), 5)
            await nft.replace(ground.ruleset, STATE)
            assert await nft.ask(observe.observe) == ground.ruleset.expected(STATE)
            noticed.clear()
            ground.node.execute("nft", "add table inet theirs; add chain inet theirs c; flush table inet theirs")
            await asyncio.sleep(0.05)
            assert not noticed.is_set(), "not about us"
        finally:
            nft.close()
            watch.close()

    with ground.node.inside():
        asyncio.run(scenario())


class Quicker:
    """Sends by a socket of its own, or does not."""

    def __init__(self, *, sends: bool) -> None:
        self.socket = NftSocket()
        self.port = self.socket.port
        self.sends = sends

    async def commit(self, operations: Sequence[Operation]) -> bool:
        if self.sends:
            self.socket.commit(operations)
        return self.sends


@pytest.mark.parametrize("sends", [None, True, False], ids=["alone", "by a quicker one", "beside a quicker one"])
def test_what_our_own_sockets_change_does_not_wake_us_up(ground: Playground, sends: bool | None) -> None:
    taken: list[bytes] = []

    async def scenario() -> None:
        watch = Watch(on_change=lambda: None, on_lost=lambda: None)
        nft = Nft(watch=watch, sender=None if sends is None else Quicker(sends=sends))
        try:
            await nft.replace(ground.ruleset, STATE)
            batches = 0
            for change in CHANGES:
                transaction = ground.ruleset.transaction(change)
                watch._drain()
                own = bool(transaction.operations) and not transaction.script and not transaction.prepare
                watch._take = taken.append if own else lambda _: None  # type: ignore[method-assign]
                await nft.apply(transaction)
                watch._drain()
                batches += own
            assert batches
        finally:
            nft.close()
            watch.close()

    with ground.node.inside():
        asyncio.run(scenario())
    assert taken == []


def test_more_than_there_is_room_for_is_told_as_lost_and_not_as_foreign(
    ground: Playground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making everything anew because of it would be as much again.  A stand-in, as kernels differ in when they lose."""
    told: list[str] = []
    answers: list[OSError] = [OSError(errno.ENOBUFS, "no room"), BlockingIOError()]

    class Overrun:
        def recv(self, _: int) -> bytes:
            raise answers.pop(0)

    with ground.node.inside():
        watch = Watch(on_change=lambda: told.append("change"), on_lost=lambda: told.append("lost"))
    watch._socket.close()
    monkeypatch.setattr(watch, "_socket", Overrun())
    watch._drain()
    assert told == ["lost"]


def watch_drops(ground: Playground, traffic: object, *, expected: int) -> list[Dropped]:
    async def scenario() -> list[Dropped]:
        seen: list[Dropped] = []
        done = asyncio.Event()

        def on_drop(drop: Dropped, _: int) -> None:
            seen.append(drop)
            if len(seen) >= expected:
                done.set()

        drops = Drops(on_drop=on_drop, pod_at=socket.if_indextoname)
        drops.start()
        try:
            await asyncio.get_running_loop().run_in_executor(None, traffic)  # type: ignore[arg-type]
            await asyncio.wait_for(done.wait(), 5)
        finally:
            drops.close()
        return seen

    with ground.node.inside():
        return asyncio.run(scenario())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_drop_tells_pod_peer_port_and_the_policies_that_isolate(ground: Playground, family: str) -> None:
    friends = group("app=friend")
    web = policy("web", ingress=[Rule(peers=Peers(groups=(friends,)), any_port=True)])
    ground.load(compiled([subject(1, ingress="web"), subject(2, egress="")], [web], {friends: addresses(2)}))

    def traffic() -> None:
        ground.connects(0, 1, family, 8080)
        ground.reaches(2, 0, family, 53)

    seen = watch_drops(ground, traffic, expected=2)
    first, last = seen[0], seen[-1]
    assert (first.what, first.policies, first.protocol, first.port) == ("ingress", "default/web", "TCP", 8080)
    assert (first.source, first.destination) == tuple(ground.at(who, family) for who in (0, 1))
    assert first.pod == interface(1)
    assert (last.what, last.policies, last.protocol, last.port) == ("egress", "undecided", "UDP", 53)
    assert last.pod == interface(2)
    counted = ground.do(lambda nft: nft.ask(observe.dropped))
    assert counted.ingress >= 1
    assert counted.egress == 1


def test_a_flood_of_drops_is_counted_in_full_and_told_in_part(ground: Playground) -> None:
    ground.load(compiled([subject(1, ingress="")], []))

    def traffic() -> None:
        with ground.place(0).socket("6") as client:
            for _ in range(500):
                client.sendto(b"x", (ground.at(1, "6"), 80))

    seen = watch_drops(ground, traffic, expected=20)
    assert len(seen) < 100
    assert ground.do(lambda nft: nft.ask(observe.dropped)).ingress == 500


def test_only_one_can_listen(ground: Playground) -> None:
    async def scenario() -> None:
        drops = Drops(on_drop=lambda *_: None, pod_at=str)
        drops.start()
        try:
            with pytest.raises(KernelRefused, match="NFLOG group 133"):
                Drops(on_drop=lambda *_: None, pod_at=str)
        finally:
            drops.close()

    with ground.node.inside():
        asyncio.run(scenario())


def test_a_change_with_nothing_in_it_does_nothing(ground: Playground) -> None:
    ground.load(STATE)
    transaction = ground.change(Change())
    assert not transaction.prepare
    assert not transaction.script
    assert not transaction.operations
