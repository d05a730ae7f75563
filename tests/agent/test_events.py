"""What happened is told by Kubernetes events to whoever can change it, the operator first, and paced."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from telling import told

from flock.agent import refusals
from flock.agent.events import Events
from flock.agent.happened import Happened
from flock.agent.refusals import PACE, Refusals
from flock.core.errors import Code
from flock.core.happenings import AddFailed, Attached, ConfigRefused, PolicyRefused, ServiceRefused, Share
from flock.core.kinds import POLICIES
from flock.core.policy.index import PolicyIndex

CONFIG = {"metadata": {"uid": "c-1"}}
POLICY = {"metadata": {"uid": "p-1"}}


class Writer:
    """What would be written, in order."""

    def __init__(self) -> None:
        self.written: list[tuple[str, dict[str, str]]] = []

    def __getattr__(self, kind: str) -> Any:
        async def write(**event: str) -> None:
            await asyncio.sleep(0)
            self.written.append((kind, event))

        return write


def failed(code: int, *, pod: str = "shop/web", problem: str = "no such address") -> AddFailed:
    return AddFailed(pod=pod, uid="u-1", container="c1", code=code, problem=problem)


def written(happened: Happened, *, expected: int) -> list[tuple[str, dict[str, str]]]:
    async def scenario() -> list[tuple[str, dict[str, str]]]:
        writer: Any = Writer()
        cache = told(CONFIG)
        cache.put(POLICIES, ("shop", "guard"), POLICY)
        telling = asyncio.create_task(Events(happened=happened, cache=cache, writer=writer).run())
        for _ in range(1000):
            if len(writer.written) >= expected:
                break
            await asyncio.sleep(0)
        telling.cancel()
        found: list[tuple[str, dict[str, str]]] = writer.written
        return found

    return asyncio.run(scenario())


def test_a_pods_owner_hears_of_what_they_can_change_and_of_nothing_else() -> None:
    happened = Happened()
    happened.note(Attached(pod="shop/db", container="c0", addresses=""))
    happened.note(failed(Code.TRY_AGAIN))
    happened.note(failed(Code.BAD_ANNOTATION, pod=""))
    happened.note(failed(Code.BAD_ANNOTATION))
    ((kind, event),) = written(happened, expected=2)
    assert kind == "pod_event"
    assert event == {
        "namespace": "shop",
        "name": "web",
        "uid": "u-1",
        "reason": "FlockBadAnnotation",
        "message": "no such address",
    }


def test_whoever_wrote_a_refused_object_hears_why() -> None:
    happened = Happened()
    happened.note(PolicyRefused(policy="shop/guard", problem="no such port"))
    happened.note(ConfigRefused(node="n1", problem="no such family", last_good=True))
    (first, config), (last, policy) = written(happened, expected=2)
    assert (first, config["message"], config["uid"]) == ("config_event", "no such family", "c-1")
    assert (last, policy["message"], policy["uid"]) == ("policy_event", "no such port", "p-1")


def test_whoever_made_a_service_hears_why_its_address_is_not_announced() -> None:
    happened = Happened()
    happened.note(ServiceRefused(service="shop/web", address="203.0.113.1", problem="not granted"))
    ((kind, event),) = written(happened, expected=1)
    assert (kind, event["namespace"], event["name"]) == ("service_event", "shop", "web")
    assert event["message"] == "203.0.113.1: not granted"


def test_of_refused_policies_one_of_a_namespace_is_told_at_a_time_and_each_version_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened, now = Happened(), 1000.0
    monkeypatch.setattr(refusals, "time", SimpleNamespace(monotonic=lambda: now))
    telling = Refusals(PolicyIndex(), happened)

    def told(problems: dict[tuple[str, str], str]) -> list[str]:
        number = len(happened.after(Share.PODS, 0)[0])
        telling.tell(problems)
        entries, _ = happened.after(Share.PODS, number)
        return [entry.what.policy for entry in entries if isinstance(entry.what, PolicyRefused)]

    problems = {("evil", f"p{number}"): "wrong" for number in range(20)} | {("shop", "guard"): "wrong"}
    assert told(problems) == ["evil/p0", "shop/guard"]
    assert told(problems) == []
    now += PACE + 1
    assert told(problems) == ["evil/p1"]
    now += PACE + 1
    assert told({("shop", "guard"): "wrong in another way"}) == ["shop/guard"]
