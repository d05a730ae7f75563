"""Two network namespaces, one for the node and one for a pod; and an API server that the test commands."""

from collections.abc import Iterator

import pytest
from spaces import Space

from apiserver import ApiServer
from flock.edge.kube import reflector


@pytest.fixture
def node() -> Iterator[Space]:
    space = Space()
    yield space
    space.remove()


@pytest.fixture
def pod() -> Iterator[Space]:
    space = Space()
    yield space
    space.remove()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """Whoever lost it comes back soon."""
    monkeypatch.setattr(reflector, "LONGEST_PAUSE", 0.5)
    with ApiServer() as server:
        yield server
