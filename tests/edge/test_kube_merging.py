"""Watches that overlap tell of the same objects at their own pace: nobody who reads sees an older one after a newer."""

import random
from typing import Any

import pytest

from flock.core.kinds import ALL, CLUSTER_PODS, Extent, Key
from flock.edge.cache import Cache
from flock.edge.kube.merging import Merged, Part

WEB: Key = ("shop", "web")


class World:
    def __init__(self) -> None:
        self.cache = Cache(node="n1")
        self.merged = Merged(self.cache, CLUSTER_PODS)
        self.shop, self.all, self.labelled = (self.part(e) for e in (Extent("shop"), ALL, Extent(labels="app=web")))

    def part(self, extent: Extent) -> Part:
        part = self.merged.open(extent)
        part.reach("1")
        return part

    @property
    def known(self) -> Any:
        """The version of the pod in the table."""
        return self.cache.table(CLUSTER_PODS).get(WEB)


def tell(part: Part, version: int) -> None:
    part.put(WEB, str(version), version)


@pytest.fixture
def world() -> World:
    return World()


def test_the_newest_version_counts_whoever_tells_it(world: World) -> None:
    tell(world.shop, 5)
    tell(world.all, 3)
    assert world.known == 5
    tell(world.all, 6)
    tell(world.shop, 6)
    assert world.known == 6 and world.shop.has(WEB, "6") and world.all.has(WEB, "6")


def test_who_tells_of_an_end_is_believed_and_who_lags_behind_brings_nothing_back(world: World) -> None:
    tell(world.shop, 5)
    tell(world.all, 5)
    world.shop.drop(WEB, "8")
    assert world.known is None
    tell(world.all, 7)
    assert world.known is None, "it was so before the end"
    world.all.drop(WEB, "8")
    tell(world.shop, 9)
    assert world.known == 9, "a namesake"


def test_a_watch_by_labels_does_not_know_whether_the_object_ended(world: World) -> None:
    tell(world.shop, 5)
    tell(world.labelled, 5)
    world.labelled.drop(WEB, "6")
    assert world.known == 5
    world.shop.drop(WEB, "7")
    tell(world.labelled, 8)
    world.merged.close(world.shop)
    world.merged.close(world.all)
    world.labelled.drop(WEB, "9")
    assert world.known is None and not world.merged.versions, "nobody else follows it"


def test_a_list_that_is_older_brings_nothing_back(world: World) -> None:
    tell(world.shop, 5)
    late = world.merged.open(ALL)  # asked for now, told later
    world.shop.drop(WEB, "6")
    tell(late, 5)
    assert world.known is None
    late.reach("5")
    late.drop(WEB, "6")
    for part in (world.all, world.labelled):
        assert world.merged.versions, "one that was not heard of for a while may still tell of it"
        part.reach("7")
    assert not world.merged.versions


def test_a_list_without_what_came_later_takes_nothing_away(world: World) -> None:
    tell(world.all, 4)
    tell(world.shop, 5)
    world.all.drop(WEB, "3")  # the version of the whole list
    assert world.known == 5


def test_what_nobody_follows_any_more_is_forgotten_and_nothing_else(world: World) -> None:
    tell(world.shop, 5)
    tell(world.all, 5)
    world.merged.close(world.all)
    assert world.known == 5
    world.merged.close(world.shop)
    assert world.known is None and not world.merged.versions


def test_a_refused_object_is_dropped_by_the_list_in_which_it_is_missing(world: World) -> None:
    world.shop.refuse(WEB, "no status")
    assert world.cache.problems and world.shop.known() == {WEB}
    world.shop.drop(WEB, "3")
    assert not world.cache.problems


@pytest.mark.parametrize("seed", range(50))
def test_whatever_the_pace_of_each_what_is_known_never_goes_back_and_ends_as_it_is(seed: int) -> None:
    dice, world = random.Random(seed), World()
    world.merged.close(world.labelled)
    history = [(version, dice.random() < 0.7) for version in range(1, 40)]  # is it there from this version on?
    places = dict.fromkeys((world.shop, world.all), 0)
    newest = 0
    while min(places.values()) < len(history):
        part = dice.choice([p for p, place in places.items() if place < len(history)])
        version, is_there = history[places[part]]
        places[part] += 1
        was_there = WEB in part.keys
        if is_there:
            tell(part, version)
        elif was_there:
            part.drop(WEB, str(version))
        if dice.random() < 0.2:
            part.reach(str(version))
        newest = max(newest, version)
        assert world.known == (newest if history[newest - 1][1] else None)
    for part in places:
        part.reach(str(len(history)))
    assert world.merged.versions.keys() == ({WEB} if history[-1][1] else set())
