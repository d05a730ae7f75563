"""Traffic from the client behind the routers while something else goes on, and what the routers did meanwhile."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from cluster import Cluster

PROGRAM = Path(__file__).with_name("requesting.py")
PATIENCE = 30.0
_STAMP = re.compile(r"^\[(.*?)\]", re.MULTILINE)


NEAR = 1.0  # seconds: a connection this close to a router's change may have been on its way


class Request(NamedTuple):
    begin: float
    end: float
    problem: str

    def was_moved(self, changes: Sequence[float]) -> bool:
        """Did a router change its route so close to it that its packets may have gone to two nodes?"""
        return any(self.begin - NEAR < moment < self.end for moment in changes)


@contextmanager
def requests(cluster: Cluster, address: str, port: int) -> Iterator[list[Request]]:
    """Requests one after the other for as long as the block lasts; the list is filled at its end."""
    made: list[Request] = []
    with _client(cluster, address, str(port)) as said:
        yield made
    made += [Request(*entry) for entry in said[0]]


@contextmanager
def held_connections(cluster: Cluster, addresses: Sequence[str], port: int) -> Iterator[dict[str, str]]:
    """A connection to each address with lines on it all the time; at the end each has its problem or none."""
    fates: dict[str, str] = {}
    with _client(cluster, "--hold", str(port), *addresses) as said:
        yield fates
    fates |= said[0]


@contextmanager
def _client(cluster: Cluster, *arguments: str) -> Iterator[list[Any]]:
    said: list[Any] = []
    command = cluster.network.client.inside([sys.executable, str(PROGRAM), *arguments])
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield said
        output, _ = program.communicate(timeout=PATIENCE)  # closes its standard input
        said.append(json.loads(output))
    finally:
        program.kill()
        program.wait()


@contextmanager
def route_changes(cluster: Cluster, address: str) -> Iterator[list[float]]:
    """When a router or the client changed its route to the address; the list is filled at the end."""
    moments: list[float] = []
    hosts = [cluster.network.host(e.name) for e in (*cluster.network.plan.role("router"), *_client_element(cluster))]
    command = ["ip", "-tshort", "-6" if ":" in address else "-4", "monitor", "route"]
    monitors = [subprocess.Popen(host.inside(command), stdout=subprocess.PIPE, text=True) for host in hosts]
    try:
        yield moments
    finally:
        for monitor in monitors:
            monitor.terminate()
            output, _ = monitor.communicate(timeout=PATIENCE)
            lines = (line for line in output.splitlines() if f"{address} " in line)
            moments += [datetime.fromisoformat(m[1]).timestamp() for line in lines if (m := _STAMP.search(line))]


def _client_element(cluster: Cluster) -> tuple[Any, ...]:
    return cluster.network.plan.role("client")
