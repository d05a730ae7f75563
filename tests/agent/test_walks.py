"""The walks of docs/design.md, walked by a running agent: it enters every room that the page names."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from clustered import Clustered, closed, clustered, pod

from flock.edge.kernel.linkmaker import NAME
from harness import ROOT, Node, eventually

ANYCAST = "192.0.3.53"
GRANTED = {"allowed": [{"prefixes": ["192.0.3.0/24"]}]}
# Imported by every Python that has it on its path: notes which files of flock are entered, forgets them at one signal
# and writes them down at another.
TRACER = """
import os, signal, sys, threading

entered, out = set(), os.environ["WALKED"]


def note(frame, event, _):
    if event == "call" and "/src/flock/" in frame.f_code.co_filename:
        entered.add(frame.f_code.co_filename.rpartition("/src/flock/")[2])


def write(*_):
    with open(out + ".new", "w") as file:
        file.write("\\n".join(entered.copy()))
    os.rename(out + ".new", out)


if any(part.endswith(("flock-agent", "linkmaker.py")) for part in sys.orig_argv[:3]):
    out += f".{os.getpid()}"
    signal.signal(signal.SIGUSR1, lambda *_: entered.clear())
    signal.signal(signal.SIGUSR2, write)
    threading.setprofile(note)
    sys.setprofile(note)
"""


class Walker:
    """An agent whose steps are noted, and those of its process of links."""

    def __init__(self, cluster: Clustered, walked: Path) -> None:
        self.cluster = cluster
        self.walked = walked
        self._missing: set[str] = set()

    def forget(self) -> None:
        self._signal(signal.SIGUSR1)

    def passes(self, walk: str) -> bool:
        """Has it been in all rooms of that walk?"""
        written = [self.walked.with_suffix(f".{process}") for process in self._processes()]
        for file in written:
            file.unlink(missing_ok=True)
        self._signal(signal.SIGUSR2)
        eventually(lambda: all(file.exists() for file in written), what="the rooms entered to be written down")
        entered = " ".join(file.read_text() for file in written)
        missing = rooms(walk) - {name.rpartition("/")[2] for name in entered.split()}
        if missing != self._missing:
            print(f"{walk}: not in {sorted(missing)}")  # for whoever reads why the test failed
        self._missing = missing
        return not missing

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes():
            os.kill(process, number)

    def _processes(self) -> list[int]:
        assert self.cluster.node.agent is not None
        agent = self.cluster.node.agent.pid
        children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
        links = [int(child) for child in children if Path(f"/proc/{child}/comm").read_bytes().strip() == NAME]
        return [agent, *links]


def rooms(walk: str) -> set[str]:
    """The modules that the page names for a walk, from its bold beginning to where its state is."""
    page = (ROOT / "docs" / "design.md").read_text()
    told = page.partition(f"**{walk}**")[2].partition("State:")[0]
    inside = "".join(re.findall(r"^```$(.*?)^```$", told, re.MULTILINE | re.DOTALL))
    found = set(re.findall(r"[\w-]+\.py", inside))
    assert len(found) > 3, walk
    return found


@pytest.fixture
def walker(fresh: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Walker]:
    """With an anycast pod that is not Ready."""
    tracing = tmp_path / "tracing"
    tracing.mkdir()
    (tracing / "sitecustomize.py").write_text(TRACER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tracing), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("WALKED", str(tmp_path / "walked"))
    with clustered(fresh) as cluster:
        cluster.configure(anycast=GRANTED)
        cluster.api.put(pod("web", labels={"app": "web"}))
        cluster.start()
        cluster.add("web", annotations={"flock.fritzlab.net/anycast": ANYCAST})
        yield Walker(cluster, tmp_path / "walked")


def test_an_agent_walks_as_the_design_page_says(walker: Walker) -> None:
    cluster = walker.cluster

    walker.forget()
    cluster.add("other", annotations={"flock.fritzlab.net/anycast": "192.0.3.54"})
    assert walker.passes("An ADD")

    walker.forget()
    cluster.api.put(pod("web", labels={"app": "web"}, ready=True))
    eventually(lambda: walker.passes("A pod becomes Ready"))

    walker.forget()
    refused = closed(app="web")
    refused["spec"]["policyTypes"] = ["Sideways"]
    cluster.api.put(refused)
    eventually(lambda: walker.passes("A policy changes"))
    assert walker.passes("A watch event")

    walker.forget()
    cluster.configure(anycast=GRANTED, cidr4=["192.0.2.0/24", "192.0.9.0/24"])
    eventually(lambda: walker.passes("A NodeConfig changes"))
