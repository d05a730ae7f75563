"""When connections are counted, who is then restricted, and that a kernel which refuses is asked again.

The counts are files of the test, and so is what each pod has opened; the real table is test_connection_limit's."""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flock.agent import limiting
from flock.agent.happened import Happened
from flock.agent.limiting import ConnectionLimit
from flock.core.errors import KernelRefused

LIMIT = 100


class World:
    """A table of connections, the pods that opened them, and the rules that keep some from opening more."""

    def __init__(self, directory: Path) -> None:
        self._count = directory / "netfilter" / "nf_conntrack_count"
        self._count.parent.mkdir()
        self.by_pod: Counter[str] = Counter()
        self.listings = 0
        self.restricted: Collection[str] = ()
        self.refuses = False
        limits = SimpleNamespace(connections_per_pod=LIMIT)
        configured: Any = SimpleNamespace(config=SimpleNamespace(limits=limits))
        policies: Any = self
        self.limit_of = ConnectionLimit(
            attached=policies, policies=policies, configured=configured, sysctl=directory, happened=Happened()
        )

    def look(self, **opened: int) -> bool:
        """One run, with so many connections; all that was done."""
        self.by_pod = Counter(opened)
        self._count.write_text(f"{self.by_pod.total()}\n")
        return asyncio.run(self._one())

    async def _one(self) -> bool:
        return await self.limit_of.reconcile()

    def listed(self) -> Counter[int]:
        self.listings += 1
        if self.refuses:
            raise KernelRefused("list connections: not now")
        return Counter()

    # --- as Policies, and as Attached ---

    def opened(self, _: Mapping[int, int]) -> dict[str, int]:
        return dict(self.by_pod)

    async def limit(self, overfull: Collection[str]) -> None:
        self.restricted = set(overfull)

    def pod_on(self, interface: str) -> str:
        return f"default/{interface}"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    monkeypatch.setattr(limiting, "opened_by_number", world.listed)
    monkeypatch.setattr(limiting, "CALM", 0)
    return world


def test_nothing_is_counted_while_nobody_can_have_too_many(world: World) -> None:
    assert world.look(a=50, b=40) and not world.listings


def test_who_opened_too_many_is_restricted_until_it_has_markedly_fewer(world: World) -> None:
    world.look(a=101, b=40)
    assert world.restricted == {"a"} and "default/a" in str([*world.limit_of.complaints()])
    world.look(a=95, b=40)
    assert world.restricted == {"a"}
    world.look(a=89, b=40)
    assert not world.restricted and not [*world.limit_of.complaints()]


def test_a_table_that_all_filled_together_restricts_nobody_and_is_not_counted_at_every_look(world: World) -> None:
    for _ in range(5):
        world.look(a=60, b=60, c=60)
    assert not world.restricted and world.listings == 1


def test_a_kernel_that_refuses_restricts_nobody_anew_and_is_asked_again(world: World) -> None:
    world.refuses = True
    assert not world.look(a=101) and "not now" in world.limit_of.problem
    assert not world.restricted
    world.refuses = False
    assert world.look(a=101) and not world.limit_of.problem
    assert world.restricted == {"a"}
