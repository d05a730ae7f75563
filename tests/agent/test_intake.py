"""What is taken in for one transaction is bounded, and so is what a namespace's changes take of the time."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flock.agent.intake import MOVES_AT_ONCE, Intake
from flock.agent.outlook import Outlook
from flock.core.facts import NodeFacts
from flock.core.policy.index import PolicyIndex
from flock.core.policy.podfacts import LocalPod
from flock.edge.cache import Cache
from flock.edge.manifests import ManifestFeeder

GROUPS, PODS = 1500, 12
ONE_POD = (
    2 * (2 * GROUPS) + GROUPS
)  # out of and into each group with two addresses, and a comparison with each selector


class Cluster:
    """A real manifest directory behind a real index: a pod of `evil` here, and what that namespace's policies mean."""

    def __init__(self, cache: Cache, feeder: ManifestFeeder, folder: Path, state: Path) -> None:
        self._feeder, self._folder = feeder, folder
        outlook = Outlook(cache)
        self.index = PolicyIndex(outlook.sees)
        believed: Any = SimpleNamespace(config=None, facts=NodeFacts(node="n1"))
        self.intake = Intake(cache, self.index, outlook, configured=believed, preparing=believed, state_dir=state)
        for policy in range(GROUPS // 250):
            self.policy(f"policy{policy}", unlike=str(policy))
        for name in map(str, range(PODS)):
            self.label("evil", name, "b")
        self.take()
        self.intake.take_everything()
        here = LocalPod(interface="flock1", container_id="c", namespace="evil", name="here", labels={}, addresses=())
        self.index.set_local(here)
        self.index.commit()

    def policy(self, name: str, *, unlike: str) -> None:
        """Of 250 selectors that mean pods that flipped to `a`, no two of any policies alike."""
        peers = [{"podSelector": _flipped(f"{unlike}-{number}")} for number in range(250)]
        self._write(name, "evil", "NetworkPolicy", spec={"podSelector": {}, "ingress": [{"from": peers}]})

    def label(self, namespace: str, name: str, flip: str) -> None:
        number = int(name)
        status = {"phase": "Running", "podIPs": [{"ip": f"10.9.0.{number}"}, {"ip": f"2001:db8:9::{number:x}"}]}
        self._write(f"pod-{namespace}-{name}", namespace, "Pod", labels={"flip": flip}, status=status)

    def _write(self, file: str, namespace: str, kind: str, *, labels: Any = None, **more: Any) -> None:
        name = file.rpartition("-")[2]
        version = "networking.k8s.io/v1" if kind == "NetworkPolicy" else "v1"
        metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
        (self._folder / f"{file}.json").write_text(
            json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, **more})
        )

    def take(self) -> int:
        """One transaction's worth; what it cost, all of which its namespaces are charged for."""
        self._feeder.refresh()
        before = self.index.spent
        self.costs = self.intake.take_changes()
        self.index.commit()
        self.intake.charge(self.costs, 0.0)
        return self.index.spent - before

    def take_quietly(self) -> bool:
        self._feeder.refresh()
        return self.intake.take_quietly()

    def labels(self, namespace: str, name: str) -> str:
        return self.index.pods[namespace, name].labels["flip"]


def _flipped(unlike: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "flip", "operator": "In", "values": ["a", unlike]}]}


def in_cluster(tmp_path: Path, story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def run() -> None:
        (folder := tmp_path / "manifests").mkdir()
        cache = Cache(node="n1")
        feeder = ManifestFeeder(cache, folder)
        await feeder.start()
        try:
            await story(Cluster(cache, feeder, folder, tmp_path))
        finally:
            await feeder.close()

    asyncio.run(run())


def test_pods_that_no_rules_go_by_are_taken_in_at_once_and_others_for_the_next_transaction_which_pays(
    tmp_path: Path,
) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intake.reach_out()
        assert not cluster.take_quietly()  # nothing of that kind changed
        cluster.label("other", "1", "a")
        assert cluster.take_quietly()
        assert cluster.labels("other", "1") == "a" and not cluster.intake.waiting
        cluster.label("evil", "1", "a")
        assert not cluster.take_quietly()
        assert cluster.intake.waiting == ["evil"] and not cluster.index.is_settled
        assert cluster.take() == 0 and set(cluster.costs) == {"evil"} and cluster.costs["evil"] > GROUPS

    in_cluster(tmp_path, story)


@pytest.mark.parametrize("more", ["policy", "too much"])
def test_what_is_more_than_pods_or_more_than_some_waits_for_a_transaction(tmp_path: Path, more: str) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intake.reach_out()
        if more == "policy":
            cluster.label("other", "1", "a")
            cluster.policy("policy0", unlike="z")
        for name in map(str, range(PODS if more == "too much" else 0)):
            cluster.label("evil", name, "a")
        assert not cluster.take_quietly() and not cluster.take_quietly()
        cluster.take()
        assert "evil" in cluster.costs

    in_cluster(tmp_path, story)


def test_labels_of_pods_elsewhere_are_taken_in_a_few_at_a_time_and_paid_for(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for name in map(str, range(PODS)):
            cluster.label("evil", name, "a")
        cost = cluster.take()
        assert GROUPS < cost <= MOVES_AT_ONCE + ONE_POD
        assert cluster.costs == {"evil": cost}
        assert cluster.intake.lags("evil") is not None
        turns = 1
        while cluster.intake.lags("evil") is not None:
            turns += 1
            assert turns <= PODS
            assert cluster.take() <= MOVES_AT_ONCE + ONE_POD
        assert {cluster.labels("evil", str(number)) for number in range(PODS)} == {"a"}

    in_cluster(tmp_path, story)


def test_a_namespace_that_used_its_share_waits_and_others_do_not(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intake.charge({"evil": 1}, 3600)
        cluster.label("evil", "1", "a")
        cluster.label("shop", "1", "a")
        assert cluster.take() == 0
        assert (cluster.labels("evil", "1"), cluster.labels("shop", "1")) == ("b", "a")
        assert cluster.intake.lags("evil"), "so that its own pods wait for it"
        assert cluster.intake.lags("shop") is None

    in_cluster(tmp_path, story)


def test_nobody_pays_for_what_was_taken_in_for_a_transaction_that_failed(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intake.reach_out()
        cluster.label("evil", "1", "a")
        assert not cluster.take_quietly()
        cluster.intake._lasted = 60.0  # as if that had taken so long
        assert set(cluster.intake.take_changes()) == {"evil"}  # whose transaction the kernel then refuses
        cluster.label("shop", "1", "a")
        cluster.intake.charge(cluster.intake.take_changes(), 0.001)
        assert cluster.intake._pacing.wait("evil")
        assert not cluster.intake._pacing.wait("shop")

    in_cluster(tmp_path, story)


def test_a_pod_that_changes_all_the_time_keeps_no_other_from_its_turn(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for name in map(str, range(PODS)):
            cluster.label("evil", name, "a")
        for turn in range(2 * PODS):
            cluster.label("evil", "0", "ab"[turn % 2])
            cluster.take()
        assert {cluster.labels("evil", str(number)) for number in range(1, PODS)} == {"a"}

    in_cluster(tmp_path, story)


def test_pods_that_few_selectors_mean_are_free(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for number in range(200):
            cluster.label("shop", str(number), "a")
        cluster.take()
        assert cluster.costs == {}
        assert cluster.intake.next_turn() is None

    in_cluster(tmp_path, story)


def test_no_pod_waits_for_policies_that_are_only_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        monkeypatch.setattr("flock.core.policy.inforce.FAILURES", 0)  # as if there had been enough of them
        cluster.policy("late", unlike="late")
        cluster.take()
        assert set(cluster.index.again) == {("evil", "late")}
        cluster.intake.charge({"evil": 1}, 3600)
        cluster.take()
        assert cluster.intake.next_turn(), "it has its turn later"
        assert cluster.intake.lags("evil") is None, "it is closed meanwhile"
        cluster.label("evil", "1", "a")
        cluster.take()
        assert cluster.intake.lags("evil")

    in_cluster(tmp_path, story)
