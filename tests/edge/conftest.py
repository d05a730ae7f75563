"""Two network namespaces, one for the node and one for a pod."""

from collections.abc import Iterator

import pytest
from spaces import Space


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
