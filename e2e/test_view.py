"""`flockctl view --kubeconfig`: the page's news of a real cluster, through kubectl alone; nothing is left behind."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from signal import SIGINT, SIGKILL, Signals
from typing import Any

import pytest
from cluster import Cluster
from deployment import NAMESPACE, agent_pod, is_well
from places import Place, eventually

FLOCKCTL = Path(sys.executable).with_name("flockctl")
BACK = 240.0  # seconds until a deleted agent's pod has a successor: this kubelet takes a minute, a busy one more

pytestmark = pytest.mark.timeout(500)


class View:
    """A view that runs where the API server is reached, and a page that follows it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.address = eventually(lambda: self._said("view").strip(), what="the address")
        place.start("page", "curl", "-sN", f"{self.address}api/stream")

    def ask(self, what: str) -> Any:
        return json.loads(self._place.run("curl", "-s", f"{self.address}api/{what}"))

    def node(self, name: str) -> dict[str, Any]:
        """What the page was told last."""
        lines = self._said("page").splitlines()
        found: dict[str, Any] = {"reached": None, "problem": "", "seen": None}
        for event, data in pairwise(lines):
            with suppress(json.JSONDecodeError):  # not all of it has come yet
                if event == "event: node" and (told := json.loads(data.removeprefix("data: ")))["name"] == name:
                    found = told
        return found

    def _said(self, role: str) -> str:
        return (self._place.directory / f"{role}.log").read_text()


@contextmanager
def viewed(cluster: Cluster, *, end: Signals = SIGINT) -> Iterator[View]:
    plane = cluster.plane
    path = f"PATH={plane.bin}:/usr/bin:/bin"
    for role in ("view", "page"):
        (plane.place.directory / f"{role}.log").unlink(missing_ok=True)
    plane.place.start("view", "env", path, FLOCKCTL, "view", f"--kubeconfig={plane.kubeconfig}")
    try:
        yield View(plane.place)
    finally:
        plane.place.stop("view", by=end)
        if plane.place.running("page"):
            plane.place.stop("page")
        else:
            plane.place._daemons.pop("page", None)


def forwards(cluster: Cluster) -> int:
    """Those that run where the view does."""
    listing = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'port-[f]orward' | wc -l"
    return int(cluster.plane.place.run("sh", "-c", listing))


def test_all_nodes_are_seen_and_asked_and_an_agent_that_goes_is_missed_until_its_successor_answers(
    cluster: Cluster,
) -> None:
    with viewed(cluster) as view:
        for name in cluster.nodes:
            eventually(lambda name=name: view.node(name)["reached"], what=f"{name} to be reached")
            assert view.node(name)["status"]["node"] == name
        assert forwards(cluster) == len(cluster.nodes)
        [answer] = view.ask("why?node=n1&source=2001:db8::1&destination=2001:db8::2&port=80/TCP")
        assert answer["verdict"] == "allow"
        assert (
            "no-such-pod" in view.ask("why?node=n1&source=default/no-such-pod&destination=2001:db8::2&port=80")["error"]
        )
        assert isinstance(view.ask("check?node=n2"), list)

        before = agent_pod(cluster, "n2")
        cluster.plane.kubectl("delete", "pod", before, f"--namespace={NAMESPACE}", "--wait=false")
        eventually(lambda: view.node("n2")["reached"] is False, what="n2 to be missed")
        missed = view.node("n2")
        assert missed["problem"] and missed["seen"] and missed["status"]["node"] == "n2"
        assert view.node("n1")["reached"]
        eventually(lambda: view.node("n2")["reached"], what="n2 to be back", patience=BACK)
        assert agent_pod(cluster, "n2") != before
    assert forwards(cluster) == 0
    eventually(lambda: is_well(cluster, "n2"), what="n2 to be as before", patience=BACK)


def test_no_kubectl_outlives_a_view_that_is_killed(cluster: Cluster) -> None:
    with viewed(cluster, end=SIGKILL) as view:
        eventually(lambda: view.node("n1")["reached"], what="n1 to be reached")
        assert forwards(cluster) > 0
    eventually(lambda: forwards(cluster) == 0, what="no forward any more")
