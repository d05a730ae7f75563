"""The agent's event loop: asyncio's, with steps that follow each other before the kernel is asked for news."""

import asyncio
import os
import selectors
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from flock.edge.loop import STEPS, Loop

PATIENCE = 20  # seconds


def run(made: Callable[[], Coroutine[Any, Any, None]], selector: selectors.BaseSelector | None = None) -> None:
    with asyncio.Runner(loop_factory=lambda: Loop(selector)) as runner:
        runner.run(asyncio.wait_for(made(), PATIENCE))


class Counting(selectors.DefaultSelector):
    looks = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.looks += 1
        return super().select(timeout)


def test_steps_that_follow_one_another_need_no_look_between_them() -> None:
    selector = Counting()

    async def chain() -> None:
        await asyncio.sleep(0.01)  # from a look
        before = selector.looks
        for _ in range(STEPS - 1):
            await asyncio.sleep(0)
        assert selector.looks == before

    run(chain, selector)


def test_whoever_never_ends_keeps_neither_sockets_nor_times_from_being_heard() -> None:
    async def busy() -> None:
        heard, late = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            loop.add_reader(ours, heard.set)
            loop.call_later(0.01, late.set)
            theirs.send(b"x")
            while not (heard.is_set() and late.is_set()):  # noqa: ASYNC110 - this is who never ends
                await asyncio.sleep(0)
            loop.remove_reader(ours)

    run(busy)


def test_steps_are_taken_in_the_order_in_which_they_were_made_ready() -> None:
    async def order() -> None:
        done: list[tuple[str, int]] = []

        async def walk(name: str) -> None:
            for number in range(20):
                done.append((name, number))
                await asyncio.sleep(0)

        await asyncio.gather(walk("a"), walk("b"))
        assert done == [(name, number) for number in range(20) for name in "ab"]

    run(order)


def test_threads_and_signals_wake_it() -> None:
    async def woken() -> None:
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, told.set)
        for _ in range(3):
            await asyncio.to_thread(os.kill, os.getpid(), signal.SIGUSR1)
            await told.wait()
            told.clear()

    run(woken)


def test_a_loop_that_is_stopped_takes_no_further_step() -> None:
    loop, taken = Loop(), []
    try:
        loop.call_soon(loop.stop)
        loop.call_soon(lambda: loop.call_soon(taken.append, 1))
        loop.run_forever()
        assert not taken
        loop.call_soon(loop.stop)
        loop.run_forever()
        assert taken
    finally:
        loop.close()
