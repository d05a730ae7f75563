"""On which core links are made: on any but the agent's, and on all where that is held up."""

import os

import pytest
from spaces import Space, entry, on_the_node
from test_making import begin, making, process_of

from flock.edge.kernel import linkprocess
from looping import PATIENCE, until


@on_the_node
async def test_a_lone_link_is_made_on_another_core_than_the_agents(
    node: Space, pod: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = os.sched_getaffinity(0)
    monkeypatch.setattr(linkprocess, "LATE", 2.0 * PATIENCE)
    async with making() as made:
        try:
            for core in cores:
                os.sched_setaffinity(0, {core})
                await made.give_up(begin(made, entry(pod)))
                assert os.sched_getaffinity(process_of(made)) == (cores - {core} or cores)
        finally:
            os.sched_setaffinity(0, cores)


@on_the_node
async def test_a_process_that_is_late_may_be_on_any_core(
    node: Space, pod: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one may be somebody's who has more rights to it."""
    cores = os.sched_getaffinity(0)
    monkeypatch.setattr(linkprocess, "LATE", 0.01)
    async with making() as made:
        process = process_of(made)
        begun = begin(made, entry(pod))  # and nobody says what is to become of it
        await until(lambda: os.sched_getaffinity(process) == cores)
        await made.give_up(begun)
        await made.give_up(begin(made, entry(pod)))
        assert os.sched_getaffinity(process) == cores  # for a while
        monkeypatch.setattr(linkprocess, "FREE_FOR", 0.0)
        monkeypatch.setattr(linkprocess, "LATE", 2.0 * PATIENCE)
        made._process._set_free()
        await made.give_up(begin(made, entry(pod)))
        assert os.sched_getaffinity(process) != cores or len(cores) == 1


@on_the_node
async def test_cores_that_are_somebody_elses_by_now_are_in_nobodys_way(node: Space, pod: Space) -> None:
    cores = os.sched_getaffinity(0)
    async with making() as made:
        assert made._process is not None
        made._process._cores = {max(cores) + 1000}  # as when the agent was given others
        for _ in range(2):
            await made.give_up(begin(made, entry(pod)))
        assert made._process._cores == cores


@on_the_node
async def test_one_that_has_ended_is_not_sent_to_another_core(
    node: Space, pod: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process number may be somebody else's by now."""
    async with making() as made:
        process = made._process
        assert process is not None
        await process.end()
        moved: list[set[int]] = []
        monkeypatch.setattr(process, "_run_on", moved.append)
        assert process.begin(entry(pod).netns) is None and not moved
