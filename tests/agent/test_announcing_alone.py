"""Whoever changes what is announced does so alone: runs, drain, undrain and the agent's end do not overlap."""

import asyncio
import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from anycasting import announced, anycast_pod, granting, lingers, protocols

from flock.agent.announcer import Announcer
from flock.agent.happened import Happened
from flock.core.announcing import Claim
from flock.core.errors import FlockError, KernelRefused
from flock.edge.kernel.announce import Changes
from harness import Node, eventually


@pytest.fixture
def carrying(fresh: Node) -> Node:
    """A node with one pod whose anycast address is announced."""
    fresh.write("nodeconfig", granting())
    fresh.start()
    anycast_pod(fresh)
    return fresh


def at_once(node: Node, *operations: str) -> None:
    """All are asked before the first can be answered."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(node.connect()) for _ in operations]
        for connection, op in zip(connections, operations, strict=True):
            connection.sendall(json.dumps({"op": op}).encode() + b"\n")
        for connection in connections:
            assert b'"result"' in connection.recv(1 << 20)


def test_what_is_drained_twice_at_once_is_delivered_a_while_longer(carrying: Node) -> None:
    for _ in range(10):
        at_once(carrying, *["drain"] * 5)
        assert lingers(carrying), f"the address is {protocols(carrying) or 'gone'}"
        carrying.ask("undrain")
        assert announced(carrying)
    carrying.ask("drain")
    eventually(lambda: not protocols(carrying), what="the while is over")


def test_what_was_withdrawn_just_before_a_restart_is_delivered_a_while_longer(carrying: Node) -> None:
    carrying.ask("drain")
    carrying.kill()
    carrying.start()
    carrying.ask("drain")  # a whole run of the new agent
    assert lingers(carrying)
    eventually(lambda: not protocols(carrying), what="the while is over")


def test_a_node_can_be_drained_before_it_is_ready(carrying: Node) -> None:
    """Nothing needs to be known in order to announce nothing."""
    carrying.kill()
    (carrying.manifests / "nodeconfig.json").unlink()
    carrying.start(wait=False)
    eventually(lambda: (carrying.run_dir / "flock.sock").is_socket() and alive(carrying), what="the agent listens")
    eventually(lambda: carrying.ask("pods"), what="the store is loaded")
    assert announced(carrying), "what an earlier life announced stays"
    carrying.ask("drain")
    assert not announced(carrying)


def alive(node: Node) -> bool:
    with contextlib.suppress(OSError):
        return bool(node.ask("status"))
    return False


class Refusing:
    """A kernel that refuses once."""

    def __init__(self) -> None:
        self.desired: list[Any] = []
        self.again = asyncio.Event()

    async def announce(self, desired: Any, **_: Any) -> Changes:
        self.desired.append(desired)
        if len(self.desired) == 1:
            raise KernelRefused("not now")
        self.again.set()
        return Changes()


class WithoutClaims(Announcer):
    def claims(self) -> list[Claim]:
        return []


def test_a_drain_that_the_kernel_refuses_is_an_error_and_tried_again(tmp_path: Path) -> None:
    parts: Any = SimpleNamespace(
        links={}, entries=(), own=lambda _: None, reader=lambda *_: None, config=None, begun=False
    )

    async def story() -> None:
        kernel = Refusing()
        announcer = WithoutClaims(
            attached=parts,
            cache=parts,
            configured=parts,
            preparing=parts,
            departure=parts,
            happened=Happened(),
            kernel=kernel,
            state_dir=tmp_path,  # type: ignore[arg-type]
        )
        with pytest.raises(FlockError, match="not now"):
            await announcer.drain()
        assert "not now" in announcer.problem
        running = asyncio.create_task(announcer.run())
        async with asyncio.timeout(20):
            await kernel.again.wait()
        assert kernel.desired == [{}, {}]
        running.cancel()

    asyncio.run(story())
