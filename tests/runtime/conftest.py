"""A node of its own for each test, with an agent and a container runtime on it; a failed test shows their logs."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pause_image
import pytest
from containerd import Containerd
from runtime_agent import EXECUTABLE, Agent
from runtime_node import Node

_NODE = pytest.StashKey[Node]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _NODE in item.stash:
        report.sections.append(("Logs of the node's daemons", item.stash[_NODE].logs()))
    return report


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sandbox image, ready for import."""
    directory = tmp_path_factory.mktemp("image")
    archive = directory / "pause.tar"
    pause_image.write_archive(pause_image.compile_pause(directory), archive)
    return archive


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    with Node() as node:
        request.node.stash[_NODE] = node
        yield node


@pytest.fixture
def agent(node: Node) -> Agent:
    return Agent(node)


@pytest.fixture
def runtime(node: Node, agent: Agent, archive: Path) -> Containerd:
    return Containerd(node, archive=archive, executables=[EXECUTABLE], conflist=agent.conflist())
