"""What `--http` serves: health, readiness, status, and metrics whose number does not grow with pods."""

import json
import sys

import pytest

from harness import Node, eventually

WHERE = "127.0.0.1:9465"
FETCH = """
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1], timeout=10)
except urllib.error.HTTPError as error:
    answer = error
except urllib.error.URLError:
    sys.exit(1)
print(answer.status)
print(answer.read().decode(), end="")
"""


def fetch(node: Node, page: str) -> tuple[int, str]:
    """Status 0 if nobody listens."""
    said = node.execute(sys.executable, "-c", FETCH, f"http://{WHERE}{page}", check=False).stdout
    status, _, text = said.partition("\n")
    return int(status or 0), text


@pytest.fixture
def served(fresh: Node) -> Node:
    fresh.start("--http", WHERE)
    return fresh


def test_a_node_that_can_take_pods_says_so_on_all_pages(served: Node) -> None:
    assert fetch(served, "/healthz")[0] == fetch(served, "/readyz")[0] == 200
    status = json.loads(fetch(served, "/status.json")[1])
    assert status["ready"] and status["node"] == "n1"
    assert fetch(served, "/nothing-here")[0] == 404


def test_a_node_without_a_configuration_lives_and_is_not_ready(fresh: Node) -> None:
    for file in fresh.manifests.iterdir():
        file.unlink()
    fresh.start("--http", WHERE, wait=False)
    eventually(lambda: fetch(fresh, "/healthz")[0] == 200, what="the pages")
    status, reasons = fetch(fresh, "/readyz")
    assert status == 503 and "no NodeConfig" in reasons


def test_metrics_count_verbs_and_pools_and_do_not_grow_with_pods(served: Node) -> None:
    served.pod("a")
    counted(served, "ADD", 1)
    before = series(served)
    for number in range(5):
        served.pod(f"b{number}")
    served.cni("DEL", "a")
    counted(served, "ADD", 6)
    counted(served, "DEL", 1)
    assert all('verb="DEL"' in name for name in series(served) - before)
    assert any("2001:db8:1::/64" in name for name in before)


def counted(node: Node, verb: str, calls: int) -> None:
    line = f'flock_cni_seconds_count{{outcome="success",verb="{verb}"}} {calls}'
    eventually(lambda: line in fetch(node, "/metrics")[1].splitlines(), what=line)  # after the caller has its answer


def series(node: Node) -> set[str]:
    lines = fetch(node, "/metrics")[1].splitlines()
    return {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}
