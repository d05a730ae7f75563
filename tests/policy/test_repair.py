"""Tables that somebody else flushed are made anew because the kernel tells, without waiting for anything else."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from keeping import with_rules_in_force
from playground import Playground, present

from flock.agent import policies
from flock.agent.policies import Policies
from flock.core.errors import KernelRefused
from flock.core.happenings import RulesMadeAnew
from flock.core.policy.rendered import Transaction
from flock.edge.nft import observe
from flock.edge.nft.apply import Nft

STEPS = 500


def made_anew(kept: Policies) -> int:
    return kept._happened.count(RulesMadeAnew)


async def until_present(nft: Nft) -> None:
    for _ in range(STEPS):
        if await nft.ask(present):
            return
        await REAL_SLEEP(0.01)
    raise AssertionError("the tables did not come back")


REAL_SLEEP = asyncio.sleep


@pytest.mark.parametrize("command", ["flush ruleset", "delete table inet flock", "delete table arp flock"])
def test_between_the_flush_and_the_repair_nobody_sleeps(
    ground: Playground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Nor is it found by the comparison of everything, which is two minutes away."""
    assert policies.LOOK_EVERY >= 60

    async def scenario(kept: Policies, nft: Nft) -> None:
        slept: list[float] = []

        async def sleep(seconds: float, result: Any = None) -> Any:
            slept.append(seconds)
            return await REAL_SLEEP(seconds, result)

        monkeypatch.setattr(asyncio, "sleep", sleep)
        started = time.perf_counter()
        await asyncio.to_thread(ground.node.execute, "nft", command)
        assert not await nft.ask(present) or made_anew(kept)
        await until_present(nft)
        print(f"\n`nft {command}`: rules are back after {1000 * (time.perf_counter() - started):.0f} ms")
        assert made_anew(kept) >= 1
        assert not any(slept)

    with_rules_in_force(ground, tmp_path, scenario)


@pytest.mark.parametrize("followed_by_another", [False, True])
def test_a_flush_while_our_own_change_is_under_way_is_not_forgotten(
    ground: Playground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed_by_another: bool
) -> None:
    """Nor where a further change of ours follows in the same turn and succeeds: it mends nothing."""

    async def scenario(kept: Policies, nft: Nft) -> None:
        apply, done = nft.apply, asyncio.Event()

        async def apply_beside_a_flush(transaction: Transaction) -> None:
            monkeypatch.setattr(nft, "apply", apply)
            await apply(transaction)
            await asyncio.to_thread(ground.node.execute, "nft", "flush ruleset")
            for _ in range(STEPS):
                if made_anew(kept):
                    break
                await REAL_SLEEP(0.01)
            if followed_by_another:
                monkeypatch.setattr(kept, "_overfull", frozenset({"another"}))
                monkeypatch.setattr(kept._rules, "limit", lambda _: Transaction())
            done.set()

        monkeypatch.setattr(nft, "apply", apply_beside_a_flush)
        kept.trigger()
        await asyncio.wait_for(done.wait(), 10)
        await until_present(nft)

    with_rules_in_force(ground, tmp_path, scenario)


def test_a_comparison_that_cannot_be_made_leaves_the_rules_in_force_and_is_made_later(
    ground: Playground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(kept: Policies, nft: Nft) -> None:
        ask, compared = nft.ask, list[str]()

        async def refusing(question: Any) -> Any:
            if question is observe.observe:
                compared.append(kept.problem)
                if len(compared) == 1:
                    raise KernelRefused("not now")
            return await ask(question)

        monkeypatch.setattr(nft, "ask", refusing)
        kept._look_at_once()
        for _ in range(STEPS):
            assert not kept.problem
            if len(compared) > 1:
                break
            kept.trigger()
            await REAL_SLEEP(0.01)
        assert compared == ["", ""] and not made_anew(kept)

    with_rules_in_force(ground, tmp_path, scenario)


@pytest.mark.parametrize(("signal", "words"), [("SEGV", "crashed: a newer nft"), ("KILL", "failed without a word")])
def test_an_nft_that_crashes_is_told_apart(tmp_path: Path, signal: str, words: str) -> None:
    """As one of Debian 12 does beside tables of Debian 13's."""
    program = tmp_path / "nft"
    program.write_text(f"#!/bin/sh\nkill -{signal} $$\n")
    program.chmod(0o755)

    async def run() -> None:
        nft = Nft(program=str(program))
        with pytest.raises(KernelRefused, match=words):
            await nft.run("add table inet x")
        nft.close()

    asyncio.run(run())
