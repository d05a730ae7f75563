"""A node of its own for each test, with an agent and a container runtime on it; a failed test shows their logs."""

from collections.abc import Iterator
from pathlib import Path

import pause_image
import pytest
from containerd import Containerd
from runtime_agent import EXECUTABLE, Agent
from runtime_node import Node

from showing import on_failure


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
        on_failure(request, "Logs of the node's daemons", node.logs)
        yield node


@pytest.fixture
def agent(node: Node) -> Agent:
    return Agent(node)


@pytest.fixture
def runtime(node: Node, agent: Agent, archive: Path) -> Containerd:
    return Containerd(node, archive=archive, executables=[EXECUTABLE], conflist=agent.conflist())
