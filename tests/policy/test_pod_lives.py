"""What of a pod's life is a change of rules: its ADD, its DEL, and what else somebody's policies go by.  Counted by the
kernel, as generations of its rules, and by the agent.
"""

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest
from keeping import with_rules_in_force
from playground import Playground, address, interface, mac

from flock.agent.intake import READ
from flock.agent.policies import NEVER, Policies
from flock.core.decoding import decode_pod
from flock.core.happenings import PolicyRefused, RulesMadeAnew
from flock.core.kinds import NAMESPACES, PODS, POLICIES
from flock.core.model import Allocation, Metadata, Namespace, Pod
from flock.edge.cache import Cache
from flock.edge.nft.apply import Nft
from flock.edge.nft.batch import NEWGEN, plain_header
from flock.edge.nft.socket import NftSocket
from living import KEY, RUNNING, live, told

GETGEN = NEWGEN + 1
FRIENDLY: dict[str, Any] = {  # lets the pod whose life it is in to another
    "metadata": {"namespace": KEY[0], "name": "friendly"},
    "spec": {
        "podSelector": {"matchLabels": {"app": "web"}},
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "dns"}}}]}],
    },
}
SELECTING: dict[str, Any] = {  # that pod itself
    "metadata": {"namespace": KEY[0], "name": "selecting"},
    "spec": {"podSelector": {"matchLabels": {"app": "dns"}}, "policyTypes": ["Ingress"]},
}
WRONG: dict[str, Any] = {  # about that pod, and refused
    "metadata": {"namespace": KEY[0], "name": "wrong"},
    "spec": {"podSelector": {"matchLabels": {"app": "dns"}}, "ingress": [{"ports": [{"port": -1}]}]},
}
WEB = Pod(metadata=Metadata(namespace=KEY[0], name="web", uid="u2", labels={"app": "web"}))
WAITS = 1000  # looks, a hundredth of a second apart, at what is to come to rest


def generation(socket: NftSocket) -> int:
    """Of the rules in this namespace: each transaction that is in force makes a new one."""
    (told,) = socket.ask(GETGEN, plain_header(), dump=False)
    return int(struct.unpack_from(">I", told, 8)[0])


def attached(number: int, name: str) -> Allocation:
    return Allocation(
        container_id=name,
        namespace=KEY[0],
        pod_name=name,
        owner_uid="u1" if name == KEY[1] else "u2",
        ip4=address(number, "4"),
        state="committed",
        allocated_at="2026-01-01T00:00:00Z",
        host_interface=interface(number),
        mac=mac(number),
    )


async def at_rest(kept: Policies) -> None:
    for _ in range(WAITS):
        for _ in range(20):
            await asyncio.sleep(0)
        if not (kept.changing or kept._triggered.is_set() or kept._alone.locked()):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not come to rest")


async def lived(kept: Policies, nft: Nft, cache: Cache) -> dict[str, tuple[int, int, int]]:
    """Of each step at which something was done: runs, changes of rules as the agent counts them and the kernel."""
    found: dict[str, tuple[int, int, int]] = {}

    async def counted() -> tuple[int, int, int]:
        await at_rest(kept)
        return kept.runs, kept.transactions, await nft.ask(generation)

    async def note(step: str) -> None:
        nonlocal before
        now = await counted()
        if now != before:
            found[step] = (now[0] - before[0], now[1] - before[1], now[2] - before[2])
        before = now

    pod, before = attached(7, KEY[1]), await counted()
    async for step in live(cache):
        await note(step)
        if step == "creating":
            await kept.admit(pod, pod=None)
            await note("ADD")
        elif step == "going":
            await kept.release(pod)
            await note("DEL")
    return found


def follow(kept: Policies, cache: Cache, *policies: dict[str, Any]) -> None:
    """Whatever is put into the cache from now on, as in an agent; with these to begin with."""
    cache.subscribe(kept.consider, of=READ)
    for policy in policies:
        cache.put(POLICIES, (KEY[0], policy["metadata"]["name"]), policy)
    cache.put(NAMESPACES, ("", KEY[0]), Namespace(metadata=Metadata(name=KEY[0])))


def life(ground: Playground, directory: Path, *policies: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    found: dict[str, tuple[int, int, int]] = {}

    async def scenario(kept: Policies, nft: Nft) -> None:
        follow(kept, cache, *policies)
        cache.put(PODS, (KEY[0], "web"), WEB)
        await kept.admit(attached(8, "web"), pod=None)
        found.update(await lived(kept, nft, cache))

    cache = Cache(node="n1")
    with_rules_in_force(ground, directory, scenario, cache=cache)
    return found


def test_a_life_that_no_policy_goes_by_is_two_changes_of_rules(ground: Playground, tmp_path: Path) -> None:
    assert life(ground, tmp_path) == {"ADD": (0, 1, 1), "DEL": (0, 1, 1)}


def test_who_is_selected_makes_and_leaves_its_chains(ground: Playground, tmp_path: Path) -> None:
    found = life(ground, tmp_path, SELECTING)
    assert found.keys() == {"ADD", "DEL"}


def test_a_peer_that_is_over_leaves_its_groups_then(ground: Playground, tmp_path: Path) -> None:
    """Its object says that the address is its own until it is."""
    assert life(ground, tmp_path, FRIENDLY) == {"ADD": (0, 1, 1), "DEL": (0, 1, 1), "over": (1, 1, 1)}


def test_a_peer_that_comes_when_rules_are_to_be_compared_is_nobodys_tampering(
    ground: Playground, tmp_path: Path
) -> None:
    """It is taken in before the transaction that puts it into force, and comparing in between made all rules anew."""

    async def scenario(kept: Policies, _: Nft) -> None:
        follow(kept, cache, FRIENDLY)
        cache.put(PODS, (KEY[0], "web"), WEB)
        await kept.admit(attached(8, "web"), pod=None)
        await at_rest(kept)
        kept._looked = NEVER  # it is time to
        cache.put(PODS, KEY, decode_pod(told(RUNNING, "True", False)))
        await at_rest(kept)
        assert kept._looked != NEVER, "it was compared"
        await kept.settled(repaired=True)
        assert not kept._happened.count(RulesMadeAnew)

    cache = Cache(node="n1")
    with_rules_in_force(ground, tmp_path, scenario, cache=cache)


def test_who_wrote_a_refused_policy_is_told_when_the_first_pod_it_is_about_comes(
    ground: Playground, tmp_path: Path
) -> None:
    async def scenario(kept: Policies, _: Nft) -> None:
        follow(kept, cache, WRONG)
        cache.put(PODS, KEY, decode_pod(told(RUNNING, "False", False)))
        await at_rest(kept)
        assert not kept._happened.count(PolicyRefused), "nobody here has to do with it"
        await kept.admit(attached(7, KEY[1]), pod=None)
        await at_rest(kept)
        assert kept._happened.count(PolicyRefused) == 1

    cache = Cache(node="n1")
    with_rules_in_force(ground, tmp_path, scenario, cache=cache)


def test_a_mistake_of_ours_in_taking_in_is_met_by_a_run_and_stops_nobody_else(
    ground: Playground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(kept: Policies, _: Nft) -> None:
        def mistaken() -> bool:
            raise ZeroDivisionError

        await at_rest(kept)
        monkeypatch.setattr(kept._intake, "take_quietly", mistaken)
        cache.subscribe(kept.consider, of=READ)
        cache.subscribe(lambda: told.append("somebody else"), of=READ)
        before, told = kept.runs, list[str]()
        cache.put(PODS, (KEY[0], "web"), WEB)
        await at_rest(kept)
        assert kept.runs == before + 1 and told == ["somebody else"]
        assert (KEY[0], "web") in kept.index.pods and not kept.problem

    cache = Cache(node="n1")
    with_rules_in_force(ground, tmp_path, scenario, cache=cache)
