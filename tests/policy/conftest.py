from collections.abc import Iterator

import pytest
from playground import Playground
from realcluster import FAR, NEAR, WEB, RealCluster


@pytest.fixture
def ground() -> Iterator[Playground]:
    """A node with three pods and a host outside."""
    with Playground(3) as made:
        yield made


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """x/web, x/near and y/far on one node, for the tests of a file in turn."""
    with RealCluster(tmp_path_factory.mktemp("cluster")) as made:
        for name in ("x", "y"):
            made.namespace(name)
        for key in (WEB, NEAR, FAR):
            made.add(key, {"app": key.partition("/")[2]})
        yield made
