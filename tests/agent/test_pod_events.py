"""What a kubelet writes of a pod's life, and who has use for which of it.  Counted, not timed."""

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flock.agent.announcer import READ as ANNOUNCER_READS
from flock.agent.announcer import Announcer
from flock.agent.happened import Happened
from flock.agent.intake import READ as POLICIES_READ
from flock.core.announcing import Claim, Via
from flock.core.kinds import PODS
from flock.edge.cache import Cache
from flock.edge.kernel.announce import Changes
from living import all_is_done, live


def test_of_a_pods_life_everybody_hears_what_they_go_by() -> None:
    async def story() -> None:
        cache, heard, now = Cache(node="n1"), dict[str, list[str]](), [""]

        def hear(who: str) -> None:
            heard.setdefault(who, []).append(now[0])

        for who, reads in (("policies", POLICIES_READ), ("announcer", ANNOUNCER_READS), ("anybody", [PODS])):
            cache.subscribe(partial(hear, who), of=reads)
        async for name in live(cache):
            now[0] = name
        assert heard == {
            "policies": ["scheduled", "running", "over", "deleted"],
            "announcer": ["ready", "going", "over"],
            "anybody": ["scheduled", "running", "ready", "going", "over", "deleted"],
        }

    asyncio.run(story())


class Claiming(Announcer):
    """For one pod, whatever is known of it."""

    pod = ""

    def claims(self) -> list[Claim]:
        via = Via("192.0.2.7", "flock00000001")
        claim = Claim(address="192.0.3.53", pod=self.pod, container_id="c1", kind="anycast", via=via, obstacle="no")
        return [claim] if self.pod else []


class Idle:
    async def announce(self, *_: object, **__: object) -> Changes:
        return Changes()


def test_the_announcer_runs_for_pods_that_claim_something_and_for_no_others(tmp_path: Path) -> None:
    async def runs(claimant: str) -> list[str]:
        parts: Any = SimpleNamespace(links={}, entries=(), config=None, begun=False)
        cache = Cache(node="n1")
        announcer = Claiming(
            attached=parts,
            cache=cache,
            configured=parts,
            preparing=parts,
            departure=parts,
            happened=Happened(),
            kernel=Idle(),  # type: ignore[arg-type]
            state_dir=tmp_path,
        )
        announcer.pod = claimant
        cache.subscribe(announcer.consider, of=ANNOUNCER_READS)
        running = asyncio.create_task(announcer.run())  # once, whatever happens
        await all_is_done()
        found, before = list[str](), announcer.runs
        async for name in live(cache):
            await all_is_done()
            found += [name] * (announcer.runs - before)
            before = announcer.runs
        running.cancel()
        return found

    assert asyncio.run(runs("shop/dns")) == ["ready", "going", "over"]
    assert asyncio.run(runs("shop/web")) == []
