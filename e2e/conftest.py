"""A cluster for each group of tests that wants one; a failed test tells in which file all daemons' logs are.

The groups run side by side, because most of their time is waiting: for the kubelets' timers, or for a minute without
an API server to be over.  The tests of one group follow each other and share what their fixtures made.
"""

from collections.abc import Generator, Iterator
from typing import Any

import image
import images
import pytest
from cluster import Cluster
from deployment import deploy_flock
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

GROUPS = {
    "test_going_down.py": "leaving",
    "test_uninstall.py": "leaving",  # the last: nothing is left to test
    "test_services.py": "services",  # its nodes run a kube-proxy
    "test_refusals.py": "upgrade",
    "test_rights.py": "upgrade",
    "test_upgrade.py": "upgrade",
    "test_api_objects.py": "api",
    "test_chart.py": "api",  # needs Go, which is here
    "test_containerd2.py": "api",
    "test_control_plane.py": "api",
    "test_reflector.py": "api",
}

_CLUSTER = pytest.StashKey[Cluster]()


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker one group after the other, as a whole."""

    def _split_scope(self, nodeid: str) -> str:
        return GROUPS.get(nodeid.partition("::")[0].rpartition("/")[2], "cluster")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    return Groups(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have measured, by `record_property("measured", ...)`."""
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in report.user_properties:
            if name == "measured":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {value}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _CLUSTER in item.session.stash:
        kept = images.cache() / "failed" / f"{item.name}.log"
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(item.session.stash[_CLUSTER].logs())
        report.sections.append(("The cluster's daemons", f"their logs are in {kept}"))
    return report


@pytest.fixture(scope="session")
def bare_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two nodes, without a network until a test wants `cluster`."""
    _, archive = image.flock()
    with Cluster(nodes=2, images=[archive]) as cluster:
        request.session.stash[_CLUSTER] = cluster
        yield cluster
        del request.session.stash[_CLUSTER]


@pytest.fixture(scope="session")
def cluster(bare_cluster: Cluster) -> Cluster:
    """Two ready nodes on which flock runs by its own manifests."""
    deploy_flock(bare_cluster)
    bare_cluster.wait_for_nodes()
    return bare_cluster
