"""BIRDs in network namespaces of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bird_fabric import Fabric


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    made = Fabric(tmp_path)
    try:
        yield made
    finally:
        made.close()
