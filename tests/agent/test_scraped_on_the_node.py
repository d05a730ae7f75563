"""A scraper in the node's own network, at loopback: what dashboard and alerts ask about the API server has data."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clustered import Clustered, clustered

from harness import Node, eventually
from scraper import answers, command, expressions

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("prometheus"), reason="no Prometheus here")]


@pytest.fixture
def cluster(fresh: Node, tmp_path: Path) -> Iterator[Clustered]:
    with clustered(fresh) as made:
        made.configure()
        made.start("--http", "127.0.0.1:9465")
        argv = ["nsenter", f"--net=/run/netns/{fresh.netns}", *command(tmp_path, ["127.0.0.1:9465"])]
        with (tmp_path / "prometheus.log").open("wb") as log:
            prometheus = subprocess.Popen(argv, stdout=log, stderr=log)
        yield made
        prometheus.terminate()
        prometheus.wait(30)


def test_watches_are_seen_and_one_that_is_lost_is_an_alert(cluster: Clustered) -> None:
    def asked(*what: str) -> list[list[object]]:
        run = lambda *argv: cluster.node.execute(*argv, check=False).stdout  # noqa: E731
        return list(answers(run, what).values())

    watched = [e for e in expressions() if "flock_watch" in e]
    assert len(watched) == 3
    eventually(lambda: len(asked(*watched)) == 3 and all(asked(*watched)), what="all have data", within=60)
    lost = 'ALERTS{alertname="FlockWatchDown"}'
    assert asked(lost) == [[]]
    cluster.api.stop()
    eventually(lambda: asked(lost) != [[]], what="the alert is pending", within=60)
