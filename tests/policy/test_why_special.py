"""`flockctl policy why` about addresses that are not simply a pod's, beside what becomes of real packets."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from probing import Cell, Seat
from realcluster import RealCluster, flockctl, policy

from flock.core.naming import GATEWAY6
from flock.edge.rpc_client import ask

OPEN, CLOSED, OTHER = "x/open", "x/closed", "x/other"
PORTS = (179, 3784, 3785, 4784, 8080)
# What there is besides pods: where it is asked for as it is, and where packets go, by family.
PLACES = {
    "this node": {4: "172.31.0.2", 6: "2001:db8:f0::2"},
    "gateway": {6: f"{GATEWAY6}%eth0"},
    "the other node": {4: "172.31.1.2", 6: "2001:db8:f1::2"},
    "loopback": {4: "127.0.0.1", 6: "::1"},
    "a stranger on the link": {6: "fe80::dead%eth0"},
    "a group elsewhere": {4: "239.1.2.3", 6: "ff0e::1"},
}
ONE_WAY = ("gateway", "a stranger on the link", "a group elsewhere")  # to which no probe connects


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A pod that may send anything, one that may send nothing, and one on another node."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    with RealCluster(directory, nodes=2, ports=PORTS) as made:
        made.namespace("x")
        spec = {"podSelector": {"matchLabels": {"app": "closed"}}, "policyTypes": ["Egress", "Ingress"]}
        made.set_policies([policy("deny", spec)])
        made.add(OPEN, {})
        made.add(CLOSED, {"app": "closed"})
        made.add(OTHER, {}, node=1)
        for name, addresses in PLACES.items():
            at = {"this node": 0, "the other node": 1}.get(name)
            node = made.nodes[at or 0]
            made.prober.add(name, Seat(f"/run/netns/{node.netns}", addresses, () if at is None else PORTS))
        made.settle()
        made.finish_settling()
        yield made


def said(cluster: RealCluster, cell: Cell) -> bool:
    """Whether it passes, by the node's word."""
    what = "icmp" if cell.port is None else f"{cell.port}/{cell.protocol}"
    destination = cluster.address(cell.destination, cell.family)
    source = cluster.address(cell.source, cell.family)
    (answer,) = ask(cluster.nodes[0].run_dir, "policy.why", source, destination, what)["answers"]
    return bool(answer["verdict"] == "allow")


@pytest.mark.parametrize("source", [OPEN, CLOSED])
@pytest.mark.parametrize("destination", [*PLACES, OPEN, CLOSED, OTHER])
def test_what_is_said_is_what_becomes_of_packets(cluster: RealCluster, source: str, destination: str) -> None:
    whats = [("UDP", 8080), ("UDP", 3784), ("UDP", 4784)]
    whats += [("TCP", 8080), ("TCP", 179), ("ICMP", None)] if destination not in ONE_WAY else []
    families = cluster.prober.seats[destination].addresses
    cells = [Cell(source, destination, family, protocol, port) for family in families for protocol, port in whats]
    cluster.assert_reached(cells, expected=[cell for cell in cells if said(cluster, cell)])


def test_what_is_walled_off_is_told_as_such(cluster: RealCluster) -> None:
    for what in ("179/TCP", "3784/UDP", "3785/UDP", "4784/UDP", "ospf"):
        for address in ("172.31.0.2", "2001:db8:f0::2", GATEWAY6):
            told = ask(cluster.nodes[0].run_dir, "policy.why", OPEN, address, what)
            assert told["text"].startswith("deny") and "walled off" in told["text"], (what, address)


@pytest.mark.parametrize("what", ["tcp", "", "80/", "99999999999999999999999/TCP"])
def test_what_is_no_port_is_refused_by_its_name(cluster: RealCluster, what: str) -> None:
    done = flockctl(cluster.nodes[0], "policy", "why", OPEN, CLOSED, what, check=False)
    assert done.returncode and not done.stdout and done.stderr.startswith("flockctl: port")
