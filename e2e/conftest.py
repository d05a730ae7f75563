"""A cluster for each group of tests that wants one; a failed test shows the ends of all daemons' logs.

The groups run side by side (`xdist_group`), because most of their time is waiting: for the kubelets' timers, or for a
minute without an API server to be over."""

from collections.abc import Generator, Iterator

import pytest
from cluster import Cluster
from deployment import deploy_flock

_CLUSTER = pytest.StashKey[Cluster]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _CLUSTER in item.session.stash:
        report.sections.append(("Logs of the cluster's daemons", item.session.stash[_CLUSTER].logs()))
    return report


@pytest.fixture(scope="session")
def bare_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two nodes, without a network until a test wants `cluster`."""
    with Cluster(nodes=2) as cluster:
        request.session.stash[_CLUSTER] = cluster
        yield cluster
        del request.session.stash[_CLUSTER]


@pytest.fixture(scope="session")
def cluster(bare_cluster: Cluster) -> Cluster:
    """Two ready nodes on which flock runs by its own manifests."""
    deploy_flock(bare_cluster)
    bare_cluster.wait_for_nodes()
    return bare_cluster
