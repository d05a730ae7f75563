"""What `--http` serves: health, readiness, status, and metrics whose number does not grow with pods."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness import Node, eventually, run
from namespaces import within

WHERE = "127.0.0.1:9465"
FETCH = """
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1], timeout=30)
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


def test_a_scraper_elsewhere_is_told_numbers_and_nothing_else(fresh: Node) -> None:
    """At an address that pods reach too."""
    fresh.start("--http", "", "--metrics", WHERE)
    eventually(lambda: fetch(fresh, "/metrics")[0] == 200, what="the numbers")
    _, text = fetch(fresh, "/metrics")
    assert 'flock_info{node="n1",version="' in text and "flock_ready 1\n" in text
    for page in ("/status.json", "/happenings", "/readyz"):
        assert fetch(fresh, page)[0] == 404


def test_a_node_without_a_configuration_lives_and_is_not_ready(fresh: Node) -> None:
    for file in fresh.manifests.iterdir():
        file.unlink()
    fresh.start("--http", WHERE, wait=False)
    eventually(lambda: fetch(fresh, "/healthz")[0] == 200, what="the pages")
    status, reasons = fetch(fresh, "/readyz")
    assert status == 503 and "no NodeConfig" in reasons


def test_pages_whose_port_is_taken_are_missed_until_it_is_free_and_pods_are_not_kept_waiting(fresh: Node) -> None:
    host, port = WHERE.split(":")
    address = (host, int(port))
    taken = within(f"/run/netns/{fresh.netns}", lambda: socket.create_server(address))
    fresh.hurry = {"flock.agent.pages.RETRY": 0.2}
    with taken:
        fresh.start("--http", WHERE)
        (complaint,) = eventually(lambda: fresh.ask("status")["degraded"], what="the pages are missed")
        assert "--http" in complaint and "in use" in complaint
        fresh.pod("a")
    eventually(lambda: fetch(fresh, "/readyz")[0] == 200, what="the pages once the port is free")
    eventually(lambda: fresh.ask("status")["degraded"] == [], what="the complaint to end")


def test_a_socket_that_cannot_be_opened_is_tried_until_it_can_be_and_the_pages_say_why(fresh: Node) -> None:
    taken = fresh.run_dir / "flock.sock"
    taken.mkdir()
    fresh.start("--http", WHERE, wait=False)
    eventually(lambda: "the socket cannot be opened yet: " in fetch(fresh, "/readyz")[1], what="the reason")
    taken.rmdir()
    eventually(fresh.is_ready, what="everything comes up once the cause is gone")
    assert not list(fresh.run_dir.glob(".flock.sock*"))
    fresh.pod("a")


def passes(node: Node) -> int:
    lines = fetch(node, "/metrics")[1].splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("flock_heal_passes_total "))


def test_nobody_looks_at_everything_because_a_pod_came_or_went(fresh: Node) -> None:
    """Beside a thousand pods a look takes a quarter of a second, and whoever changes links waits for it."""
    fresh.hurry = {"flock.agent.healing.PERIOD": 600.0, "flock.agent.healing.SPACING": 0.1}
    fresh.start("--http", WHERE)
    first = fresh.pod("first")
    before = passes(fresh)
    for number in range(10):
        fresh.pod(f"pod{number}")
        time.sleep(0.3)  # as long as a pass may wait for its turn
        fresh.cni("DEL", f"pod{number}")
        time.sleep(0.3)
    assert passes(fresh) < before + 5, "a start has some of its own, and may take its time for them"
    before = passes(fresh)
    fresh.ip("link", "set", first["interfaces"][0]["name"], "down")
    eventually(lambda: passes(fresh) > before, what="a look for what is lost")


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


# --- callers that open connections and say nothing -------------------------------------------------------------------

CROWD = """
import os, resource, select, socket, sys, time
host, port, count, said, persistent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], len(sys.argv) > 5
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
os.setuid(65534)
poll = select.poll()

def connect():
    connection = socket.socket()
    connection.settimeout(10)
    connection.connect((host, port))
    connection.send(said.encode())
    poll.register(connection, select.POLLIN | select.POLLHUP)
    return connection

crowd = {c.fileno(): c for c in (connect() for _ in range(count))}
print("there", flush=True)
poll.register(0)
while True:
    time.sleep(0.05)
    for number, _ in poll.poll():
        if number == 0:
            sys.exit()
        poll.unregister(number)
        crowd.pop(number).close()
        if persistent:
            connection = connect()
            crowd[connection.fileno()] = connection
"""


@contextmanager
def crowd(node: Node, *, said: str, persistent: bool) -> Iterator[None]:
    """1,100 connections of a user without rights; with `persistent` each that ends is followed by another."""
    host, port = WHERE.split(":")
    command = ["nsenter", f"--net=/run/netns/{node.netns}", sys.executable, "-c", CROWD, host, port, "1100", said]
    with subprocess.Popen(
        [*command, *["persistent"] * persistent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        yield
        process.stdin.close()


@pytest.mark.parametrize(
    ("said", "persistent"),
    [
        ("", False),
        pytest.param("", True, marks=pytest.mark.slow),
        pytest.param("GET /metrics HTTP/1.1\r\n", False, marks=pytest.mark.slow),
        ("GET /metrics HTTP/1.1\r\n\r\n", False),
        pytest.param("GET /status.json HTTP/1.1\r\n\r\n", True, marks=pytest.mark.slow),
        pytest.param("GET /happenings HTTP/1.1\r\n\r\n", True, marks=pytest.mark.slow),
    ],
    ids=["idle", "idle and soon back", "half a request", "answers nobody reads", "status", "happenings"],
)
def test_a_crowd_of_connections_keeps_no_pod_and_no_probe_from_being_served(
    served: Node, said: str, persistent: bool
) -> None:
    assert served.agent is not None
    run("prlimit", "--pid", served.agent.pid, "--nofile=1024:1024")  # what most services have
    written = len(served.log.read_bytes())
    with crowd(served, said=said, persistent=persistent):
        for number in range(10):
            served.pod(f"p{number}")
            assert fetch(served, "/healthz")[0] == fetch(served, "/readyz")[0] == 200
        for number in range(10):
            served.cni("DEL", f"p{number}")
        assert len(served.log.read_bytes()) - written < 20 * 300, "a line for each call, and hardly more"
    descriptors = Path(f"/proc/{served.agent.pid}/fd")
    eventually(lambda: len(list(descriptors.iterdir())) < 400, what="room for the next crowd")
