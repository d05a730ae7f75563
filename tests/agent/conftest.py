"""A node of its own for each test; a test that fails shows the agent's log."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from looking import addresses_of

from harness import Node
from showing import on_failure


@pytest.fixture
def fresh(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node whose agent was not started yet.  It has an address, so that it can speak IPv4 to pods itself."""
    with Node(tmp_path) as node:
        on_failure(request, "The agent's log", node.log_text)
        node.ip("addr", "add", "198.18.0.1/32", "dev", "lo")
        yield node


@pytest.fixture
def node(fresh: Node) -> Node:
    """A node that is ready for pods."""
    fresh.start()
    return fresh


@pytest.fixture
def bystander(node: Node) -> list[str]:
    """The addresses of a pod that has nothing to do with any of this.  The agent is not running."""
    addresses = addresses_of(node.pod("bystander"))
    node.stop()
    return addresses
