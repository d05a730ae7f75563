from collections.abc import Iterator

import pytest
from playground import Playground


@pytest.fixture
def ground() -> Iterator[Playground]:
    """A node with three pods and a host outside."""
    with Playground(3) as made:
        yield made
